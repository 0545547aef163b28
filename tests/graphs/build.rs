//! From a recipe to a program: an op `main` with its operands.

use std::collections::BTreeMap;

use mgraph_dsl::{
    interpret::{Operand, Tensor},
    ir::DType,
    load::Val,
};

use super::{
    dims::{Dim, Name, written},
    pool::{Range, Value, concrete, holds},
    recipe::{DIMS, Recipe},
    steps::STEPS,
};
use crate::conformance::numbers::{Numbers, matrix, tensor};

/// A program and what `main` is called with.
#[derive(Clone)]
pub struct Graph {
    pub name: String,
    /// The op alone; [`crate::conformance::cases::FAMILY`] goes before it.
    pub text: String,
    pub family: DType,
    pub operands: Vec<Operand<Tensor>>,
}

/// Values larger than this make a test slow and show nothing more.
const ELEMENTS: usize = 4096;

pub struct Build {
    pub family: DType,
    pub sizes: BTreeMap<Name, usize>,
    pub pool: Vec<Value>,
    parameters: Vec<String>,
    operands: Vec<Operand<Tensor>>,
    statements: Vec<String>,
    numbers: Numbers,
}

impl Graph {
    /// The op under a name of its own, so that several fit into one family.
    pub fn named(recipe: &Recipe, name: &str) -> Graph {
        let names = (0..DIMS).map(|at| (b'A' + at as u8) as Name);
        let mut build = Build {
            family: recipe.family,
            sizes: names.zip(recipe.sizes.iter().copied()).collect(),
            pool: Vec::new(),
            parameters: Vec::new(),
            operands: Vec::new(),
            statements: Vec::new(),
            numbers: Numbers::new(&recipe.seed.to_string()),
        };
        // Binds every free dim.
        let dims: Vec<Dim> = build.sizes.keys().map(|name| Dim::name(*name)).collect();
        build.parameter(DType::F, &dims, Range::of(-3.0, 3.0));
        for (kind, picks) in &recipe.steps {
            STEPS[usize::from(*kind) % STEPS.len()].1(&mut build, picks);
        }
        build.finish(name)
    }
}

impl Build {
    /// One of the values that fit.
    pub fn choose(&self, pick: u16, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let found: Vec<&Value> = self.pool.iter().rev().filter(|value| fits(value)).collect();
        // Every other one of the newest few, so that chains grow long.
        let among = if pick.is_multiple_of(2) { found.len().min(3) } else { found.len() };
        found.get(usize::from(pick / 2) % among.max(1)).copied().cloned()
    }

    pub fn size(&self, dim: &Dim) -> usize {
        dim.size(&self.sizes)
    }

    pub fn holds(&self, dtype: DType, range: Range) -> bool {
        holds(dtype, self.family, range)
    }

    /// A dim by choice: a free one, or a small number.
    pub fn dim(&self, pick: u16) -> Dim {
        let names: Vec<Name> = self.sizes.keys().copied().collect();
        match usize::from(pick) % (names.len() + 4) {
            at if at < names.len() => Dim::name(names[at]),
            at => Dim::number(at - names.len() + 1),
        }
    }

    fn small(&self, dims: &[Dim]) -> bool {
        dims.iter().map(|dim| self.size(dim)).product::<usize>() <= ELEMENTS
    }

    /// A new operand. `None` where it would be too large.
    pub fn parameter(&mut self, dtype: DType, dims: &[Dim], range: Range) -> Option<Value> {
        if !self.small(dims) || !self.holds(dtype, range) {
            return None;
        }
        let shape: Vec<usize> = dims.iter().map(|dim| self.size(dim)).collect();
        let unit = f64::from(-range.fraction).exp2();
        let steps = ((range.high - range.low) / unit) as usize + 1;
        let numbers = &mut self.numbers;
        let elements: Vec<f64> =
            (0..shape.iter().product()).map(|_| range.low + unit * numbers.below(steps) as f64).collect();
        self.operand(dtype, dims, range, &elements)
    }

    /// A new operand with these elements.
    pub fn operand(&mut self, dtype: DType, dims: &[Dim], range: Range, elements: &[f64]) -> Option<Value> {
        let shape: Vec<usize> = dims.iter().map(|dim| self.size(dim)).collect();
        let name = format!("x{}", self.parameters.len());
        self.parameters.push(format!("{name}: {}{}", dtype.name(), written(dims)));
        self.operands.push(Operand::Tensor(tensor(concrete(dtype, self.family), &shape, elements)));
        let value = Value { name, dtype, dims: dims.to_vec(), range, read: false, parameter: true };
        self.pool.push(value.clone());
        Some(value)
    }

    /// Positions of `rows` rows of `tokens` tokens, consecutive, within `length`.
    pub fn positions(&mut self, rows: &Dim, tokens: &Dim, length: usize) -> Option<Value> {
        let (count, width) = (self.size(rows), self.size(tokens));
        let most = length.checked_sub(width)?;
        let mut elements = Vec::new();
        for _ in 0..count {
            let first = self.numbers.below(most + 1);
            elements.extend((first..first + width).map(|at| at as f64));
        }
        let range = Range::of(0.0, length.saturating_sub(1) as f64);
        self.operand(DType::I32, &[rows.clone(), tokens.clone()], range, &elements)
    }

    /// A matrix of multiples of 1/8 within -2..2, dense or packed; its name.
    pub fn matrix(&mut self, dims: &[Dim], packed: Option<(usize, usize)>) -> Option<String> {
        if !self.small(dims) {
            return None;
        }
        let shape: Vec<usize> = dims.iter().map(|dim| self.size(dim)).collect();
        let name = format!("x{}", self.parameters.len());
        self.parameters.push(format!("{name}: Q{}", written(dims)));
        self.operands.push(Operand::Matrix(matrix(&shape, self.family, packed, &mut self.numbers)));
        Some(name)
    }

    /// A number of the load stage.
    pub fn integer(&mut self, value: i64) -> String {
        let name = format!("x{}", self.parameters.len());
        self.parameters.push(format!("{name}: int"));
        self.operands.push(Operand::Load(Val::Int(value)));
        name
    }

    /// A value computed by `text` from others. `None`, and nothing written, where its numbers do not fit its dtype or it is too
    /// large.
    pub fn emit(&mut self, text: &str, dtype: DType, dims: &[Dim], range: Range, reads: &[&Value]) -> Option<Value> {
        self.written("", text, dtype, dims, range, reads)
    }

    /// The same behind statements of its own, in which `{v}` is the value's name.
    pub fn written(
        &mut self,
        before: &str,
        text: &str,
        dtype: DType,
        dims: &[Dim],
        range: Range,
        reads: &[&Value],
    ) -> Option<Value> {
        if !self.holds(dtype, range) || !self.small(dims) {
            return None;
        }
        let name = format!("v{}", self.statements.len());
        let before = before.replace("{v}", &name);
        let text = text.replace("{v}", &name);
        self.statements.push(if text.is_empty() { before } else { format!("{before}let {name} = {text};") });
        for read in reads {
            self.reads(&read.name);
        }
        let value = Value { name, dtype, dims: dims.to_vec(), range, read: false, parameter: false };
        self.pool.push(value.clone());
        Some(value)
    }

    pub fn reads(&mut self, name: &str) {
        self.pool.iter_mut().filter(|value| value.name == name).for_each(|value| value.read = true);
    }

    /// Whatever nobody reads is a result.
    fn finish(self, name: &str) -> Graph {
        let unread: Vec<&Value> = self.pool.iter().filter(|value| !value.read).collect();
        let computed: Vec<&Value> = unread.iter().copied().filter(|value| !value.parameter).collect();
        let results = if computed.is_empty() { unread } else { computed };
        let ty = |value: &&Value| format!("{}{}", value.dtype.name(), written(&value.dims));
        let types: Vec<String> = results.iter().map(ty).collect();
        let names: Vec<&str> = results.iter().map(|value| value.name.as_str()).collect();
        let (types, names) = match names.as_slice() {
            [one] => (types[0].clone(), (*one).to_owned()),
            _ => (format!("({})", types.join(", ")), format!("({})", names.join(", "))),
        };
        let statements: String = self.statements.iter().map(|s| format!("    {s}\n")).collect();
        let parameters = self.parameters.join(", ");
        let text = format!("op {name}({parameters}) -> {types} {{\n{statements}    {names}\n}}\n");
        Graph { name: name.into(), text, family: self.family, operands: self.operands }
    }
}
