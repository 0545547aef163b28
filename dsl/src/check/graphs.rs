//! A family's graphs against the contract with the runtime (`crate::graphs`), and its small tables (roots, numerics,
//! tolerances).

use super::{
    Checker,
    scope::Checked,
    signature::{ParameterType, Results, Signature, SignatureParameter},
    types::type_text,
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic, suggest},
    graphs::{GRAPHS, Gives, Graph, INPUTS, Input},
    ir::*,
    source::Span,
};

impl<'a> Checker<'a> {
    pub fn check_graphs(
        &mut self,
        model: &'a ast::Model,
        items: &'a [ast::Item],
        processor: &Checked<Option<Processor>>,
    ) {
        let model_id = BlockId(0);
        for Graph { name, required, needs: inputs, gives: result, called: _ } in GRAPHS {
            let written = model.members.iter().find_map(|m| match m {
                ast::Member::Graph { name: n, signature } if n.node == *name => Some((n, signature)),
                _ => None,
            });
            match written {
                None if *required => {
                    let message = format!("the model has no graph `{name}`");
                    self.report(
                        Diagnostic::new(Code::MissingGraph, model.span, message)
                            .help(format!("the runtime calls `graph {name}({})`", inputs.join(", "))),
                    );
                }
                None => {}
                Some((name, tree)) => {
                    if let Some(signature) = self.graph_signature(model_id, &name.node) {
                        self.check_graph(name, tree, &signature, inputs, result, processor);
                    }
                }
            }
        }
        for member in &model.members {
            if let ast::Member::Graph { name, .. } = member
                && GRAPHS.iter().all(|g| g.name != name.node)
            {
                let mut error = Diagnostic::new(
                    Code::UnknownGraph,
                    name.span,
                    format!("the runtime calls no graph `{}`", name.node),
                );
                error = match suggest(&name.node, GRAPHS.iter().map(|g| g.name)) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.help(
                        "graphs are `embed`, `vision`, `merge`, `attach` and `forward`; helpers are `fn`s of blocks",
                    ),
                };
                self.report(error);
            }
        }
        for item in items {
            if let ast::Item::Block(block) = item {
                for member in &block.members {
                    if let ast::Member::Graph { name, .. } = member {
                        let message = "a graph stands in `model`, blocks have `fn`s";
                        self.report(Diagnostic::new(Code::UnknownGraph, name.span, message));
                    }
                }
            }
        }
    }

    fn check_graph(
        &mut self,
        name: &ast::Name,
        tree: &'a ast::Signature,
        signature: &Signature,
        needed: &[&str],
        result: &Gives,
        processor: &Checked<Option<Processor>>,
    ) {
        let vision = name.node == "vision";
        if vision && matches!(processor, Ok(None)) {
            self.report(
                Diagnostic::new(
                    Code::WrongProcessor,
                    name.span,
                    "`vision` takes what a processor gives, and this family has none",
                )
                .help("add `processor NAME(settings = \"..\", image_token = \"..\")`"),
            );
            return self.check_graph_result(name, tree, signature, result);
        }

        for input in needed {
            let missing = signature.parameters.iter().all(|p| p.name.node != *input);
            // A misspelt one is said at its parameter.
            let misspelt = |p: &SignatureParameter| near_input(&p.name.node) == Some(*input);
            if missing && !signature.parameters.iter().any(misspelt) {
                let message = format!("the graph `{}` needs the input `{input}`", name.node);
                self.report(Diagnostic::new(Code::UnknownInput, name.span, message));
            }
        }
        for (parameter, written) in signature.parameters.iter().zip(&tree.parameters) {
            let ParameterType::Value(Type::Tensor(ty)) = &parameter.ty else {
                let message = format!("the input `{}` of a graph is a tensor", parameter.name.node);
                self.report(Diagnostic::new(Code::UnknownInput, written.ty.span, message));
                continue;
            };
            let word = parameter.name.node.as_str();
            if vision {
                if let Ok(Some(processor)) = processor {
                    self.check_processor_output(processor.kind, written, ty);
                }
                continue;
            }
            self.check_of_tokens(&parameter.name, processor);
            match INPUTS.iter().find(|row| row.name == word) {
                Some(Input { name: _, dtype, rank, dims, doc: _ }) => {
                    let fits = ty.dtype == *dtype
                        && !ty.shape.pack
                        && ty.shape.dims.len() == *rank
                        && dims.iter().zip(&ty.shape.dims).all(|(name, dim)| is_free(dim, name));
                    if !fits {
                        let rest = rank.saturating_sub(dims.len());
                        let shape: Vec<&str> = dims.iter().copied().chain(std::iter::repeat_n("_", rest)).collect();
                        let wanted = format!("{}[{}]", dtype.name(), shape.join(", "));
                        let message = format!(
                            "the runtime gives `{word}` as {wanted}, this is {}",
                            type_text(&Type::Tensor(ty.clone()))
                        );
                        self.report(Diagnostic::new(Code::UnknownInput, written.ty.span, message));
                    }
                }
                // What `vision` gives.
                None if word == "features" => {}
                None => {
                    let message = format!("the runtime has no input `{word}`");
                    let mut error = Diagnostic::new(Code::UnknownInput, parameter.name.span, message);
                    error = match near_input(word) {
                        Some(near) => error.help(format!("did you mean `{near}`?")),
                        None => error.help("only `vision` takes what a `processor` gives"),
                    };
                    self.report(error);
                }
            }
        }
        self.check_graph_result(name, tree, signature, result);
    }

    /// What an input says of pictures is known only where the processor gives it.
    fn check_of_tokens(&mut self, name: &ast::Name, processor: &Checked<Option<Processor>>) {
        let Some(needed) = ProcessorKind::ALL.into_iter().find(|kind| kind.of_tokens() == name.node) else { return };
        let has = match processor {
            Err(_) => return,
            Ok(Some(processor)) if processor.kind == needed => return,
            Ok(Some(processor)) => format!("and this family has `{}`", processor.kind.name()),
            Ok(None) => "and this family has none".into(),
        };
        let message = format!("`{}` comes from the processor `{}`, {has}", name.node, needed.name());
        self.report(Diagnostic::new(Code::UnknownInput, name.span, message));
    }

    fn check_graph_result(&mut self, name: &ast::Name, tree: &ast::Signature, signature: &Signature, result: &Gives) {
        let Results::Values(types) = &signature.results else { return };
        let rows = |second: &str| match types.as_slice() {
            [Type::Tensor(TensorType { dtype: DType::F, shape })] => {
                !shape.pack && shape.dims.len() == 3 && is_free(&shape.dims[0], "B") && is_free(&shape.dims[1], second)
            }
            _ => false,
        };
        let (fits, wanted) = match result {
            Gives::Embeddings => (rows("S"), "F[B, S, width]"),
            Gives::Logits => (rows("R"), "F[B, R, vocab]"),
            Gives::Features => {
                (matches!(types.as_slice(), [Type::Tensor(ty)] if ty.dtype == DType::F), "one tensor of `F`")
            }
            Gives::Nothing => (types.is_empty(), "nothing but new state"),
        };
        if !fits {
            let span = tree.result.as_ref().map_or(name.span, |r| r.span);
            let found: Vec<String> = types.iter().map(type_text).collect();
            let found = if found.is_empty() { "nothing".to_string() } else { found.join(", ") };
            let message = format!("the graph `{}` gives {wanted}, this gives {found}", name.node);
            self.report(Diagnostic::new(Code::UnknownInput, span, message));
        }
    }

    /// `model as "" | "language_model"`
    pub fn roots(&mut self, source: &ast::StoredAs) -> Checked<Vec<String>> {
        self.stored_paths(source)?;
        let mut roots = Vec::new();
        for place in &source.places {
            match place.as_slice() {
                [part] if part.rows.is_none() && !part.path.node.contains("{}") => {
                    self.no_names_in_holes(&part.path)?;
                    roots.push(part.path.node.clone());
                }
                parts => {
                    let span = parts.first().map_or(start(), |p| p.path.span);
                    let message = "the model's `as` is a plain prefix, or several with `|`";
                    return Err(self.report(Diagnostic::new(Code::DoublyClaimed, span, message)));
                }
            }
        }
        Ok(roots)
    }

    pub fn numerics(&mut self, items: &'a [ast::Item]) -> Numerics {
        let mut numerics = Numerics { tf32: false, contraction: false };
        for item in items {
            let ast::Item::Numerics(lines) = item else { continue };
            for (what, choice) in lines {
                let allow = match choice.node.as_str() {
                    "allow" => true,
                    "forbid" => false,
                    other => {
                        let message = format!("`{other}` is neither `allow` nor `forbid`");
                        self.report(Diagnostic::new(Code::UnknownName, choice.span, message));
                        continue;
                    }
                };
                match what.node.as_str() {
                    "tf32" => numerics.tf32 = allow,
                    "contraction" => numerics.contraction = allow,
                    other => {
                        let message = format!("`numerics` has no `{other}`");
                        let error = Diagnostic::new(Code::UnknownName, what.span, message);
                        self.report(error.help("it has `tf32` and `contraction`"));
                    }
                }
            }
        }
        numerics
    }

    pub fn contract(&mut self, items: &'a [ast::Item]) -> Vec<ContractLine> {
        let mut lines = Vec::new();
        for item in items {
            let ast::Item::Contract(written) = item else { continue };
            for line in written {
                let mut bounds =
                    ContractLine { pattern: line.pattern.node.clone(), max_abs: None, rtol: None, rms: None };
                for (name, value) in &line.bounds {
                    let place = match name.node.as_str() {
                        "max_abs" => &mut bounds.max_abs,
                        "rtol" => &mut bounds.rtol,
                        "rms" => &mut bounds.rms,
                        other => {
                            let message = format!("there is no bound `{other}`");
                            let error = Diagnostic::new(Code::UnknownName, name.span, message);
                            self.report(error.help("bounds are `max_abs`, `rtol` and `rms`"));
                            continue;
                        }
                    };
                    *place = Some(value.node);
                }
                lines.push(bounds);
            }
        }
        lines
    }
}

/// The engine's input that a name, which is none, was probably meant to be.
fn near_input(name: &str) -> Option<&'static str> {
    let known = INPUTS.iter().any(|input| input.name == name);
    if known { None } else { suggest(name, INPUTS.iter().map(|input| input.name)) }
}

fn is_free(dim: &crate::dim::Dim, name: &str) -> bool {
    matches!(dim.as_atom().map(|a| &a.load.kind), Some(LoadKind::Free(n)) if n == name)
}

fn start() -> Span {
    Span { file: crate::source::PRELUDE, start: 0, end: 0 }
}
