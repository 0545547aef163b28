//! `mlxcel graph`: a picture of a family. By default its graphs with what the runtime passes between them, and each block
//! that the family defines, once; what the prelude defines is looked into with `--block` and `--op`.

mod dot;
mod flow;
mod label;
mod layout;

use std::path::PathBuf;

use anyhow::{Result, bail};
use mgraph_dsl::{
    ir::{Block, FieldKind, Function, OpKind, Program},
    source::PRELUDE,
};

use crate::{Console, Verdict, expand::known, files, print_parameters};
use flow::{Flow, NodeId};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A family file, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the picture goes: .svg, .png, .pdf (these need Graphviz) or .dot; `-` writes DOT to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Only the inside of this block
    #[arg(long, value_name = "NAME", group = "part")]
    pub block: Option<String>,
    /// Only the inside of this op
    #[arg(long, value_name = "NAME", group = "part")]
    pub op: Option<String>,
    /// Only this graph
    #[arg(long, value_name = "NAME", group = "part")]
    pub graph: Option<String>,
}

/// One function, in its own frame.
#[derive(Debug)]
struct Sheet {
    title: String,
    note: String,
    flow: Flow,
    graph: bool,
    /// Inputs that the runtime takes from the result of another sheet.
    from: Vec<(NodeId, usize)>,
}

/// Draws the family.
///
/// # Errors
/// A file that cannot be read or has mistakes, a name that the family does not have, an output that cannot be written, or
/// no Graphviz where the picture needs it.
pub fn run(arguments: &Arguments, console: &mut Console<'_>) -> Result<Verdict> {
    let output = layout::Output::of(&arguments.output)?;
    let text = files::read_one(&arguments.file, console)?;
    let program = files::compile(&text, console.color)?;
    let sheets = sheets(arguments, &program)?;
    let types: Vec<String> = program.model_types.iter().map(|t| format!("{t:?}")).collect();
    let title = format!("family {} for {}", program.name, types.join(" | "));
    layout::draw(&dot::write(&title, &sheets), &output, console)?;
    Ok(Verdict::Done)
}

fn sheets(arguments: &Arguments, program: &Program) -> Result<Vec<Sheet>> {
    let model = program.block(program.model);
    if let Some(name) = &arguments.op {
        known(name, "op", program.ops.iter().map(|op| &op.name[..]))?;
        let Some(op) = program.ops.iter().find(|op| op.name == *name) else { return Ok(Vec::new()) };
        let OpKind::Tensor { function, .. } = &op.kind else {
            bail!(
                "op `{name}` computes with load values alone, when a checkpoint is opened: there is no flow of tensors to draw"
            );
        };
        return Ok(vec![sheet(program, None, function, format!("op {name}"), &op.doc)]);
    }
    if let Some(name) = &arguments.block {
        known(name, "block", program.blocks.iter().map(|block| &block.name[..]))?;
        let blocks = program.blocks.iter().filter(|block| block.name == *name);
        return Ok(blocks.flat_map(|block| of_block(program, block)).collect());
    }
    let graphs = model.functions.iter().filter(|function| function.graph);
    if let Some(name) = &arguments.graph {
        known(name, "graph", graphs.clone().map(|graph| &graph.name[..]))?;
        let graph = graphs.filter(|graph| graph.name == *name);
        return Ok(graph.map(|graph| of_graph(program, model, graph)).collect());
    }
    let mut sheets: Vec<Sheet> = graphs.map(|graph| of_graph(program, model, graph)).collect();
    connect(&mut sheets);
    let own = program.blocks.iter().filter(|block| block.span.file != PRELUDE);
    sheets.extend(own.flat_map(|block| of_block(program, block)));
    Ok(sheets)
}

fn of_graph(program: &Program, model: &Block, graph: &Function) -> Sheet {
    let mut sheet = sheet(program, Some(model), graph, format!("graph {}", graph.name), &graph.doc);
    sheet.graph = true;
    sheet
}

/// One sheet per function, and per weight that is computed from others.
fn of_block(program: &Program, block: &Block) -> Vec<Sheet> {
    let name = format!("block {}{}", block.name, print_parameters(&block.parameters));
    let derived = block.fields.iter().filter_map(|field| match &field.kind {
        FieldKind::Derived { body, .. } => {
            Some(sheet(program, Some(block), body, format!("{name}, let {}", field.name), ""))
        }
        FieldKind::Tensor(_)
        | FieldKind::Matrix(_)
        | FieldKind::Child { .. }
        | FieldKind::Children { .. }
        | FieldKind::State(_)
        | FieldKind::Let(_) => None,
    });
    let functions = block.functions.iter().filter(|function| !function.graph).map(|function| {
        let title = if function.name.is_empty() { name.clone() } else { format!("{name}.{}", function.name) };
        let doc = if function.doc.is_empty() { &block.doc } else { &function.doc };
        sheet(program, Some(block), function, title, doc)
    });
    derived.chain(functions).collect()
}

fn sheet(program: &Program, block: Option<&Block>, function: &Function, title: String, doc: &str) -> Sheet {
    let note = doc.trim().lines().next().unwrap_or_default().trim().to_owned();
    Sheet { title, note, flow: flow::of(program, block, function), graph: false, from: Vec::new() }
}

/// What the runtime passes on: `x` from `merge`, or else `embed`; `features` from `vision`.
fn connect(sheets: &mut [Sheet]) {
    let place = |wanted: &str| sheets.iter().position(|sheet| sheet.title == wanted);
    let (embed, merge, vision) = (place("graph embed"), place("graph merge"), place("graph vision"));
    for (index, sheet) in sheets.iter_mut().enumerate() {
        let from = |input: &str| match input {
            "x" if merge == Some(index) => embed,
            "x" => merge.or(embed),
            "features" => vision,
            _ => None,
        };
        let inputs = sheet.flow.nodes.iter().enumerate().filter(|(_, node)| node.kind == flow::Kind::Input);
        let found = inputs.filter_map(|(node, input)| Some((NodeId(node), from(&input.title)?))).collect();
        sheet.from = found;
    }
}
