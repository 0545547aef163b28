//! What a graph computes, as terms over its leaves: equal terms are one, and the few ways in which MLX writes a primitive differently are
//! brought to one form. The listing of two graphs is equal exactly where the terms of their ends are.
//!
//! [`EQUIVALENCES`] has every rewrite with its reason; [`Terms::add`] applies them to both sides alike.

use std::collections::HashMap;

use mgraph_runtime::hlo::DType;

/// Name and reason of each rewrite. None changes a bit of any result.
pub const EQUIVALENCES: [(&str, &str); 11] = [
    (
        "broadcast in elementwise ops",
        "an elementwise op repeats what is smaller, whether a broadcast stands before it or not",
    ),
    ("broadcast twice", "the second alone makes the same array"),
    ("reshape of reshape, and to the same shape", "a reshape moves no element, so the last shape alone counts"),
    ("slice of everything, transpose that moves nothing, concat of one", "the result is the operand"),
    (
        "a product with a matrix sees rows",
        "MLX flattens the leading axes of `x` before a product with a matrix and puts them back after it",
    ),
    (
        "matmul with a transposed operand is dot",
        "MLX has one product; which axis of the second operand is summed is told by a transpose",
    ),
    (
        "a product of cuts of a matrix, joined, is the product",
        "large products are cut into ranges of rows for several cores; no sum is cut",
    ),
    ("a reduction over axes of size 1", "a sum, maximum or any of one element is the element, and MLX leaves it out"),
    ("take_along of top_k_indices is top_k_values", "MLX takes the values where the indices say"),
    ("argsort of the negated operand, cut, is top_k_indices", "MLX's argsort is stable and ascends"),
    ("gather and its transpose are take", "MLX gathers slices of length 1 and puts their axis where it was"),
];

/// Index into [`Terms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(usize);

#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    pub name: String,
    pub numbers: Vec<f64>,
    pub operands: Vec<Id>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// Inputs, weights, states and constants stand where they are used instead of in a line.
    pub leaf: bool,
}

/// Where a graph ends: results in their order, states and probes by name.
#[derive(Debug, Default)]
pub struct Ends {
    pub results: Vec<Id>,
    pub states: Vec<(String, Id)>,
    pub probes: Vec<(String, Id)>,
}

#[derive(Debug, Default)]
pub struct Terms {
    all: Vec<Term>,
    known: HashMap<String, Id>,
}

impl Terms {
    pub fn get(&self, id: Id) -> &Term {
        &self.all[id.0]
    }

    pub fn shape(&self, id: Id) -> &[usize] {
        &self.get(id).shape
    }

    /// The term, where it is of that name.
    pub fn named(&self, id: Id, name: &str) -> Option<&Term> {
        Some(self.get(id)).filter(|term| term.name == name)
    }

    pub fn leaf(&mut self, name: String, dtype: DType, shape: &[usize]) -> Id {
        let (numbers, operands) = (Vec::new(), Vec::new());
        self.intern(Term { name, numbers, operands, dtype, shape: shape.to_vec(), leaf: true })
    }

    /// A constant, told by its elements, or by the one that they all are.
    pub fn constant(&mut self, elements: &[f64], dtype: DType) -> Id {
        let alike = elements.iter().all(|n| n.to_bits() == elements[0].to_bits());
        let elements = if alike { &elements[..elements.len().min(1)] } else { elements };
        self.leaf(format!("{elements:?}: {dtype:?}"), dtype, &[elements.len()])
    }

    /// A primitive of the language, as [`mgraph_runtime::hlo::readback::ReadOp`] names it.
    pub fn add(&mut self, name: &str, numbers: &[f64], operands: &[Id], dtype: DType, shape: &[usize]) -> Id {
        let mut operands = operands.to_vec();
        if !keeps_broadcasts(name) {
            operands.iter_mut().for_each(|operand| *operand = self.unbroadcast(*operand));
        }
        let plain = |operands: &[Id]| Term {
            name: name.to_owned(),
            numbers: numbers.to_vec(),
            operands: operands.to_vec(),
            dtype,
            shape: shape.to_vec(),
            leaf: false,
        };
        let first = operands.first().copied();
        match (name, first) {
            ("broadcast", Some(x)) => {
                let x = self.unbroadcast(x);
                if self.shape(x) == shape { x } else { self.intern(plain(&[x])) }
            }
            ("reshape", Some(x)) => {
                let x = self.named(x, "reshape").map_or(x, |inner| inner.operands[0]);
                if self.shape(x) == shape { x } else { self.intern(plain(&[x])) }
            }
            ("slice" | "transpose" | "concat" | "convert", Some(x)) if self.changes_nothing(x, &plain(&operands)) => x,
            ("sum" | "maximum" | "any", Some(x)) if numbers.iter().all(|axis| self.shape(x)[*axis as usize] == 1) => x,
            ("concat", Some(_)) => match self.product_of_cuts(&operands, numbers, shape) {
                Some((x, w)) => {
                    let flat = [self.shape(x)[0], shape[shape.len() - 1]];
                    let product = self.product("dot", x, w, dtype, &flat);
                    self.add("reshape", &[], &[product], dtype, shape)
                }
                None => self.intern(plain(&operands)),
            },
            ("take_along", Some(x)) if self.named(operands[1], "top_k_indices").is_some_and(|t| t.operands[0] == x) => {
                self.add("top_k_values", &[], &[x], dtype, shape)
            }
            ("dot" | "matmul", Some(x)) => self.product(name, x, operands[1], dtype, shape),
            _ => self.intern(plain(&operands)),
        }
    }

    /// A product with its second operand: rows of the first alone where that is a matrix, and `dot` where it was transposed for it.
    fn product(&mut self, name: &str, x: Id, w: Id, dtype: DType, shape: &[usize]) -> Id {
        let rank = self.shape(w).len();
        let last_two_swapped: Vec<f64> =
            (0..rank).map(|i| if i + 2 < rank { i } else { 2 * rank - 3 - i } as f64).collect();
        let swapped = self.named(w, "transpose").filter(|t| t.numbers == last_two_swapped).map(|t| t.operands[0]);
        let (name, w) = match (name, swapped) {
            ("matmul", Some(w)) => ("dot", w),
            _ => (name, w),
        };
        let term = |operands: &[Id], shape: &[usize]| Term {
            name: name.to_owned(),
            numbers: Vec::new(),
            operands: operands.to_vec(),
            dtype,
            shape: shape.to_vec(),
            leaf: false,
        };
        let x_shape = self.shape(x).to_vec();
        if rank != 2 || x_shape.len() <= 2 {
            return self.intern(term(&[x, w], shape));
        }
        let rows: usize = x_shape[..x_shape.len() - 1].iter().product();
        let x_dtype = self.get(x).dtype;
        let x = self.add("reshape", &[], &[x], x_dtype, &[rows, x_shape[x_shape.len() - 1]]);
        let flat = self.intern(term(&[x, w], &[rows, shape[shape.len() - 1]]));
        self.add("reshape", &[], &[flat], dtype, shape)
    }

    /// `x` and `w` where the parts are `dot(x, w[a..b])`, the ranges without a gap from the first row to the last.
    fn product_of_cuts(&self, parts: &[Id], axis: &[f64], shape: &[usize]) -> Option<(Id, Id)> {
        if axis != [shape.len() as f64 - 1.0] {
            return None;
        }
        let mut whole: Option<(Id, Id)> = None;
        let mut next = 0.0;
        for part in parts {
            let dot = self.named(*part, "reshape").map_or(*part, |reshape| reshape.operands[0]);
            let dot = self.named(dot, "dot")?;
            let cut = self.named(dot.operands[1], "slice")?;
            let (x, w) = (dot.operands[0], cut.operands[0]);
            let [from, to, 0.0, columns] = cut.numbers[..] else { return None };
            if from != next || columns != *self.shape(w).last()? as f64 || whole.is_some_and(|known| known != (x, w)) {
                return None;
            }
            next = to;
            whole = Some((x, w));
        }
        let (x, w) = whole?;
        (next == self.shape(w)[0] as f64).then_some((x, w))
    }

    fn changes_nothing(&self, x: Id, term: &Term) -> bool {
        let from = self.get(x);
        match term.name.as_str() {
            "slice" => from.shape == term.shape,
            "transpose" => term.numbers.iter().enumerate().all(|(at, axis)| at as f64 == *axis),
            "concat" => term.operands.len() == 1,
            "convert" => from.dtype == term.dtype && from.shape == term.shape,
            _ => false,
        }
    }

    fn unbroadcast(&self, id: Id) -> Id {
        self.named(id, "broadcast").map_or(id, |broadcast| broadcast.operands[0])
    }

    fn intern(&mut self, term: Term) -> Id {
        // Printed floats round-trip, and tell -0.0 from 0.0.
        let key = format!("{term:?}");
        let next = Id(self.all.len());
        let id = *self.known.entry(key).or_insert(next);
        if id == next {
            self.all.push(term);
        }
        id
    }

    /// One line per term that the ends need, operands first, then the ends.
    pub fn listing(&self, ends: &Ends) -> Vec<String> {
        let mut listing = Listing { terms: self, lines: Vec::new(), names: HashMap::new() };
        let mut last = Vec::new();
        for (at, id) in ends.results.iter().enumerate() {
            last.push(format!("result {at} = {}", listing.name(*id)));
        }
        for (what, named) in [("state", &ends.states), ("probe", &ends.probes)] {
            let mut named: Vec<&(String, Id)> = named.iter().collect();
            named.sort();
            // A state that holds what it held was not written.
            for (name, id) in named.into_iter().filter(|(name, id)| self.get(*id).name != format!("state {name}")) {
                last.push(format!("{what} {name} = {}", listing.name(*id)));
            }
        }
        listing.lines.extend(last);
        listing.lines
    }
}

struct Listing<'a> {
    terms: &'a Terms,
    lines: Vec<String>,
    names: HashMap<Id, String>,
}

impl Listing<'_> {
    fn name(&mut self, root: Id) -> String {
        let mut path = vec![root];
        while let Some(&id) = path.last() {
            let term = self.terms.get(id);
            let missing: Vec<Id> =
                term.operands.iter().rev().filter(|o| !self.names.contains_key(o)).copied().collect();
            if !missing.is_empty() {
                path.extend(missing);
                continue;
            }
            path.pop();
            if self.names.contains_key(&id) {
                continue;
            }
            let name = if term.leaf { term.name.clone() } else { format!("%{}", self.lines.len()) };
            if !term.leaf {
                let operands: Vec<&str> = term.operands.iter().map(|o| self.names[o].as_str()).collect();
                let numbers = if term.numbers.is_empty() { String::new() } else { format!("{:?}", term.numbers) };
                let (dtype, shape) = (term.dtype, &term.shape);
                self.lines.push(format!(
                    "{name} = {}{numbers}({}): {dtype:?}{shape:?}",
                    term.name,
                    operands.join(", ")
                ));
            }
            self.names.insert(id, name);
        }
        self.names[&root].clone()
    }
}

/// Ops whose result depends on where a broadcast stands, or on the size it gives.
fn keeps_broadcasts(name: &str) -> bool {
    matches!(
        name,
        "broadcast"
            | "reshape"
            | "transpose"
            | "slice"
            | "concat"
            | "sum"
            | "maximum"
            | "any"
            | "take"
            | "update"
            | "argsort"
    ) || name.contains("::")
        || ["softmax", "dequantize", "quantized_matmul", "gather_qmm", "gather_mm", "gather", "top_k_indices"]
            .contains(&name)
}
