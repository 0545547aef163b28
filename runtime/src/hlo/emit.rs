//! A finished graph as an MLIR module with one function, `main`. StableHLO ops are built as unregistered generic ops: their
//! dialect is not linked (MLIR checks nothing about them), and IREE's parser is the one that verifies.

use std::{collections::HashMap, fmt::Write};

use melior::{
    Context,
    dialect::{DialectHandle, func},
    ir::{
        Attribute, Block, BlockLike, Identifier, Location, Module, Region, RegionLike, Type as MlirType, Value,
        attribute::{StringAttribute, TypeAttribute},
        operation::{OperationBuilder, OperationLike, OperationPrintingFlags},
        r#type::FunctionType,
    },
};
use mgraph_dsl::ir::{Compare, Reduce};

use super::{
    fusion,
    graph::{Elementwise, Graph, Node, Op},
    in_place, pinned,
    types::{DType, Type, V},
};
use crate::error::{Context as _, Result, anyhow};

/// A context in which StableHLO can be written and read.
pub fn context() -> Context {
    let context = Context::new_with_threading(false);
    DialectHandle::func().load_dialect(&context);
    context.set_allow_unregistered_dialects(true);
    context
}

/// The module as text, every op in generic form.
pub fn text(graph: &Graph) -> Result<String> {
    let context = context();
    let module = module(&context, graph)?;
    let flags = OperationPrintingFlags::new().print_generic_operation_form().use_local_scope();
    Ok(module.as_operation().to_string_with_flags(flags)?)
}

/// One public function `main`: arguments and results as [`Graph`] lists them, states aliased.
pub fn module<'c>(context: &'c Context, graph: &Graph) -> Result<Module<'c>> {
    let mut emit = Emit {
        context,
        at: Location::unknown(context),
        fused: graph.fused,
        types: HashMap::new(),
        attributes: HashMap::new(),
    };
    let module = Module::new(emit.at);
    let inputs =
        graph.arguments.iter().map(|a| emit.ty(&a.ty)).collect::<Result<Vec<_>>>().context("an argument's type")?;
    let outputs = graph
        .results
        .iter()
        .map(|r| emit.ty(graph.ty(r.value)))
        .collect::<Result<Vec<_>>>()
        .context("a result's type")?;
    let block = Block::new(&inputs.iter().map(|ty| (*ty, emit.at)).collect::<Vec<_>>());
    emit.body(graph, &block)?;
    let region = Region::new();
    region.append_block(block);

    let aliases = (0..graph.arguments.len()).map(|at| match graph.alias(at) {
        Some(result) => format!("{{tf.aliasing_output = {result} : i32}}"),
        None => "{}".to_owned(),
    });
    let aliases = format!("[{}]", aliases.collect::<Vec<_>>().join(", "));
    let signature = TypeAttribute::new(FunctionType::new(context, &inputs, &outputs).into());
    let attributes = [(Identifier::new(context, "arg_attrs"), emit.attribute(&aliases)?)];
    let name = StringAttribute::new(context, "main");
    module.body().append_operation(func::func(context, name, signature, region, &attributes, emit.at));
    Ok(module)
}

/// What keeps the places of a sort apart from those of others, and a value from being fused with what reads it.
pub(super) const BARRIER: &str = "stablehlo.optimization_barrier";

pub(super) struct Emit<'c> {
    context: &'c Context,
    at: Location<'c>,
    pub(super) fused: bool,
    types: HashMap<Type, MlirType<'c>>,
    attributes: HashMap<String, Attribute<'c>>,
}

pub(super) type Attributes<'a> = &'a [(&'a str, String)];

impl<'c> Emit<'c> {
    fn ty(&mut self, ty: &Type) -> Result<MlirType<'c>> {
        if let Some(known) = self.types.get(ty) {
            return Ok(*known);
        }
        let text = ty.mlir();
        let parsed =
            MlirType::parse(self.context, &text).ok_or_else(|| anyhow!("MLIR does not know the type {text}"))?;
        self.types.insert(ty.clone(), parsed);
        Ok(parsed)
    }

    fn attribute(&mut self, text: &str) -> Result<Attribute<'c>> {
        if let Some(known) = self.attributes.get(text) {
            return Ok(*known);
        }
        let parsed = Attribute::parse(self.context, text).ok_or_else(|| {
            anyhow!("MLIR does not read the attribute {}", text.chars().take(200).collect::<String>())
        })?;
        self.attributes.insert(text.to_owned(), parsed);
        Ok(parsed)
    }

    /// Append one op; its results.
    pub(super) fn op<'a>(
        &mut self,
        block: &'a Block<'c>,
        name: &str,
        operands: &[Value<'c, '_>],
        results: &[Type],
        attributes: Attributes<'_>,
        region: Option<Region<'c>>,
    ) -> Result<Vec<Value<'c, 'a>>> {
        let results = results.iter().map(|ty| self.ty(ty)).collect::<Result<Vec<_>>>()?;
        let attributes = attributes
            .iter()
            .map(|(key, value)| Ok((Identifier::new(self.context, key), self.attribute(value)?)))
            .collect::<Result<Vec<_>>>()?;
        let op = OperationBuilder::new(name, self.at)
            .add_operands(operands)
            .add_results(&results)
            .add_attributes(&attributes)
            .add_regions_vec(region.into_iter().collect())
            .build()
            .with_context(|| format!("building {name}"))?;
        let op = block.append_operation(op);
        (0..results.len()).map(|at| Ok(op.result(at)?.into())).collect()
    }

    fn body<'a>(&mut self, graph: &Graph, block: &'a Block<'c>) -> Result<()> {
        let mut values: Vec<Value<'c, 'a>> = Vec::with_capacity(graph.nodes.len());
        // Values and indices of one `top_k` are two nodes and one sort.
        let mut tops: HashMap<V, (Value<'c, 'a>, Value<'c, 'a>)> = HashMap::new();
        let apart = fusion::kept_apart(graph).into_iter().zip(in_place::moved(graph));
        for (node, (apart, moved)) in graph.nodes.iter().zip(apart) {
            let operands: Vec<Value<'c, 'a>> = node.operands.iter().map(|v| values[v.index()]).collect();
            let value = match &node.op {
                Op::Argument(at) => block.argument(*at)?.into(),
                Op::TopKValues(k) | Op::TopKIndices(k) => {
                    let operand = node.operands[0];
                    let sorted = match tops.get(&operand) {
                        Some(sorted) => *sorted,
                        None => self.sort(block, operands[0], graph.ty(operand))?,
                    };
                    tops.insert(operand, sorted);
                    let part = if matches!(node.op, Op::TopKValues(_)) { sorted.0 } else { sorted.1 };
                    let mut ranges: Vec<(i64, i64)> = node.ty.shape.iter().map(|d| (0, *d)).collect();
                    if let Some(last) = ranges.last_mut() {
                        *last = (0, *k);
                    }
                    let results = std::slice::from_ref(&node.ty);
                    self.op(block, "stablehlo.slice", &[part], results, &slice(&ranges), None)?[0]
                }
                Op::Reduce(op, axes) => {
                    let from = graph.ty(node.operands[0]);
                    let scalar = Type::new(from.dtype, &[]);
                    let start = constant(&[neutral(*op, from.dtype)], &scalar);
                    let start = self.op(
                        block,
                        "stablehlo.constant",
                        &[],
                        std::slice::from_ref(&scalar),
                        &[("value", start)],
                        None,
                    )?[0];
                    let region = self.reducer(*op, &scalar)?;
                    let attributes = [("dimensions", list("i64", axes.iter()))];
                    let results = std::slice::from_ref(&node.ty);
                    self.op(block, "stablehlo.reduce", &[operands[0], start], results, &attributes, Some(region))?[0]
                }
                Op::Elementwise(op @ (Elementwise::Sine | Elementwise::Cosine)) if node.ty.dtype != DType::F64 => {
                    self.turn(block, *op, operands[0], &node.ty)?
                }
                Op::Elementwise(op) if !self.fused && pinned::is_guarded(*op, graph.ty(node.operands[0]), &node.ty) => {
                    self.rounded(block, *op, &operands, graph.ty(node.operands[0]).dtype, &node.ty)?
                }
                _ => {
                    let (name, attributes) = plain(graph, node);
                    self.op(block, name, &operands, std::slice::from_ref(&node.ty), &attributes, None)?[0]
                }
            };
            let value = match apart || moved {
                true => self.op(block, BARRIER, &[value], std::slice::from_ref(&node.ty), &[], None)?[0],
                false => value,
            };
            values.push(value);
        }
        let results: Vec<Value<'c, 'a>> = graph.results.iter().map(|r| values[r.value.index()]).collect();
        block.append_operation(func::r#return(&results, self.at));
        Ok(())
    }

    /// Values and places along the last axis, largest first. Ties are settled by the place, in words: IREE's `chlo.top_k`
    /// and its stable sort do not keep the order of equals (the test `largest` has the case).
    fn sort<'a>(
        &mut self,
        block: &'a Block<'c>,
        x: Value<'c, '_>,
        ty: &Type,
    ) -> Result<(Value<'c, 'a>, Value<'c, 'a>)> {
        let last = ty.rank().saturating_sub(1);
        let places = Type::new(DType::I32, &ty.shape);
        let at = [("iota_dimension", format!("{last} : i64"))];
        let iota = self.op(block, "stablehlo.iota", &[], std::slice::from_ref(&places), &at, None)?[0];
        // IREE makes one iota of all sorts of a shape and lets each permute it where it lies, so that the next one counts from what
        // the last one left: the next in the graph, or in the next call (the tests `two_of_one_shape` and `sorts_called_again`). So
        // places are counted from a zero that, for all the compiler sees, comes from what is sorted. What is sorted itself does not come
        // through the barrier: it would be permuted where it lies, though others read it.
        let none = Type::new(DType::I32, &[]);
        let zero = [("value", constant(&[0], &none))];
        let zero = self.op(block, "stablehlo.constant", &[], std::slice::from_ref(&none), &zero, None)?[0];
        let apart = self.op(block, BARRIER, &[x, zero], &[ty.clone(), none], &[], None)?;
        let everywhere = [("broadcast_dimensions", list::<i64>("i64", [].into_iter()))];
        let mut counted = |name: &str, operands: &[Value<'c, '_>], attributes: Attributes<'_>| {
            Ok::<_, crate::error::Error>(
                self.op(block, name, operands, std::slice::from_ref(&places), attributes, None)?[0],
            )
        };
        let from = counted("stablehlo.broadcast_in_dim", &[apart[1]], &everywhere)?;
        let iota = counted("stablehlo.add", &[iota, from], &[])?;

        let [value, place, truth] = [ty.dtype, DType::I32, DType::Bool].map(|dtype| Type::new(dtype, &[]));
        let kinds = [self.ty(&value)?, self.ty(&value)?, self.ty(&place)?, self.ty(&place)?];
        let inner = Block::new(&kinds.map(|kind| (kind, self.at)));
        let argument = |at| -> Result<Value<'c, '_>> { Ok(inner.argument(at)?.into()) };
        let (a, b, i, j) = (argument(0)?, argument(1)?, argument(2)?, argument(3)?);
        let mut one = |name: &str, operands: [Value<'c, '_>; 2], attributes: Attributes<'_>| {
            let results = std::slice::from_ref(&truth);
            Ok::<_, crate::error::Error>(self.op(&inner, name, &operands, results, attributes, None)?[0])
        };
        let by = |op| [("comparison_direction", format!("#stablehlo<comparison_direction {}>", direction(op)))];
        let larger = one("stablehlo.compare", [a, b], &by(Compare::Greater))?;
        let equal = one("stablehlo.compare", [a, b], &by(Compare::Equal))?;
        let earlier = one("stablehlo.compare", [i, j], &by(Compare::Less))?;
        let tie = one("stablehlo.and", [equal, earlier], &[])?;
        let first = one("stablehlo.or", [larger, tie], &[])?;
        self.op(&inner, "stablehlo.return", &[first], &[], &[], None)?;
        let region = Region::new();
        region.append_block(inner);
        let attributes = [("dimension", format!("{last} : i64")), ("is_stable", "true".to_owned())];
        let both = self.op(block, "stablehlo.sort", &[x, iota], &[ty.clone(), places], &attributes, Some(region))?;
        Ok((both[0], both[1]))
    }

    /// Sine or cosine. IREE's own keep only a few digits of the angle: the error is 7e-6 at 256 and 2e-4 at 8192, where
    /// rotary positions are. So the whole turns are taken off in f64 first, which leaves 2e-7 everywhere.
    fn turn<'a>(
        &mut self,
        block: &'a Block<'c>,
        op: Elementwise,
        angle: Value<'c, '_>,
        ty: &Type,
    ) -> Result<Value<'c, 'a>> {
        let of = |dtype| Type::new(dtype, &ty.shape);
        let (double, single) = (of(DType::F64), of(DType::F32));
        let mut one = |name: &str, operands: &[Value<'c, '_>], ty: &Type, attributes: Attributes<'_>| {
            Ok::<_, crate::error::Error>(self.op(block, name, operands, std::slice::from_ref(ty), attributes, None)?[0])
        };
        let mut scalar = |value: f64| {
            let ty = Type::new(DType::F64, &[]);
            let scalar = one("stablehlo.constant", &[], &ty, &[("value", constant(&[value.to_bits()], &ty))])?;
            one(
                "stablehlo.broadcast_in_dim",
                &[scalar],
                &double,
                &[("broadcast_dimensions", list::<i64>("i64", [].into_iter()))],
            )
        };
        let (per_radian, per_turn) = (scalar(1.0 / std::f64::consts::TAU)?, scalar(std::f64::consts::TAU)?);
        let wide = one("stablehlo.convert", &[angle], &double, &[])?;
        let turns = one("stablehlo.multiply", &[wide, per_radian], &double, &[])?;
        let whole = one("stablehlo.round_nearest_even", &[turns], &double, &[])?;
        let off = one("stablehlo.multiply", &[whole, per_turn], &double, &[])?;
        let rest = one("stablehlo.subtract", &[wide, off], &double, &[])?;
        let rest = one("stablehlo.convert", &[rest], &single, &[])?;
        let value = one(op.mlir(), &[rest], &single, &[])?;
        if *ty == single { Ok(value) } else { self.narrowed(block, "stablehlo.convert", value, ty) }
    }

    fn reducer(&mut self, op: Reduce, scalar: &Type) -> Result<Region<'c>> {
        let ty = self.ty(scalar)?;
        let block = Block::new(&[(ty, self.at), (ty, self.at)]);
        let operands = [block.argument(0)?.into(), block.argument(1)?.into()];
        let name = match op {
            Reduce::Sum => "stablehlo.add",
            Reduce::Maximum => "stablehlo.maximum",
            Reduce::Any => "stablehlo.or",
        };
        let value = self.op(&block, name, &operands, std::slice::from_ref(scalar), &[], None)?;
        self.op(&block, "stablehlo.return", &value, &[], &[], None)?;
        let region = Region::new();
        region.append_block(block);
        Ok(region)
    }
}

/// Name and attributes of an op that takes its operands as they are and has one result and no region.
fn plain(graph: &Graph, node: &Node) -> (&'static str, Vec<(&'static str, String)>) {
    match &node.op {
        // These three are not plain; `body` has them.
        Op::Argument(_) | Op::TopKValues(_) | Op::TopKIndices(_) | Op::Reduce(..) => ("", Vec::new()),
        Op::Constant(bits) => ("stablehlo.constant", vec![("value", constant(bits, &node.ty))]),
        Op::Elementwise(op) => (op.mlir(), Vec::new()),
        Op::Compare(op) => {
            let direction = format!("#stablehlo<comparison_direction {}>", direction(*op));
            ("stablehlo.compare", vec![("comparison_direction", direction)])
        }
        Op::Iota => ("stablehlo.iota", vec![("iota_dimension", "0 : i64".into())]),
        Op::Reshape => ("stablehlo.reshape", Vec::new()),
        Op::Transpose(permutation) => ("stablehlo.transpose", vec![("permutation", list("i64", permutation.iter()))]),
        Op::Broadcast(axes) => ("stablehlo.broadcast_in_dim", vec![("broadcast_dimensions", list("i64", axes.iter()))]),
        Op::Concatenate(axis) => ("stablehlo.concatenate", vec![("dimension", format!("{axis} : i64"))]),
        Op::Slice(ranges) => ("stablehlo.slice", slice(ranges)),
        Op::Dot { batch, contract } => {
            let batch = (0..*batch).map(|b| b.to_string()).collect::<Vec<_>>().join(", ");
            let dimensions = format!(
                "#stablehlo.dot<lhs_batching_dimensions = [{batch}], rhs_batching_dimensions = [{batch}], \
                 lhs_contracting_dimensions = [{}], rhs_contracting_dimensions = [{}]>",
                contract.0, contract.1
            );
            ("stablehlo.dot_general", vec![("dot_dimension_numbers", dimensions)])
        }
        Op::Take(axis) => {
            let (from, ids) = (graph.ty(node.operands[0]), graph.ty(node.operands[1]));
            let whole = (0..node.ty.rank()).filter(|i| *i < *axis || *i >= axis + ids.rank());
            let numbers = format!(
                "#stablehlo.gather<offset_dims = [{}], collapsed_slice_dims = [{axis}], start_index_map = [{axis}], \
                 index_vector_dim = {}>",
                join(whole),
                ids.rank()
            );
            ("stablehlo.gather", gather(numbers, (0..from.rank()).map(|i| if i == *axis { 1 } else { from.shape[i] })))
        }
        Op::TakeAlong { axis, whole } => {
            let (from, ids) = (graph.ty(node.operands[0]), graph.ty(node.operands[1]));
            let batch: Vec<usize> = (0..from.rank()).filter(|i| i != axis && !whole.contains(i)).collect();
            // Where the ids keep an axis of the operand.
            let place = |i: &usize| i - whole.iter().filter(|w| *w < i).count();
            let numbers = format!(
                "#stablehlo.gather<offset_dims = [{}], collapsed_slice_dims = [{axis}], operand_batching_dims = [{}], \
                 start_indices_batching_dims = [{}], start_index_map = [{axis}], index_vector_dim = {}>",
                join(whole.iter()),
                join(batch.iter()),
                join(batch.iter().map(place)),
                ids.rank() - 1
            );
            (
                "stablehlo.gather",
                gather(numbers, (0..from.rank()).map(|i| if whole.contains(&i) { from.shape[i] } else { 1 })),
            )
        }
        Op::Write => ("stablehlo.dynamic_update_slice", Vec::new()),
    }
}

fn slice(ranges: &[(i64, i64)]) -> Vec<(&'static str, String)> {
    vec![
        ("start_indices", list("i64", ranges.iter().map(|r| r.0))),
        ("limit_indices", list("i64", ranges.iter().map(|r| r.1))),
        ("strides", list("i64", ranges.iter().map(|_| 1))),
    ]
}

fn gather(numbers: String, sizes: impl Iterator<Item = i64>) -> Vec<(&'static str, String)> {
    vec![("dimension_numbers", numbers), ("slice_sizes", list("i64", sizes)), ("indices_are_sorted", "false".into())]
}

fn direction(op: Compare) -> &'static str {
    match op {
        Compare::Equal => "EQ",
        Compare::NotEqual => "NE",
        Compare::Less => "LT",
        Compare::LessEqual => "LE",
        Compare::Greater => "GT",
        Compare::GreaterEqual => "GE",
    }
}

fn join<T: ToString>(values: impl Iterator<Item = T>) -> String {
    values.map(|v| v.to_string()).collect::<Vec<_>>().join(", ")
}

/// `array<i64: 1, 2>`; an empty one has no colon.
fn list<T: ToString>(element: &str, values: impl Iterator<Item = T>) -> String {
    let values = join(values);
    if values.is_empty() { format!("array<{element}>") } else { format!("array<{element}: {values}>") }
}

/// `dense<..> : tensor<..>`. Floats are written as their bits, so that nothing is rounded on the way.
pub(super) fn constant(bits: &[u64], ty: &Type) -> String {
    let one = |bits: &u64| match ty.dtype {
        DType::F64 => format!("0x{bits:016X}"),
        DType::F32 => format!("0x{bits:08X}"),
        DType::F16 | DType::BF16 => format!("0x{bits:04X}"),
        DType::I32 => (*bits as u32 as i32).to_string(),
        DType::U32 | DType::U8 => bits.to_string(),
        DType::Bool => (*bits != 0).to_string(),
    };
    let mut text = String::from("dense<");
    match bits {
        // Of any number of elements.
        [one_for_all] => text.push_str(&one(one_for_all)),
        [] => {}
        _ => {
            text.push('[');
            text.push_str(&join(bits.iter().map(one)));
            text.push(']');
        }
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "> : {}", ty.mlir());
    text
}

/// Bits of what a reduction starts from.
fn neutral(op: Reduce, dtype: DType) -> u64 {
    match (op, dtype) {
        (Reduce::Sum | Reduce::Any, _) => 0,
        (Reduce::Maximum, DType::F64) => f64::NEG_INFINITY.to_bits(),
        (Reduce::Maximum, DType::F32) => u64::from(f32::NEG_INFINITY.to_bits()),
        (Reduce::Maximum, DType::F16) => u64::from(half::f16::NEG_INFINITY.to_bits()),
        (Reduce::Maximum, DType::BF16) => u64::from(half::bf16::NEG_INFINITY.to_bits()),
        (Reduce::Maximum, DType::I32) => u64::from(i32::MIN as u32),
        (Reduce::Maximum, DType::U32 | DType::U8 | DType::Bool) => 0,
    }
}
