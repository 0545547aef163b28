//! Where in the text the stages of a run are named.

use std::collections::BTreeMap;

use mgraph_dsl::{
    ir::{self, Program},
    source::Span,
    trace::{Sizes, trace},
};

use crate::{
    inputs::{self, CallSizes},
    model::Model,
};

pub(super) struct Places<'a> {
    program: &'a Program,
    /// Of the probes that a call of these sizes comes by.
    known: BTreeMap<String, Span>,
}

impl<'a> Places<'a> {
    /// By the text alone: of two probes whose names read the same, it cannot tell which one ran.
    pub fn of_text(program: &'a Program) -> Places<'a> {
        Places { program, known: BTreeMap::new() }
    }

    /// By what `embed` and `forward` do for this config. Graphs of pictures, whose sizes the words do not tell, keep to the text.
    pub fn of_call(&mut self, model: &Model, sizes: CallSizes) {
        // A family that cannot be traced cannot run either, which the run will say.
        self.known = traced(model, sizes).unwrap_or_default();
    }

    /// `llama.mgraph:66`; `None` for what is no probe.
    pub fn of(&self, stage: &str) -> Option<String> {
        let span = self.known.get(stage).copied().or_else(|| self.program.probe(stage))?;
        let sources = &self.program.sources;
        Some(format!("{}:{}", sources.get(span.file).name, sources.line_column(span).0))
    }
}

fn traced(model: &Model, sizes: CallSizes) -> Option<BTreeMap<String, Span>> {
    let float = crate::tensor::DType::F32;
    let told = inputs::of_step(&model.program, &model.resolved, sizes, float).ok()?;
    let mut known = BTreeMap::new();
    let mut embedded = Vec::new();
    for graph in ["embed", "forward"] {
        let mut given = Vec::new();
        for (name, ty) in inputs::declared(model.program.graph(graph)?).ok()? {
            let shape = match name {
                "x" => &embedded,
                _ => &told.iter().find(|input| input.name == name)?.shape,
            };
            given.push((name, ty.dtype, shape.as_slice()));
        }
        let sizes =
            Sizes { inputs: &given, rows: sizes.rows, positions: sizes.width, family: ir::DType::F32, twins: None };
        let trace = trace(&model.program, &model.resolved, &model.bindings, graph, &sizes).ok()?;
        known.extend(trace.probes);
        if let Some(result) = trace.results.first() {
            embedded = trace.nodes.get(result.0)?.shape.clone();
        }
    }
    Some(known)
}
