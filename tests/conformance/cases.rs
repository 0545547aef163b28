//! Calls of the rows' ops: every dtype, awkward sizes, sizes 1 and 0, edge values.

use std::fmt::Write;

use mgraph_dsl::{
    compile_whole_prelude,
    interpret::{Matrix, Operand, Precision, Store, Tensor, Typed, run_op},
    ir::{DType, Program},
    prelude_sources,
};

use super::{
    judge::{Meant, flushed},
    numbers::{Draw, Numbers, any, drawn, edges, is_float, matrix, tensor},
    row::{Executor, Of, Row},
    types::{Parameter, Sizes, family, named, names, parameters, size, with},
};

/// Everything before the ops of a family that is made of ops.
pub const FAMILY: &str = "family toy for \"toy\"\n\
    model {\n\
    \x20   table: Embedding(2, 2)\n\
    \x20   graph embed(tokens: i32[B, S]) -> F[B, S, 2] { table(tokens) }\n\
    \x20   graph forward(x: F[B, S, 2], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, 2] { rows_at(x, wanted) }\n\
    }\n";

pub struct Call {
    pub row: usize,
    /// The op of the program, and the one that gives the sum of absolute terms.
    pub op: String,
    pub scale: Option<String>,
    /// Of `D`, and of `F`.
    pub dtype: DType,
    pub family: DType,
    /// Of the result.
    pub gives: DType,
    /// Sizes, for messages.
    pub shown: String,
    pub edges: bool,
    pub operands: Vec<Operand<Tensor>>,
}

pub struct Suite {
    pub executor: Executor,
    pub rows: Vec<Row>,
    pub calls: Vec<Call>,
    pub program: Program,
}

pub fn compiled(text: &str) -> Result<Program, String> {
    let mut sources = prelude_sources();
    let family = sources.add("conformance.mgraph", format!("{FAMILY}{text}"));
    compile_whole_prelude(sources, family).map_err(|failed| failed.to_string())
}

/// The op of a row in one dtype.
pub fn text(name: &str, takes: &str, gives: &str, body: &str, dtype: DType) -> String {
    let (takes, gives, body) = (with(takes, dtype), with(gives, dtype), with(body, dtype));
    format!("op {name}({takes}) -> {gives} {{ {body} }}\n")
}

/// All parameters of an elementwise row on one axis.
fn flat(signature: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in signature.chars() {
        match c {
            '[' => {
                out.push_str("[N]");
                inside = true;
            }
            ']' => inside = false,
            _ if inside => {}
            c => out.push(c),
        }
    }
    out
}

impl Suite {
    pub fn new(executor: Executor, rows: Vec<Row>) -> Suite {
        let (mut source, mut calls) = (String::new(), Vec::new());
        for (at, row) in rows.iter().enumerate() {
            for (i, dtype) in row.dtypes.iter().enumerate() {
                let name = format!("row{at}_{}", dtype.name());
                let layouts: &[bool] = if row.elementwise { &[false, true] } else { &[false] };
                for edge in layouts {
                    let name = if *edge { format!("{name}_edges") } else { name.clone() };
                    let shaped = |signature: &str| if *edge { flat(signature) } else { signature.to_owned() };
                    let (takes, gives) = (shaped(row.takes), shaped(row.gives));
                    source += &text(&name, &takes, &gives, row.body, *dtype);
                    let scale = match row.within.of(executor) {
                        Of::Exact | Of::Number | Of::Ulp | Of::Largest => None,
                        Of::Sum => Some(name.clone()),
                        Of::Text(body) => {
                            let scale = format!("{name}_scale");
                            source += &text(&scale, &takes, &gives, body, *dtype);
                            Some(scale)
                        }
                    };
                    let gives = with(&gives, *dtype);
                    let family = family(row.takes, *dtype);
                    let call = |shown: String, operands| Call {
                        row: at,
                        op: name.clone(),
                        scale: scale.clone(),
                        dtype: *dtype,
                        family,
                        gives: match gives.split('[').next().unwrap_or_default() {
                            "F" => family,
                            word => named(word),
                        },
                        shown,
                        edges: *edge,
                        operands,
                    };
                    let parameters = parameters(&with(&takes, *dtype), family);
                    if *edge {
                        let operands = edge_operands(row, *dtype, &parameters);
                        calls.push(call("edges".into(), operands));
                        continue;
                    }
                    for sizes in sizes(row, &parameters, i == 0) {
                        for packed in packings(row, &parameters, &sizes) {
                            let mut shown = String::new();
                            for (name, size) in &sizes {
                                let _ = write!(shown, "{name} = {size} ");
                            }
                            if let Some((bits, group)) = packed {
                                let _ = write!(shown, "bits = {bits} group = {group}");
                            }
                            let mut numbers = Numbers::new(&format!("{name} {shown}"));
                            let operands = parameters.iter().map(|p| {
                                let shape: Vec<usize> = p.dims.iter().map(|dim| size(dim, &sizes)).collect();
                                match p.dtype {
                                    Some(of) => {
                                        Operand::Tensor(drawn(row.draw(&p.name), of, &shape, &sizes, &mut numbers))
                                    }
                                    None => Operand::Matrix(matrix(&shape, *dtype, packed, &mut numbers)),
                                }
                            });
                            let operands = operands.collect();
                            calls.push(call(shown.trim_end().into(), operands));
                        }
                    }
                }
            }
        }
        let program = compiled(&source).unwrap_or_else(|failed| panic!("{failed}"));
        Suite { executor, rows, calls, program }
    }

    fn run(
        &self,
        call: &Call,
        op: &str,
        operands: Vec<Operand<Tensor>>,
        precision: Precision,
    ) -> Result<Tensor, String> {
        let found = run_op(&self.program, op, operands, call.family, precision, None);
        let mut found = found.map_err(|fault| fault.to_string())?;
        if found.len() == 1 { Ok(found.remove(0)) } else { Err(format!("{} results", found.len())) }
    }

    /// As the interpreter runs it in the dtypes of the text.
    pub fn single(&self, call: &Call) -> Result<Tensor, String> {
        self.run(call, &call.op, call.operands.clone(), Precision::Single)
    }

    /// How far a result is from what the call means, by element. `strict`: from the f64 run alone.
    pub fn units(&self, call: &Call, found: &[f64], strict: bool) -> Result<Vec<f64>, String> {
        let row = &self.rows[call.row];
        let wide = self.run(call, &call.op, call.operands.clone(), Precision::Double)?;
        let mut runs = vec![wide.to_f64()];
        if !strict {
            runs.push(self.single(call)?.to_f64());
        }
        if !strict && !row.keeps {
            runs.push(flushed(&runs[1], call.gives));
            let zeros: Vec<_> = call.operands.iter().map(without_subnormals).collect();
            let single = self.run(call, &call.op, zeros, Precision::Single)?.to_f64();
            runs.push(flushed(&single, call.gives));
            runs.push(single);
        }
        let of = row.within.of(self.executor);
        let magnitudes = match of {
            Of::Sum => call.operands.iter().map(absolute).collect(),
            Of::Exact | Of::Number | Of::Ulp | Of::Largest | Of::Text(_) => call.operands.clone(),
        };
        let scale = call.scale.as_ref().map(|op| self.run(call, op, magnitudes, Precision::Double)).transpose()?;
        let scale = scale.map(|scale| scale.to_f64());
        if runs.iter().any(|run| run.len() != found.len()) {
            return Err(format!("{} elements where {} are meant", found.len(), wide.len()));
        }
        let narrowest = if is_float(call.dtype) { call.dtype } else { call.gives };
        let meant = Meant { dtype: call.gives, narrowest, runs: &runs, scale: scale.as_deref(), of, keeps: row.keeps };
        Ok(meant.units(found))
    }
}

/// The same operand with every float changed.
fn changed(operand: &Operand<Tensor>, change: impl Fn(f64, DType) -> f64) -> Operand<Tensor> {
    let each = |x: &Tensor| match is_float(x.dtype()) {
        true => {
            let elements: Vec<f64> = x.to_f64().into_iter().map(|e| change(e, x.dtype())).collect();
            tensor(x.dtype(), x.shape(), &elements)
        }
        false => x.clone(),
    };
    match operand {
        Operand::Tensor(x) => Operand::Tensor(each(x)),
        Operand::Matrix(m) => {
            let store = match &m.store {
                Store::Dense(x) => Store::Dense(each(x)),
                Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
                    codes: codes.clone(),
                    bytes: bytes.clone(),
                    scales: each(scales),
                    biases: each(biases),
                    bits: *bits,
                    group: *group,
                },
            };
            Operand::Matrix(Matrix { shape: m.shape.clone(), store, weight: m.weight })
        }
        Operand::List(items) => Operand::List(items.iter().map(each).collect()),
        Operand::Load(value) => Operand::Load(value.clone()),
    }
}

fn absolute(operand: &Operand<Tensor>) -> Operand<Tensor> {
    changed(operand, |x, _| x.abs())
}

fn without_subnormals(operand: &Operand<Tensor>) -> Operand<Tensor> {
    changed(operand, |x, dtype| flushed(&[x], dtype)[0])
}

/// Each edge value against each, and numbers of all sizes; without what the row leaves open.
fn edge_operands(row: &Row, dtype: DType, parameters: &[Parameter]) -> Vec<Operand<Tensor>> {
    const MORE: usize = 200;
    let of: Vec<DType> = parameters.iter().map(|p| p.dtype.expect("elementwise rows take no matrices")).collect();
    let mut points: Vec<Vec<f64>> = vec![Vec::new()];
    for dtype in &of {
        let edges = edges(*dtype);
        points = points.into_iter().flat_map(|point| edges.iter().map(move |x| [&point[..], &[*x]].concat())).collect();
    }
    // Three operands of edge values are too many: every so-many-th of them.
    let step = points.len().div_ceil(2000);
    points = points.into_iter().step_by(step).collect();
    let mut numbers = Numbers::new(&format!("edges {} {}", row.op, dtype.name()));
    points.extend((0..MORE).map(|_| of.iter().map(|dtype| any(*dtype, &mut numbers)).collect()));
    points.retain(|point| !row.open.iter().any(|open| (open.when)(of[0], point)));
    let column = |i: usize| points.iter().map(|point| point[i]).collect::<Vec<f64>>();
    (0..of.len()).map(|i| Operand::Tensor(tensor(of[i], &[points.len()], &column(i)))).collect()
}

/// The sizes of a row's calls: awkward ones; where `all`, each name that may be anything also as 0, and all as 1.
fn sizes(row: &Row, parameters: &[Parameter], all: bool) -> Vec<Sizes> {
    const AWKWARD: [usize; 6] = [3, 5, 2, 7, 4, 9];
    let names = names(parameters);
    let fixed = |name: &str| row.sizes.iter().find(|(n, _)| *n == name).map(|(_, sizes)| *sizes);
    let free: Vec<&String> = names.iter().filter(|name| fixed(name).is_none()).collect();
    let variants = row.sizes.iter().map(|(_, sizes)| sizes.len()).max().unwrap_or(1);
    let mut found: Vec<Sizes> = Vec::new();
    let mut add = |variant: usize, free_size: &dyn Fn(usize) -> usize| {
        let at = |name: &String| match fixed(name) {
            Some(sizes) => sizes[variant % sizes.len()],
            None => free_size(free.iter().position(|f| *f == name).expect("a free name")),
        };
        let sizes: Sizes = names.iter().map(|name| (name.clone(), at(name))).collect();
        if !found.contains(&sizes) {
            found.push(sizes);
        }
    };
    for variant in 0..if all { variants } else { 1 } {
        add(variant, &|i| AWKWARD[i % AWKWARD.len()]);
    }
    if all {
        add(0, &|_| 1);
        for zero in 0..free.len() {
            add(0, &|i| if i == zero { 0 } else { AWKWARD[i % AWKWARD.len()] });
        }
    }
    found
}

/// How the matrices of a row are stored: each width of codes that divides bytes and one that does not.
fn packings(row: &Row, parameters: &[Parameter], sizes: &Sizes) -> Vec<Option<(usize, usize)>> {
    let Some(matrix) = parameters.iter().find(|p| p.dtype.is_none()) else { return vec![None] };
    let columns = matrix.dims.last().map_or(0, |dim| size(dim, sizes));
    let draw = row.draw(&matrix.name);
    let fits =
        |(bits, group): &(usize, usize)| columns > 0 && columns % group == 0 && (draw != Draw::Bytes || 8 % bits == 0);
    let packed = [(4, 32), (3, 32), (8, 64), (2, 64)].into_iter().filter(fits).map(Some);
    let dense = !matches!(draw, Draw::Packed | Draw::Bytes);
    dense.then_some(None).into_iter().chain(packed).collect()
}
