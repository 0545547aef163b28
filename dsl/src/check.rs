//! Checking and lowering: from the tree as written to the typed IR, or to every mistake in the file.
//!
//! One pass, no unification. Items are checked when something reaches them, so a family pays only for the part of the
//! prelude that it uses; the family's own items are checked in any case, and dropped when nothing reaches them. A
//! mistake poisons what depends on it, so that it is reported once.

mod absent;
mod blocks;
mod body;
mod bounds;
mod calls;
mod config;
mod constants;
mod dims;
mod expressions;
mod fields;
mod functions;
mod graphs;
mod load;
mod loops;
mod names;
mod probes;
mod processor;
pub(crate) mod record;
pub(crate) mod scope;
mod signature;
mod twins;
pub(crate) mod types;

use std::{
    collections::{HashMap, VecDeque},
    sync::LazyLock,
};

use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    dim::Equations,
    ir::*,
    parser,
    source::{FileId, PRELUDE, Sources},
};
use blocks::BlockEntry;
use config::ConfigTable;
pub(crate) use dims::symbol;
use functions::OpEntry;
pub(crate) use load::{
    function as load_function, function_names as load_function_names, short_name as short_type_name,
    text_of as operator_text, to_float, type_name as load_type_name,
};
use names::Items;
use scope::Reported;

/// Part of every digest: raised when the same text comes to mean something else.
pub const LANGUAGE_VERSION: u32 = 1;

const PRELUDE_TEXT: &str = include_str!("prelude.mgraph");

/// Every mistake of a compilation, with the texts they point into.
#[derive(Debug, Clone)]
pub struct Failed {
    pub diagnostics: Vec<Diagnostic>,
    pub sources: Sources,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::diagnostic::render(&self.diagnostics, &self.sources, false))
    }
}

impl std::error::Error for Failed {}

/// Sources with nothing but the prelude: add family texts to it.
pub fn prelude_sources() -> Sources {
    let mut sources = Sources::default();
    sources.add("prelude.mgraph", PRELUDE_TEXT);
    sources
}

/// Compiles a family text that was read elsewhere; `name` is shown to people.
pub fn compile_text(name: &str, text: &str) -> Result<Program, Failed> {
    let mut sources = prelude_sources();
    let family = sources.add(name, text);
    compile(sources, family)
}

/// Compiles a file. A file that cannot be read is an `io::Error`; its mistakes are the inner error.
pub fn compile_file(path: &std::path::Path) -> std::io::Result<Result<Program, Failed>> {
    let text = std::fs::read_to_string(path)?;
    Ok(compile_text(&path.display().to_string(), &text))
}

/// Compiles the family `family` of `sources`, which begin with the prelude (see [`prelude_sources`]).
pub fn compile(sources: Sources, family: FileId) -> Result<Program, Failed> {
    compile_with(sources, family, false)
}

/// As [`compile`], and the program also holds what the family does not reach of the prelude: for what is said and tested
/// about the prelude itself.
pub fn compile_whole_prelude(sources: Sources, family: FileId) -> Result<Program, Failed> {
    compile_with(sources, family, true)
}

fn compile_with(sources: Sources, family: FileId, whole_prelude: bool) -> Result<Program, Failed> {
    // The prelude is parsed once in a process; only tests give another one.
    static OWN_PRELUDE: LazyLock<Result<ast::File, Vec<Diagnostic>>> =
        LazyLock::new(|| parser::parse(&prelude_sources(), PRELUDE));
    let given;
    let prelude = if sources.get(PRELUDE).text == PRELUDE_TEXT {
        &*OWN_PRELUDE
    } else {
        given = parser::parse(&sources, PRELUDE);
        &given
    };
    let tree = parser::parse(&sources, family);
    let result = match (prelude, &tree) {
        (Ok(prelude), Ok(tree)) => Checker::new(&sources).program(prelude, tree, family, whole_prelude),
        (prelude, tree) => {
            Err([prelude, tree].into_iter().filter_map(|r| r.as_ref().err()).flatten().cloned().collect())
        }
    };
    match result {
        Ok(mut program) => {
            program.sources = sources;
            Ok(program)
        }
        Err(mut diagnostics) => {
            in_order(&mut diagnostics, family);
            Err(Failed { diagnostics, sources })
        }
    }
}

/// What the checker learns about a family and the prelude, whatever is wrong with them, and what it says.
pub(crate) fn learn(
    sources: &Sources,
    prelude: &ast::File,
    family: &ast::File,
    file: FileId,
) -> (record::Record, Vec<Diagnostic>) {
    let mut checker = Checker::new(sources);
    checker.record = Some(record::Record::default());
    let diagnostics = checker.program(prelude, family, file, file == PRELUDE).err().unwrap_or_default();
    (checker.record.unwrap_or_default(), diagnostics)
}

/// Diagnostics of `file` first, in the order of the text.
pub(crate) fn in_order(diagnostics: &mut Vec<Diagnostic>, file: FileId) {
    diagnostics.sort_by_key(|d| (d.span.file != file, d.span.start, d.code));
    diagnostics.dedup();
}

/// A body that is checked after the signatures it needs.
#[derive(Debug, Clone, Copy)]
enum Pending {
    Op(OpId),
    Block(BlockId),
}

pub(crate) struct Checker<'a> {
    pub sources: &'a Sources,
    pub items: Items<'a>,
    pub diagnostics: Vec<Diagnostic>,
    pub config: ConfigTable,
    /// What `require` states for the whole family.
    pub facts: Vec<String>,
    pub equations: Equations,
    /// What each `require` of a conditional section states, and the facts under which it does.
    pub conditional: Vec<(Vec<String>, Load)>,
    pub locals: Vec<scope::Local>,
    ops: Vec<OpEntry<'a>>,
    op_ids: HashMap<&'a str, OpId>,
    blocks: Vec<BlockEntry<'a>>,
    block_ids: HashMap<&'a str, BlockId>,
    pending: VecDeque<Pending>,
    measures: HashMap<bounds::Named, bounds::Measure>,
    /// How many blocks are being checked inside each other.
    block_depth: usize,
    /// Kept for editors only.
    record: Option<record::Record>,
}

impl<'a> Checker<'a> {
    fn new(sources: &'a Sources) -> Self {
        Checker {
            sources,
            items: Items::default(),
            diagnostics: Vec::new(),
            config: ConfigTable::default(),
            facts: Vec::new(),
            equations: Equations::default(),
            conditional: Vec::new(),
            locals: Vec::new(),
            ops: Vec::new(),
            op_ids: HashMap::new(),
            blocks: Vec::new(),
            block_ids: HashMap::new(),
            pending: VecDeque::new(),
            measures: HashMap::new(),
            block_depth: 0,
            record: None,
        }
    }

    pub fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        self.diagnostics.push(diagnostic);
        Reported
    }

    fn program(
        &mut self,
        prelude: &'a ast::File,
        family: &'a ast::File,
        file: FileId,
        whole_prelude: bool,
    ) -> Result<Program, Vec<Diagnostic>> {
        self.collect_items(&prelude.items);
        if let Some(header) = &family.header {
            self.served(header);
        }
        let config = self.check_config_and_items(&family.items);
        let models: Vec<&ast::Model> =
            family.items.iter().filter_map(|i| if let ast::Item::Model(m) = i { Some(m) } else { None }).collect();
        if models.is_empty() && file != PRELUDE {
            let span = family.header.as_ref().map_or_else(|| start_of(file), |h| h.name.span);
            self.report(
                Diagnostic::new(Code::MissingGraph, span, "the family has no `model`")
                    .help("add `model { .. }` with the graphs `embed` and `forward`"),
            );
        }
        for second in models.iter().skip(1) {
            self.report(
                Diagnostic::new(Code::DuplicateName, second.span, "a family has one `model`")
                    .also(models[0].span, "first here"),
            );
        }
        let model = models.first().copied();
        let id = model.map(|model| self.reach_model(model));
        self.finish_pending();
        let reached = (self.ops.len(), self.blocks.len());
        let processor = self.processor(&family.items);
        if let Some(model) = model {
            self.check_graphs(model, &family.items, &processor);
        }

        let mut rest: Vec<&ast::Item> = family.items.iter().collect();
        if whole_prelude {
            rest.extend(&prelude.items);
        }
        for item in rest {
            match item {
                ast::Item::Op(op) => drop(self.reach_op(&op.name.node)),
                ast::Item::Block(block) => drop(self.reach_block(&block.name.node)),
                _ => {}
            }
            self.finish_pending();
        }
        let (ops, blocks) = if whole_prelude { (self.ops.len(), self.blocks.len()) } else { reached };
        self.check_recursion();
        let numerics = self.numerics(&family.items);
        let contract = self.contract(&family.items);
        let roots = match model.and_then(|m| m.source.as_ref()).map(|s| self.roots(s)) {
            None => vec![String::new()],
            Some(roots) => roots.unwrap_or_default(),
        };
        let id = match id {
            Some(id) if self.diagnostics.is_empty() => id,
            Some(_) | None => return Err(std::mem::take(&mut self.diagnostics)),
        };

        let header = family.header.as_ref();
        let mut program = Program {
            name: header.map(|h| h.name.node.clone()).unwrap_or_default(),
            model_types: header.map(|h| texts(&h.model_types)).unwrap_or_default(),
            architectures: header.map(|h| texts(&h.architectures)).unwrap_or_default(),
            doc: header.map(|h| h.doc.clone()).unwrap_or_default(),
            digest: digest(self.sources, file),
            sources: Sources::default(),
            config,
            ops: self.ops.drain(..).take(ops).filter_map(OpEntry::finish).collect(),
            locals: self.locals.drain(..).map(|local| local.name).collect(),
            blocks: self.blocks.drain(..).take(blocks).filter_map(BlockEntry::finish).collect(),
            model: id,
            roots,
            processor: processor.unwrap_or_default(),
            numerics,
            contract,
        };
        // An item without a body here was reported; this keeps ids true even if that ever fails.
        if program.ops.len() != ops || program.blocks.len() != blocks {
            program.ops.clear();
            let message = "an item was not lowered";
            return Err(vec![Diagnostic::new(Code::RecursiveDefinition, start_of(file), message)]);
        }
        if let Some(error) = bounds::too_large(&program) {
            return Err(vec![error]);
        }
        let repeated = probes::repeated(&program);
        if repeated.is_empty() { Ok(program) } else { Err(repeated) }
    }

    fn check_config_and_items(&mut self, items: &'a [ast::Item]) -> Vec<Setting> {
        // The config may call load ops: items are collected first.
        self.collect_items(items);
        let settings = self.check_config(items);
        self.check_items_hide_nothing(items);
        settings
    }

    fn finish_pending(&mut self) {
        while let Some(next) = self.pending.pop_front() {
            match next {
                Pending::Op(op) => self.check_op(op),
                Pending::Block(block) => self.check_functions(block),
            }
        }
    }
}

fn texts(literals: &[ast::Text]) -> Vec<String> {
    literals.iter().map(|text| text.node.clone()).collect()
}

fn start_of(file: FileId) -> crate::source::Span {
    crate::source::Span { file, start: 0, end: 0 }
}

fn digest(sources: &Sources, family: FileId) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(&LANGUAGE_VERSION.to_le_bytes());
    for file in [PRELUDE, family] {
        let text = &sources.get(file).text;
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().to_hex().to_string()
}
