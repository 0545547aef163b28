//! The terms of a graph as MLX executes it: each of its primitives recognised by name, attributes and operands. What is not
//! recognised is an error.

use mgraph_dsl::{ir, trace::WeightPart};
use mgraph_runtime::{
    error::{Context, Result, bail, ensure},
    family::MlxLoader,
    hlo::DType,
    mlx::{
        readback::{Graph, Node, Part, What},
        record::{Call, record},
    },
    tensor::Tensor,
};

use super::{
    Case, Input, concrete,
    terms::{Ends, Id, Terms},
    weight,
};

/// Inputs that tell themselves apart where the host reads them: row `b` of the integers of input `i` begins at `i + 13 b`, and each place
/// after it is one more, so each could be positions.
pub fn values(inputs: &[Input], float: ir::DType) -> Vec<(&str, Tensor)> {
    let values = inputs.iter().enumerate().map(|(at, input)| {
        let dtype = concrete(input.dtype, float);
        let count: usize = input.shape.iter().product();
        let columns = input.shape.last().copied().unwrap_or(1).max(1);
        let tensor = match dtype {
            DType::I32 => {
                let place = |n: usize| (at + n / columns * 13 + n % columns) as i32;
                Tensor::from_i32(&input.shape, &(0..count).map(place).collect::<Vec<_>>())
            }
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::U32 | DType::U8 | DType::Bool => {
                Tensor { dtype, shape: input.shape.clone(), bytes: vec![0; count * dtype.size()] }
            }
        };
        (input.name.as_str(), tensor)
    });
    values.collect()
}

pub fn terms(case: &Case<'_>, inputs: &[Input], loader: MlxLoader, terms: &mut Terms) -> Result<Ends> {
    let values = values(inputs, case.float);
    let [rows, _, _, positions] = case.sizes;
    let graph = record(&Call {
        loader,
        resolved: case.resolved,
        bindings: case.bindings,
        graph: case.graph,
        inputs: &values,
        rows,
        positions,
        float: concrete(case.float, case.float),
        fused: case.fused,
    })?;
    read(&graph, &values, terms)
}

fn read(graph: &Graph, inputs: &[(&str, Tensor)], terms: &mut Terms) -> Result<Ends> {
    let mut reader = Reader { inputs, terms, known: Vec::new(), writes: Vec::new() };
    for (at, node) in graph.nodes.iter().enumerate() {
        let id = reader.node(node).with_context(|| format!("node {at} of MLX's graph, {:?}", node.what))?;
        reader.known.push(id);
    }
    let known = &reader.known;
    let named = |all: &[(String, mgraph_runtime::mlx::readback::NodeId)]| {
        all.iter().map(|(name, id)| (name.clone(), known[id.0])).collect()
    };
    Ok(Ends {
        results: graph.results.iter().map(|id| known[id.0]).collect(),
        states: named(&graph.states),
        probes: named(&graph.probes),
    })
}

/// The writes of some rows of an `update` that is not ended.
struct Written {
    /// What MLX names it by.
    last: Id,
    old: Id,
    x: Id,
    axis: usize,
    starts: Vec<i32>,
}

struct Reader<'a> {
    inputs: &'a [(&'a str, Tensor)],
    terms: &'a mut Terms,
    known: Vec<Id>,
    writes: Vec<Written>,
}

impl Reader<'_> {
    fn node(&mut self, node: &Node) -> Result<Id> {
        let operands: Vec<Id> = node.operands.iter().map(|id| self.known[id.0]).collect();
        let (dtype, shape) = (node.dtype, node.shape.as_slice());
        Ok(match &node.what {
            What::Input(name) => self.terms.leaf(format!("input {name}"), dtype, shape),
            What::State(path) => self.terms.leaf(format!("state {path}"), dtype, shape),
            What::Weight { path, part } => {
                let part = match part {
                    Part::Dense => WeightPart::Dense,
                    Part::Codes => WeightPart::Codes,
                    Part::Scales => WeightPart::Scales,
                    Part::Biases => WeightPart::Biases,
                };
                self.terms.leaf(weight(path, part), dtype, shape)
            }
            What::Constant(elements) => self.terms.constant(elements, dtype),
            What::Kernel { path, numbers } => self.terms.add(path, numbers, &operands, dtype, shape),
            What::Primitive { name, numbers } => self.primitive(name, numbers, &operands, dtype, shape)?,
        })
    }

    fn primitive(&mut self, name: &str, numbers: &[f64], operands: &[Id], dtype: DType, shape: &[usize]) -> Result<Id> {
        let rank = shape.len();
        let own = match name {
            "Broadcast" | "BroadcastAxes" => "broadcast",
            "Reshape" | "Flatten" | "Unflatten" | "ExpandDims" => "reshape",
            "Squeeze" => return self.squeeze(operands[0], dtype, shape),
            "Transpose" => "transpose",
            "Concatenate" => "concat",
            "Matmul" => "matmul",
            "AsType" => return self.convert(operands[0], dtype, shape),
            "Arange" => {
                ensure!(numbers == [0.0, shape[0] as f64, 1.0], "an iota over {numbers:?}");
                return Ok(self.terms.add("iota", &[], &[], dtype, shape));
            }
            "Slice" => {
                let (starts, rest) = numbers.split_at(rank);
                let (ends, strides) = rest.split_at(rank);
                ensure!(strides.iter().all(|s| *s == 1.0), "a slice with strides");
                let ranges: Vec<f64> = starts.iter().zip(ends).flat_map(|(s, e)| [*s, *e]).collect();
                return Ok(self.terms.add("slice", &ranges, operands, dtype, shape));
            }
            "SliceUpdate" => return self.write(numbers, operands, dtype, shape),
            "Sum" => "sum",
            "Max" => "maximum",
            "Or" => "any",
            "ArgSort" => {
                let last = rank as f64 - 1.0;
                ensure!(numbers == [last] || numbers == [-1.0], "an argsort along axis {numbers:?}");
                return Ok(self.terms.add("argsort", &[], operands, dtype, shape));
            }
            "Gather" => "gather",
            "GatherAxis" => "take_along",
            "Select" => "select",
            "View" => return self.bytes(operands[0], dtype, shape),
            other if other.starts_with("View") => return self.bytes(operands[0], dtype, shape),
            other => elementwise(other)?,
        };
        if name == "Gather" {
            let (axes, sizes) = numbers.split_at(1);
            let from = self.terms.shape(operands[0]).to_vec();
            let one = |(at, size): (usize, &f64)| *size == if at as f64 == axes[0] { 1.0 } else { from[at] as f64 };
            ensure!(operands.len() == 2 && sizes.len() == from.len(), "a gather along several axes");
            ensure!(sizes.iter().enumerate().all(one), "a gather of slices that are no elements of an axis");
            return Ok(self.terms.add(own, axes, operands, dtype, shape));
        }
        Ok(self.terms.add(own, numbers, operands, dtype, shape))
    }

    /// Where it ends a gather along an axis, that is a `take`.
    fn squeeze(&mut self, x: Id, dtype: DType, shape: &[usize]) -> Result<Id> {
        let (moved, gather) = match self.terms.named(x, "transpose") {
            Some(transpose) => (Some(transpose.numbers.clone()), transpose.operands[0]),
            None => (None, x),
        };
        let Some(gather) = self.terms.named(gather, "gather") else {
            return Ok(self.terms.add("reshape", &[], &[x], dtype, shape));
        };
        let (axis, operands) = (gather.numbers[0], gather.operands.clone());
        let (at, from) = (axis as usize, self.terms.shape(operands[0]));
        // Not of the ids themselves: where they are all one number, their term is that number.
        let all = gather.shape.len();
        let ids = &gather.shape[..all - from.len()];
        let expected: Vec<f64> =
            (0..at).map(|i| ids.len() + i).chain(0..ids.len()).chain(ids.len() + at..all).map(|i| i as f64).collect();
        let still = expected.iter().enumerate().all(|(i, axis)| i as f64 == *axis);
        ensure!(moved.as_ref().map_or(still, |moved| *moved == expected), "a gather whose axes are put elsewhere");
        let taken = [&from[..at], ids, &from[at + 1..]].concat();
        ensure!(taken == shape, "a gather that ends in {shape:?} instead of {taken:?}");
        Ok(self.terms.add("take", &[axis], &operands, dtype, shape))
    }

    /// Where it ends an argsort of the negated operand, that is `top_k_indices`.
    fn convert(&mut self, x: Id, dtype: DType, shape: &[usize]) -> Result<Id> {
        let (cut, sort) = match self.terms.named(x, "slice") {
            Some(slice) => (Some(slice.numbers.clone()), slice.operands[0]),
            None => (None, x),
        };
        let Some(sort) = self.terms.named(sort, "argsort") else {
            return Ok(self.terms.add("convert", &[], &[x], dtype, shape));
        };
        let whole: Vec<f64> = shape.iter().flat_map(|size| [0.0, *size as f64]).collect();
        ensure!(cut.is_none_or(|cut| cut == whole), "a cut of an argsort that is not its first places");
        let negated = self.terms.named(sort.operands[0], "negate").context("an argsort of what is not negated")?;
        let x = negated.operands[0];
        Ok(self.terms.add("top_k_indices", &[], &[x], dtype, shape))
    }

    /// The bytes of codes; bytes of rows are rows of bytes.
    fn bytes(&mut self, x: Id, dtype: DType, shape: &[usize]) -> Result<Id> {
        ensure!(dtype == DType::U8, "a view as {dtype:?}");
        let codes = self.terms.get(x).clone();
        let leaf = codes.name.strip_suffix(" Codes").map(|weight| format!("{weight} Bytes"));
        if let Some(name) = leaf.filter(|_| codes.leaf) {
            return Ok(self.terms.leaf(name, dtype, shape));
        }
        ensure!(codes.name == "take" && codes.numbers == [0.0], "a view of {}", codes.name);
        let mut all = self.terms.shape(codes.operands[0]).to_vec();
        *all.last_mut().context("codes without axes")? *= 4;
        let bytes = self.bytes(codes.operands[0], dtype, &all)?;
        Ok(self.terms.add("take", &[0.0], &[bytes, codes.operands[1]], dtype, shape))
    }

    /// One write of all rows, or one for each row in turn: `update`, at positions that are an input's values.
    fn write(&mut self, numbers: &[f64], operands: &[Id], dtype: DType, shape: &[usize]) -> Result<Id> {
        let rank = shape.len();
        let (starts, ends) = (&numbers[..rank], &numbers[rank..2 * rank]);
        ensure!(numbers[2 * rank..].iter().all(|s| *s == 1.0), "a write with strides");
        let (old, part) = (operands[0], operands[1]);
        let axes: Vec<usize> = (1..rank).filter(|i| starts[*i] != 0.0 || ends[*i] != shape[*i] as f64).collect();
        let [axis] = axes[..] else { bail!("a write of a range of {} axes", axes.len()) };
        let (low, high) = (starts[0] as usize, ends[0] as usize);
        let start = starts[axis] as i32;
        let rows = shape[0];
        if (low, high) == (0, rows) {
            return self.update(old, part, axis, &vec![start; rows], dtype, shape);
        }
        ensure!(high == low + 1, "a write of {} of {rows} rows", high - low);
        let take = self.terms.named(part, "take").filter(|t| t.numbers == [0.0]).context("a row that is not taken")?;
        let (x, row) = (take.operands[0], take.operands[1]);
        ensure!(self.terms.get(row).name == format!("[{:?}]: I32", low as f64), "row {low} gets another row");
        let mut written = match low {
            0 => Written { last: old, old, x, axis, starts: Vec::new() },
            _ => {
                let before =
                    self.writes.iter().position(|w| w.last == old).context("a row that nothing wrote before")?;
                self.writes.swap_remove(before)
            }
        };
        ensure!(written.starts.len() == low && written.x == x && written.axis == axis, "rows of different writes");
        written.starts.push(start);
        if high == rows {
            return self.update(written.old, x, axis, &written.starts, dtype, shape);
        }
        let name = format!("rows {:?} of {x:?} at axis {axis}", written.starts);
        let last = self.terms.add(&name, &[], &[old, x], dtype, shape);
        self.writes.push(Written { last, ..written });
        Ok(last)
    }

    fn update(&mut self, old: Id, x: Id, axis: usize, starts: &[i32], dtype: DType, shape: &[usize]) -> Result<Id> {
        let width = self.terms.shape(x)[axis];
        let mut expected = Vec::new();
        for start in starts {
            expected.extend((0..width).map(|i| f64::from(*start + i as i32)));
        }
        let of = |(_, value): &&(&str, Tensor)| value.dtype == DType::I32 && value.to_f64() == expected;
        let found: Vec<&(&str, Tensor)> = self.inputs.iter().filter(of).collect();
        let [(name, positions)] = found[..] else {
            bail!("writes at {starts:?}, which are the positions of {} inputs", found.len());
        };
        let positions = self.terms.leaf(format!("input {name}"), positions.dtype, &positions.shape);
        Ok(self.terms.add("update", &[axis as f64], &[old, x, positions], dtype, shape))
    }
}

fn elementwise(name: &str) -> Result<&'static str> {
    Ok(match name {
        "Negative" => "negate",
        "Abs" => "abs",
        "Exp" => "exp",
        "Log" => "log",
        "Sqrt" => "sqrt",
        "Rsqrt" => "rsqrt",
        "Tanh" => "tanh",
        "Sin" => "sin",
        "Cos" => "cos",
        "Sigmoid" => "sigmoid",
        "Erf" => "erf",
        "LogicalNot" | "BitwiseInvert" => "not",
        "Add" => "add",
        "Subtract" => "subtract",
        "Multiply" => "multiply",
        "Divide" => "divide",
        "Remainder" => "remainder",
        "Minimum" => "min",
        "Maximum" => "max",
        "LogicalAnd" | "BitwiseAnd" => "and",
        "LogicalOr" | "BitwiseOr" => "or",
        "LeftShift" => "shift_left",
        "RightShift" => "shift_right",
        "Equal" => "equal",
        "NotEqual" => "not_equal",
        "Less" => "less",
        "LessEqual" => "less_equal",
        "Greater" => "greater",
        "GreaterEqual" => "greater_equal",
        other => bail!("MLX's {other} is no op of ours"),
    })
}
