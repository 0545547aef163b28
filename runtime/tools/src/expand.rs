//! `mlxcel expand`: what a family becomes, to be read: the typed graph IR, or the Rust of one backend.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use mgraph_codegen::names;
use mgraph_dsl::{
    diagnostic::suggest,
    ir::{OpKind, Program},
    print,
};
use quote::{ToTokens, format_ident};
use syn::{Ident, ImplItem, Item, ItemMod};

use crate::{Console, Verdict, files};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// The eager MLX module, Rust
    Mlx,
    /// The StableHLO emitter, Rust
    Stablehlo,
    /// The typed graph IR, which both are generated from
    Ir,
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A family file, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What to show
    #[arg(long, value_enum)]
    pub backend: Backend,
    /// Only this block
    #[arg(long, value_name = "NAME", group = "part")]
    pub block: Option<String>,
    /// Only this op
    #[arg(long, value_name = "NAME", group = "part")]
    pub op: Option<String>,
    /// Only this graph
    #[arg(long, value_name = "NAME", group = "part")]
    pub graph: Option<String>,
}

/// Writes the text.
///
/// # Errors
/// A file that cannot be read or has mistakes; a name that the family does not have; standard output.
pub fn run(arguments: &Arguments, console: &mut Console<'_>) -> Result<Verdict> {
    let text = files::read_one(&arguments.file, console)?;
    let program = files::compile(&text, console.color)?;
    let part = Part::find(arguments, &program)?;
    let shown = match arguments.backend {
        Backend::Ir => ir(&program, part),
        Backend::Mlx => rust(&program, "mlx", "hlo", part)?,
        Backend::Stablehlo => rust(&program, "hlo", "mlx", part)?,
    };
    console.say(shown)?;
    Ok(Verdict::Done)
}

/// What of the family is asked for. The names are known to be there.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Everything,
    Block(&'a str),
    Op(&'a str),
    Graph(&'a str),
}

impl<'a> Part<'a> {
    fn find(arguments: &'a Arguments, program: &Program) -> Result<Part<'a>> {
        if let Some(name) = &arguments.block {
            known(name, "block", program.blocks.iter().map(|block| &block.name[..]))?;
            return Ok(Part::Block(name));
        }
        if let Some(name) = &arguments.op {
            known(name, "op", program.ops.iter().map(|op| &op.name[..]))?;
            return Ok(Part::Op(name));
        }
        if let Some(name) = &arguments.graph {
            let graphs = program.block(program.model).functions.iter().filter(|f| f.graph);
            known(name, "graph", graphs.map(|graph| &graph.name[..]))?;
            return Ok(Part::Graph(name));
        }
        Ok(Part::Everything)
    }
}

/// That `name` is among `names`, or an error that suggests one.
pub(crate) fn known<'a>(name: &str, kind: &str, names: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    if names.clone().any(|known| known == name) {
        return Ok(());
    }
    match suggest(name, names.clone()) {
        Some(near) => bail!("the family reaches no {kind} `{name}`; did you mean `{near}`?"),
        None => bail!("the family reaches no {kind} `{name}`; it has {}", names.collect::<Vec<_>>().join(", ")),
    }
}

fn ir(program: &Program, part: Part<'_>) -> String {
    let model = program.block(program.model);
    match part {
        Part::Everything => print::program(program),
        Part::Block(name) => {
            program.blocks.iter().filter(|b| b.name == name).map(|b| print::block(program, b)).collect()
        }
        Part::Op(name) => program.ops.iter().filter(|op| op.name == name).map(|op| print::op(program, op)).collect(),
        Part::Graph(name) => {
            let graphs = model.functions.iter().filter(|f| f.graph && f.name == name);
            graphs.map(|graph| print::function(program, model, graph)).collect()
        }
    }
}

/// The generated module without the backend that is not asked for, or the part of it.
fn rust(program: &Program, backend: &str, other: &str, part: Part<'_>) -> Result<String> {
    let tokens = mgraph_codegen::emit(program, &mgraph_codegen::Options::default())
        .with_context(|| format!("generating the code of family `{}`", program.name))?;
    let file: syn::File = syn::parse2(tokens).context("reading the generated code")?;
    let items = match part {
        Part::Everything => {
            // The registry entry names both backends, and embeds the whole text.
            file.items.into_iter().filter(|item| !is_module(item, other) && !is_static(item)).collect()
        }
        Part::Block(name) => of_block(module(file.items, backend), &names::block(name)),
        Part::Graph(name) => of_graph(module(file.items, backend), name),
        Part::Op(name) if is_load(program, name) => of_op(module(file.items, "load"), name),
        Part::Op(name) => of_op(module(module(file.items, backend), "prelude"), name),
    };
    if items.is_empty() {
        bail!(
            "there is no generated code for it: it is computed when a checkpoint is opened, or this backend never reaches it"
        );
    }
    let tokens = items.iter().map(ToTokens::to_token_stream).collect();
    mgraph_codegen::format(tokens).context("formatting the generated code")
}

fn is_load(program: &Program, name: &str) -> bool {
    program.ops.iter().any(|op| op.name == name && matches!(op.kind, OpKind::Load { .. }))
}

fn is_module(item: &Item, name: &str) -> bool {
    matches!(item, Item::Mod(module) if module.ident == name)
}

fn is_static(item: &Item) -> bool {
    matches!(item, Item::Static(_))
}

fn module(items: Vec<Item>, name: &str) -> Vec<Item> {
    let found = items.into_iter().find_map(|item| match item {
        Item::Mod(ItemMod { ident, content: Some((_, items)), .. }) if ident == name => Some(items),
        _ => None,
    });
    found.unwrap_or_default()
}

fn of_block(items: Vec<Item>, name: &Ident) -> Vec<Item> {
    let about = |item: &Item| match item {
        Item::Struct(held) => held.ident == *name,
        Item::Impl(implementation) => *name == implementation.self_ty.to_token_stream().to_string(),
        _ => false,
    };
    items.into_iter().filter(about).collect()
}

/// The model's method, in its `impl`.
fn of_graph(items: Vec<Item>, name: &str) -> Vec<Item> {
    let (items, method) = (of_block(items, &format_ident!("Model")).into_iter(), names::method(name));
    let only = items.filter_map(|item| match item {
        Item::Impl(mut implementation) => {
            implementation.items.retain(|item| matches!(item, ImplItem::Fn(function) if function.sig.ident == method));
            (!implementation.items.is_empty()).then_some(Item::Impl(implementation))
        }
        _ => None,
    });
    only.collect()
}

fn of_op(items: Vec<Item>, name: &str) -> Vec<Item> {
    let name = names::ident(name);
    items.into_iter().filter(|item| matches!(item, Item::Fn(function) if function.sig.ident == name)).collect()
}
