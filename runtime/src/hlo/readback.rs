//! What an emitted module computes, read back from its text: MLIR parses it again, and every op, or group of ops that the
//! emitter writes for one primitive, is recognised by its structure. The certificate compares the answer with the IR.
//!
//! Nothing of the recorder is used here: names, attributes, regions and uses decide, and what is not recognised is an
//! error. Broadcasts are looked through.

use std::collections::HashMap;

use melior::{
    Context,
    ir::{BlockLike, Module, OperationRef, RegionLike, ValueLike, operation::OperationLike},
};

use super::{
    emit, pinned,
    types::{DType, Type, bits_of_number, is_narrow},
};
use crate::error::{Context as _, Result, anyhow, bail, ensure};

/// A module's one function.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub arguments: Vec<Type>,
    /// Arguments whose memory a result is written into: indices into both.
    pub aliases: Vec<(usize, usize)>,
    /// In the order of the text; each is read by another or by a result.
    pub ops: Vec<ReadOp>,
    pub results: Vec<Operand>,
}

/// One primitive.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadOp {
    /// As [`mgraph_dsl::interpret::Primitive`] names it: `add`, `min`, `less_equal`, `maximum` (a reduction), `dot`, ...
    /// A slice never drops an axis; a `reshape` after it does.
    pub name: &'static str,
    pub operands: Vec<Operand>,
    pub ty: Type,
    /// `constant`, `constant_list`: the elements, or one where all are equal. `sum`, `maximum`, `any`: the axes. `transpose`: the
    /// permutation. `slice`: start and end of each axis. `concat`, `take`, `take_along`, `update`: the axis. Axes count
    /// from the front. Else empty.
    pub numbers: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operand {
    /// Index into [`Read::arguments`].
    Argument(usize),
    /// Index into [`Read::ops`].
    Op(usize),
}

/// Read a module that [`emit::text`] wrote.
pub fn read(text: &str) -> Result<Read> {
    let context = emit::context();
    let raw = parse(&context, text)?;
    let pinned = raw.ops.iter().any(|op| pinned::GUARDS.contains(&op.name.as_str()));
    let meaning = vec![Meaning::Pending; raw.values.len()];
    let mut reader = Reader { raw: &raw, pinned, ops: Vec::new(), meaning };
    for at in 0..raw.ops.len() {
        reader.op(at).with_context(|| format!("op {at}, {}", raw.ops[at].name))?;
    }
    let results = raw.results.iter().map(|v| reader.operand(*v)).collect::<Result<Vec<_>>>()?;
    let (ops, results) = prune(reader.ops, results);
    Ok(Read { arguments: raw.arguments.clone(), aliases: raw.aliases.clone(), ops, results })
}

/// Index into [`Raw::values`].
type ValueAt = usize;

struct Raw {
    arguments: Vec<Type>,
    aliases: Vec<(usize, usize)>,
    values: Vec<RawValue>,
    ops: Vec<RawOp>,
    results: Vec<ValueAt>,
}

struct RawValue {
    ty: Type,
    made: Made,
}

#[derive(Clone, Copy)]
enum Made {
    Argument(usize),
    /// Op and number of the result.
    Op(usize, usize),
}

struct RawOp {
    name: String,
    operands: Vec<ValueAt>,
    results: Vec<ValueAt>,
    attributes: HashMap<String, String>,
    /// Ops of the region, written out: `stablehlo.compare 0 1 #stablehlo<comparison_direction GT>`.
    region: Vec<String>,
}

fn parse(context: &Context, text: &str) -> Result<Raw> {
    let module = Module::parse(context, text).ok_or_else(|| anyhow!("MLIR does not parse the module"))?;
    let function = module.body().first_operation().context("a module without a function")?;
    let block = function.region(0)?.first_block().context("a function without a body")?;
    let aliases = aliases_of(&attributes_of(function)?)?;
    let mut raw = Raw { arguments: Vec::new(), aliases, values: Vec::new(), ops: Vec::new(), results: Vec::new() };
    let mut known: HashMap<usize, ValueAt> = HashMap::new();
    for at in 0..block.argument_count() {
        let argument = block.argument(at)?;
        let ty = read_type(&argument.r#type().to_string())?;
        known.insert(argument.to_raw().ptr as usize, raw.values.len());
        raw.arguments.push(ty.clone());
        raw.values.push(RawValue { ty, made: Made::Argument(at) });
    }
    let mut next = block.first_operation();
    while let Some(op) = next {
        let name = name_of(op)?;
        let operands = operands_of(op, &known)?;
        if name == "func.return" {
            raw.results = operands;
            break;
        }
        let mut results = Vec::new();
        for at in 0..op.result_count() {
            let result = op.result(at)?;
            known.insert(result.to_raw().ptr as usize, raw.values.len());
            results.push(raw.values.len());
            let ty = read_type(&result.r#type().to_string())?;
            raw.values.push(RawValue { ty, made: Made::Op(raw.ops.len(), at) });
        }
        let region = if op.region_count() > 0 { region_of(op)? } else { Vec::new() };
        raw.ops.push(RawOp { name, operands, results, attributes: attributes_of(op)?, region });
        next = op.next_in_block();
    }
    Ok(raw)
}

fn name_of(op: OperationRef<'_, '_>) -> Result<String> {
    Ok(op.name().as_string_ref().as_str()?.to_owned())
}

fn operands_of(op: OperationRef<'_, '_>, known: &HashMap<usize, usize>) -> Result<Vec<usize>> {
    op.operands()
        .map(|v| known.get(&(v.to_raw().ptr as usize)).copied().context("an operand that nothing made"))
        .collect()
}

fn attributes_of(op: OperationRef<'_, '_>) -> Result<HashMap<String, String>> {
    let one = |(name, value): (melior::ir::Identifier<'_>, melior::ir::Attribute<'_>)| {
        Ok((name.as_string_ref().as_str()?.to_owned(), value.to_string()))
    };
    op.attributes().map(one).collect()
}

/// Of `[{}, {tf.aliasing_output = 1 : i32}]`.
fn aliases_of(function: &HashMap<String, String>) -> Result<Vec<(usize, usize)>> {
    let Some(attributes) = function.get("arg_attrs") else { return Ok(Vec::new()) };
    let mut aliases = Vec::new();
    for (argument, attribute) in attributes.split('{').skip(1).enumerate() {
        let attribute = attribute.split('}').next().unwrap_or_default();
        if let Some(result) = attribute.strip_prefix("tf.aliasing_output = ") {
            let result = result.strip_suffix(" : i32").and_then(|n| n.parse().ok());
            aliases.push((argument, result.with_context(|| format!("argument {argument} has the alias {attribute}"))?));
        } else {
            ensure!(attribute.is_empty(), "argument {argument} has the attribute {attribute}");
        }
    }
    Ok(aliases)
}

fn region_of(op: OperationRef<'_, '_>) -> Result<Vec<String>> {
    let block = op.region(0)?.first_block().context("an empty region")?;
    let mut known = HashMap::new();
    for at in 0..block.argument_count() {
        known.insert(block.argument(at)?.to_raw().ptr as usize, at);
    }
    let mut lines = Vec::new();
    let mut next = block.first_operation();
    while let Some(op) = next {
        let mut line = name_of(op)?;
        for operand in operands_of(op, &known)? {
            line.push_str(&format!(" {operand}"));
        }
        if let Some(direction) = attributes_of(op)?.get("comparison_direction") {
            line.push_str(&format!(" {direction}"));
        }
        for at in 0..op.result_count() {
            let number = known.len();
            known.insert(op.result(at)?.to_raw().ptr as usize, number);
        }
        lines.push(line);
        next = op.next_in_block();
    }
    Ok(lines)
}

fn read_type(text: &str) -> Result<Type> {
    let inner = text.strip_prefix("tensor<").and_then(|t| t.strip_suffix('>'));
    let inner = inner.with_context(|| format!("{text} is no static tensor type"))?;
    let (dims, element) = inner.rsplit_once('x').unwrap_or(("", inner));
    let dtype = match element {
        "f64" => DType::F64,
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "i32" => DType::I32,
        "ui32" => DType::U32,
        "ui8" => DType::U8,
        "i1" => DType::Bool,
        other => bail!("element type {other} is none of ours"),
    };
    let shape = dims.split('x').filter(|d| !d.is_empty()).map(|d| Ok(d.parse()?)).collect::<Result<Vec<i64>>>()?;
    Ok(Type { dtype, shape })
}

/// What a raw value is among the primitives.
#[derive(Clone, Copy)]
enum Meaning {
    Is(Operand),
    /// Part of a group that a later op ends.
    Pending,
}

struct Reader<'a> {
    raw: &'a Raw,
    /// Something is guarded, so that everything must be.
    pinned: bool,
    ops: Vec<ReadOp>,
    meaning: Vec<Meaning>,
}

impl Reader<'_> {
    fn operand(&self, value: ValueAt) -> Result<Operand> {
        match (self.raw.values[value].made, self.meaning[value]) {
            (Made::Argument(at), _) => Ok(Operand::Argument(at)),
            (Made::Op(..), Meaning::Is(operand)) => Ok(operand),
            (Made::Op(at, _), Meaning::Pending) => bail!("{} is used outside its group", self.raw.ops[at].name),
        }
    }

    fn ty(&self, value: ValueAt) -> &Type {
        &self.raw.values[value].ty
    }

    /// The op that made a value.
    fn maker(&self, value: ValueAt) -> Option<&RawOp> {
        match self.raw.values[value].made {
            Made::Op(at, _) => Some(&self.raw.ops[at]),
            Made::Argument(_) => None,
        }
    }

    /// The op that made a value, where it has that name.
    fn made_by(&self, value: ValueAt, name: &str) -> Option<&RawOp> {
        self.maker(value).filter(|op| op.name == name)
    }

    /// A scalar constant, broadcast or not.
    fn scalar(&self, value: ValueAt) -> Option<f64> {
        let op = self.maker(value)?;
        match op.name.as_str() {
            "stablehlo.broadcast_in_dim" => self.scalar(op.operands[0]),
            "stablehlo.constant" => {
                let numbers = dense(op.attributes.get("value")?, self.ty(value)).ok()?;
                (numbers.len() == 1).then(|| numbers[0])
            }
            _ => None,
        }
    }

    fn push(&mut self, name: &'static str, operands: Vec<Operand>, result: ValueAt, numbers: Vec<f64>) {
        let ty = self.ty(result).clone();
        self.ops.push(ReadOp { name, operands, ty, numbers });
        self.meaning[result] = Meaning::Is(Operand::Op(self.ops.len() - 1));
    }

    fn op(&mut self, at: usize) -> Result<()> {
        let raw = self.raw;
        let op = &raw.ops[at];
        let result = *op.results.first().context("an op without a result")?;
        let attribute = |name: &str| op.attributes.get(name).with_context(|| format!("attribute {name} is missing"));
        let list = |name: &str| attribute(name).map(|text| integers(text));
        if op.name == "stablehlo.slice" {
            let (starts, ends) = (list("start_indices")?, list("limit_indices")?);
            let sizes: Vec<i64> = starts.iter().zip(&ends).map(|(start, end)| (end - start) as i64).collect();
            let inside = ends.iter().zip(&self.ty(op.operands[0]).shape).all(|(end, size)| *end <= *size as f64);
            ensure!(inside && self.ty(result).shape == sizes, "a slice {starts:?} to {ends:?} of another size");
            ensure!(list("strides")?.iter().all(|s| *s == 1.0), "a slice with strides");
        }
        let (name, numbers): (&'static str, Vec<f64>) = match op.name.as_str() {
            "stablehlo.broadcast_in_dim" => {
                let (from, to) = (&self.ty(op.operands[0]).shape, &self.ty(result).shape);
                let before = to.len().checked_sub(from.len()).context("a broadcast to fewer axes")?;
                let exact = list("broadcast_dimensions")? == (before..to.len()).map(|a| a as f64).collect::<Vec<_>>()
                    && from.iter().zip(&to[before..]).all(|(from, to)| from == to || *from == 1);
                ensure!(exact, "a broadcast that does not align {from:?} with {to:?} from the right");
                self.meaning[result] = match raw.values[op.operands[0]].made {
                    Made::Argument(at) => Meaning::Is(Operand::Argument(at)),
                    Made::Op(..) => self.meaning[op.operands[0]],
                };
                return Ok(());
            }
            "stablehlo.constant" => {
                let name = if self.ty(result).rank() == 0 { "constant" } else { "constant_list" };
                (name, dense(attribute("value")?, self.ty(result))?)
            }
            "stablehlo.iota" if self.ty(result).rank() == 1 => {
                ensure!(list("iota_dimension")? == [0.0], "an iota along an axis that does not exist");
                ("iota", Vec::new())
            }
            // A reduction ends with the reshape that puts its axes back, a sort with the slice that cuts it, and the
            // places of a sort belong to it: an iota, and the zero that it is counted from, behind a barrier.
            "stablehlo.iota" | "stablehlo.reduce" | "stablehlo.sort" => return Ok(()),
            emit::BARRIER if op.operands.len() == 1 => {
                let same = self.ty(op.operands[0]) == self.ty(result);
                ensure!(same, "a barrier that gives another type than it takes");
                self.meaning[result] = self.meaning[op.operands[0]];
                return Ok(());
            }
            emit::BARRIER => return Ok(()),
            "stablehlo.add" if self.counted(op).is_some() => return Ok(()),
            "stablehlo.reshape" if self.made_by(op.operands[0], "stablehlo.reduce").is_some() => {
                return self.reduction(op.operands[0], result);
            }
            "stablehlo.slice" if self.made_by(op.operands[0], "stablehlo.sort").is_some() => {
                return self.top_k(op, result);
            }
            "stablehlo.slice" => {
                let (starts, ends) = (list("start_indices")?, list("limit_indices")?);
                ("slice", starts.into_iter().zip(ends).flat_map(|(s, e)| [s, e]).collect())
            }
            "stablehlo.reshape" => ("reshape", Vec::new()),
            "stablehlo.transpose" => ("transpose", list("permutation")?),
            "stablehlo.concatenate" => ("concat", list("dimension")?),
            "stablehlo.dot_general" => {
                let narrow = is_narrow(self.ty(op.operands[0]).dtype);
                ensure!(!narrow || self.ty(result).dtype == DType::F32, "a product that sums in a narrow float");
                if narrow {
                    return Ok(());
                }
                (contraction(self, op)?, Vec::new())
            }
            "stablehlo.convert" => return self.convert(op, result),
            // Read where they end, in the rounding.
            pinned::WIDEN | pinned::ROUND => return Ok(()),
            pinned::NARROW => return self.rounded(op, result),
            pinned::PRODUCT => return self.product(op, result),
            "stablehlo.sine" | "stablehlo.cosine" => return self.turn(op, result),
            "stablehlo.gather" => return self.gather(op, result),
            "stablehlo.dynamic_update_slice" => return self.write(op, result),
            "stablehlo.compare" => (direction(attribute("comparison_direction")?)?, Vec::new()),
            // Only the reduction of an angle rounds.
            "stablehlo.round_nearest_even" => return Ok(()),
            other => (elementwise(other)?, Vec::new()),
        };
        // The f64 arithmetic of an angle's reduction is read where it ends, in the sine.
        let operands: Result<Vec<Operand>> = op.operands.iter().map(|v| self.operand(*v)).collect();
        match operands {
            Ok(operands) => {
                // The reduction of an angle multiplies in f64.
                let rounds = matches!(self.ty(result).dtype, DType::F32 | DType::F16 | DType::BF16);
                let bare = name == "multiply" && rounds && self.ty(result).elements() > 0;
                ensure!(!self.pinned || !bare, "a product that IREE may contract");
                self.push(name, operands, result, numbers);
                Ok(())
            }
            Err(_) if op.operands.iter().all(|v| self.made_by(*v, pinned::WIDEN).is_some()) => Ok(()),
            Err(_) if matches!(name, "multiply" | "subtract") && self.ty(result).dtype == DType::F64 => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn reduction(&mut self, reduced: ValueAt, result: ValueAt) -> Result<()> {
        let op = self.made_by(reduced, "stablehlo.reduce").context("no reduction")?;
        let axes = integers(op.attributes.get("dimensions").context("a reduction without axes")?);
        let from = self.ty(op.operands[0]);
        let [body, end] = op.region.as_slice() else { bail!("a reduction by more than one op") };
        ensure!(end == "stablehlo.return 2", "a reduction that returns something else: {end}");
        let start = self.scalar(op.operands[1]).context("a reduction from no constant")?;
        let low = match from.dtype {
            DType::I32 => f64::from(i32::MIN),
            DType::U32 | DType::U8 | DType::Bool => 0.0,
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => f64::NEG_INFINITY,
        };
        let name = match (body.as_str(), start) {
            ("stablehlo.add 0 1", 0.0) => "sum",
            ("stablehlo.or 0 1", 0.0) => "any",
            ("stablehlo.maximum 0 1", start) if start == low => "maximum",
            _ => bail!("a reduction by {body} from {start}"),
        };
        let mut kept = from.shape.clone();
        for axis in &axes {
            *kept.get_mut(*axis as usize).context("an axis that does not exist")? = 1;
        }
        ensure!(self.ty(result).shape == kept, "a reduction that is not put back to {kept:?}");
        let operand = self.operand(op.operands[0])?;
        self.push(name, vec![operand], result, axes);
        Ok(())
    }

    /// The places of a sort, as an iota and the barrier that the zero which it is counted from is behind.
    fn counted(&self, add: &RawOp) -> Option<(&RawOp, usize)> {
        let [iota, from] = add.operands[..] else { return None };
        let iota = self.made_by(iota, "stablehlo.iota")?;
        let from = self.made_by(from, "stablehlo.broadcast_in_dim")?;
        match self.raw.values[from.operands[0]].made {
            Made::Op(at, 1) if self.raw.ops[at].name == emit::BARRIER => Some((iota, at)),
            Made::Op(..) | Made::Argument(_) => None,
        }
    }

    fn top_k(&mut self, slice: &RawOp, result: ValueAt) -> Result<()> {
        let Made::Op(at, which) = self.raw.values[slice.operands[0]].made else { bail!("no sort") };
        let sort = &self.raw.ops[at];
        let expected = [
            "stablehlo.compare 0 1 #stablehlo<comparison_direction GT>",
            "stablehlo.compare 0 1 #stablehlo<comparison_direction EQ>",
            "stablehlo.compare 2 3 #stablehlo<comparison_direction LT>",
            "stablehlo.and 5 6",
            "stablehlo.or 4 7",
            "stablehlo.return 8",
        ];
        ensure!(sort.region == expected, "a sort by another order: {:?}", sort.region);
        let from = self.ty(sort.operands[0]);
        let last = from.rank().saturating_sub(1);
        ensure!(sort.attributes.get("is_stable").is_some_and(|a| a == "true"), "a sort that is not stable");
        let along = |op: &RawOp, name: &str| op.attributes.get(name).map(|a| integers(a)) == Some(vec![last as f64]);
        let [sorted, places] = sort.operands[..] else { bail!("a sort of more than values and their places") };
        let places = self.made_by(places, "stablehlo.add").and_then(|add| self.counted(add));
        let (iota, barrier) = places.context("a sort that shares its places")?;
        let apart = &self.raw.ops[barrier];
        let [keys, zero] = apart.operands[..] else { bail!("a barrier around something else than values and a zero") };
        ensure!(
            keys == sorted && self.scalar(zero) == Some(0.0),
            "a sort whose places come from other values, or do not count from zero"
        );
        ensure!(along(sort, "dimension") && along(iota, "iota_dimension"), "a sort along another axis than the last");
        let starts = integers(slice.attributes.get("start_indices").context("a slice without starts")?);
        let to = self.ty(result);
        ensure!(
            starts.iter().all(|s| *s == 0.0) && to.shape[..last] == from.shape[..last],
            "a cut of a sort that is not its first elements"
        );
        let operand = self.operand(sorted)?;
        self.push(if which == 0 { "top_k_values" } else { "top_k_indices" }, vec![operand], result, Vec::new());
        Ok(())
    }

    /// A cast, or the end of a product or a sine that was made in f32 for a narrow float.
    fn convert(&mut self, op: &RawOp, result: ValueAt) -> Result<()> {
        let value = self.unrounded(op, result)?;
        let maker = self.maker(value);
        if let Some(dot) = maker.filter(|m| m.name == "stablehlo.dot_general")
            && is_narrow(self.ty(dot.operands[0]).dtype)
        {
            let name = contraction(self, dot)?;
            let operands = dot.operands.iter().map(|v| self.operand(*v)).collect::<Result<Vec<_>>>()?;
            self.push(name, operands, result, Vec::new());
            return Ok(());
        }
        if let Some(turn) = maker.filter(|m| matches!(m.name.as_str(), "stablehlo.sine" | "stablehlo.cosine"))
            && let Some(angle) = self.angle(turn)
            && is_narrow(self.ty(angle).dtype)
        {
            let name = if turn.name == "stablehlo.sine" { "sin" } else { "cos" };
            let operand = self.operand(angle)?;
            self.push(name, vec![operand], result, Vec::new());
            return Ok(());
        }
        match self.operand(value) {
            Ok(operand) => {
                self.push("convert", vec![operand], result, Vec::new());
                Ok(())
            }
            // The remaining angle.
            Err(_) if self.made_by(value, "stablehlo.subtract").is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A product that is rounded on its own.
    fn product(&mut self, op: &RawOp, result: ValueAt) -> Result<()> {
        let [x, y, nothing] = op.operands[..] else { bail!("a product and sum of other than three operands") };
        let nothing = self.scalar(nothing).context("a product and a sum in one op")?;
        ensure!(nothing == 0.0 && nothing.is_sign_negative(), "a product to which {nothing} is added");
        let operands = vec![self.operand(x)?, self.operand(y)?];
        self.push("multiply", operands, result, Vec::new());
        Ok(())
    }

    /// What a conversion narrows, before it was rounded to the bits of the result.
    fn unrounded(&self, op: &RawOp, result: ValueAt) -> Result<ValueAt> {
        let value = op.operands[0];
        let Some(round) = self.made_by(value, pinned::ROUND) else {
            let rounds = self.ty(result).dtype == DType::BF16 && self.ty(result).elements() > 0;
            let exact = !rounds || matches!(self.ty(value).dtype, DType::Bool | DType::U8);
            ensure!(!self.pinned || exact, "a rounding to bf16 that IREE may leave out");
            return Ok(value);
        };
        let has = |(name, bits): (&str, i64)| round.attributes.get(name).is_some_and(|b| integers(b) == [bits as f64]);
        let exact = has(pinned::EXPONENT) && has(pinned::MANTISSA) && self.ty(result).dtype == DType::BF16;
        ensure!(exact, "a rounding to other bits than the result has");
        Ok(round.operands[0])
    }

    /// An op of narrow floats, in f32 and rounded.
    fn rounded(&mut self, op: &RawOp, result: ValueAt) -> Result<()> {
        let value = self.unrounded(op, result)?;
        let wide = self.maker(value).context("a rounding of an argument")?;
        if matches!(wide.name.as_str(), pinned::WIDEN | "stablehlo.convert") {
            let operand = self.operand(wide.operands[0])?;
            self.push("convert", vec![operand], result, Vec::new());
            return Ok(());
        }
        let name = elementwise(&wide.name)?;
        let narrow = self.ty(result).dtype;
        let from = |value: ValueAt| {
            let widened = self.made_by(value, pinned::WIDEN).context("a rounding of an op that is not narrow")?;
            let operand = widened.operands[0];
            ensure!(
                self.ty(operand).dtype == narrow && is_narrow(narrow),
                "an op in f32 that starts from another dtype"
            );
            self.operand(operand)
        };
        let operands = wide.operands.iter().map(|v| from(*v)).collect::<Result<Vec<_>>>()?;
        self.push(name, operands, result, Vec::new());
        Ok(())
    }

    fn turn(&mut self, op: &RawOp, result: ValueAt) -> Result<()> {
        let angle = self.angle(op).context("an angle that is not reduced as expected")?;
        if !is_narrow(self.ty(angle).dtype) {
            let name = if op.name == "stablehlo.sine" { "sin" } else { "cos" };
            let operand = self.operand(angle)?;
            self.push(name, vec![operand], result, Vec::new());
        }
        Ok(())
    }

    /// `x` where the op is applied to `f32(f64(x) - round(f64(x) / turn) * turn)`, or to `x` itself.
    fn angle(&self, op: &RawOp) -> Option<ValueAt> {
        let rest = op.operands[0];
        if self.ty(rest).dtype == DType::F64 {
            return Some(rest);
        }
        let subtract = self.made_by(self.made_by(rest, "stablehlo.convert")?.operands[0], "stablehlo.subtract")?;
        let wide = subtract.operands[0];
        let off = self.made_by(subtract.operands[1], "stablehlo.multiply")?;
        let turns = self.made_by(
            self.made_by(off.operands[0], "stablehlo.round_nearest_even")?.operands[0],
            "stablehlo.multiply",
        )?;
        let exact = self.scalar(off.operands[1])? == std::f64::consts::TAU
            && self.scalar(turns.operands[1])? == 1.0 / std::f64::consts::TAU
            && turns.operands[0] == wide
            && self.ty(wide).dtype == DType::F64;
        exact.then_some(self.made_by(wide, "stablehlo.convert")?.operands[0])
    }

    fn gather(&mut self, op: &RawOp, result: ValueAt) -> Result<()> {
        let sorted = op.attributes.get("indices_are_sorted");
        ensure!(sorted.is_some_and(|a| a == "false"), "a gather that takes its ids as sorted");
        let numbers = op.attributes.get("dimension_numbers").context("a gather without dimensions")?;
        let (from, ids) = (self.ty(op.operands[0]).clone(), self.ty(op.operands[1]).clone());
        let collapsed = field(numbers, "collapsed_slice_dims");
        let [axis] = collapsed[..] else { bail!("a gather along several axes") };
        let vector = field(numbers, "index_vector_dim");
        ensure!(field(numbers, "start_index_map") == [axis], "a gather whose ids are of another axis");
        let sizes = integers(op.attributes.get("slice_sizes").context("a gather without sizes")?);
        let out = self.ty(result).clone();
        let at = axis as usize;
        let operand = self.operand(op.operands[0])?;
        if vector == [ids.rank() as f64] {
            let whole: Vec<f64> =
                (0..out.rank()).filter(|i| *i < at || *i >= at + ids.rank()).map(|i| i as f64).collect();
            let shape = [&from.shape[..at], &ids.shape[..], &from.shape[at + 1..]].concat();
            let all = (0..from.rank()).all(|i| sizes[i] == if i == at { 1.0 } else { from.shape[i] as f64 });
            let exact = field(numbers, "offset_dims") == whole && out.shape == shape && all;
            ensure!(exact && field(numbers, "operand_batching_dims").is_empty(), "a gather that is no take");
            let ids = self.operand(op.operands[1])?;
            self.push("take", vec![operand, ids], result, vec![axis]);
            return Ok(());
        }
        // The ids lost the axes that are taken whole, and gained a last one.
        let reshape = self.made_by(op.operands[1], "stablehlo.reshape").context("a gather that is no take_along")?;
        let (batch, offset) = (field(numbers, "operand_batching_dims"), field(numbers, "offset_dims"));
        let original = self.ty(reshape.operands[0]).clone();
        let kept: Vec<usize> = (0..from.rank()).filter(|i| !offset.contains(&(*i as f64))).collect();
        let index: Vec<i64> = kept.iter().filter_map(|i| original.shape.get(*i).copied()).chain([1]).collect();
        let places: Vec<f64> = kept.iter().enumerate().filter(|(_, i)| **i != at).map(|(p, _)| p as f64).collect();
        let expected: Vec<f64> = kept.iter().filter(|i| **i != at).map(|i| *i as f64).collect();
        let all = (0..from.rank()).all(|i| sizes[i] == if kept.contains(&i) { 1.0 } else { from.shape[i] as f64 });
        let ones = (0..from.rank()).all(|i| kept.contains(&i) || original.shape.get(i) == Some(&1));
        let exact = vector == [ids.rank() as f64 - 1.0]
            && ids.shape == index
            && batch == expected
            && field(numbers, "start_indices_batching_dims") == places
            && original.rank() == from.rank();
        ensure!(exact && all && ones, "a gather that is no take_along");
        let ids = self.operand(reshape.operands[0])?;
        self.push("take_along", vec![operand, ids], result, vec![axis]);
        Ok(())
    }

    /// The last of the writes of an `update`, one per row.
    fn write(&mut self, op: &RawOp, result: ValueAt) -> Result<()> {
        let rows = self.ty(result).shape.first().copied().context("a write into a scalar")?;
        let row = self.scalar(op.operands[2]).context("a write into an unknown row")?;
        if row as i64 != rows - 1 {
            return Ok(());
        }
        let (mut write, mut all) = (op, Vec::new());
        for row in (0..rows).rev() {
            ensure!(self.scalar(write.operands[2]) == Some(row as f64), "writes of an update that skip row {row}");
            let mut places = (3..write.operands.len()).filter(|i| self.scalar(write.operands[*i]) != Some(0.0));
            let (Some(place), None) = (places.next(), places.next()) else { bail!("a write at several positions") };
            let first = self.made_by(write.operands[place], "stablehlo.reshape");
            let first =
                first.and_then(|r| self.made_by(r.operands[0], "stablehlo.slice")).context("a write at no position")?;
            let corner = |slice: &RawOp| slice.attributes.get("start_indices").map(|s| integers(s));
            ensure!(corner(first) == Some(vec![row as f64, 0.0]), "row {row} is written at another row's position");
            let part = if rows == 1 {
                write.operands[1]
            } else {
                let slice = self.made_by(write.operands[1], "stablehlo.slice").context("a write of no row")?;
                let mut starts = corner(slice).unwrap_or_default();
                ensure!(starts.first() == Some(&(row as f64)), "row {row} gets another row's tokens");
                starts.remove(0);
                ensure!(starts.iter().all(|s| *s == 0.0), "a write of part of a row");
                slice.operands[0]
            };
            all.push((part, first.operands[0], place - 2));
            if row > 0 {
                let before = self.made_by(write.operands[0], "stablehlo.dynamic_update_slice");
                write = before.context("an update that does not write every row")?;
            }
        }
        let (part, positions, axis) = all[0];
        ensure!(all.iter().all(|a| *a == all[0]), "an update whose rows come from different tensors");
        let operands = vec![self.operand(write.operands[0])?, self.operand(part)?, self.operand(positions)?];
        self.push("update", operands, result, vec![axis as f64]);
        Ok(())
    }
}

/// `dot` or `matmul`, by which axis of the second operand is contracted.
fn contraction(reader: &Reader<'_>, op: &RawOp) -> Result<&'static str> {
    let numbers = op.attributes.get("dot_dimension_numbers").context("a product without dimensions")?;
    let (left, right) = (reader.ty(op.operands[0]), reader.ty(op.operands[1]));
    let batch = field(numbers, "lhs_batching_dimensions");
    let expected: Vec<f64> = (0..right.rank().saturating_sub(2)).map(|b| b as f64).collect();
    ensure!(
        batch == expected && field(numbers, "rhs_batching_dimensions") == expected,
        "a product with other batch axes"
    );
    ensure!(field(numbers, "lhs_contracting_dimensions") == [left.rank() as f64 - 1.0], "a product over another axis");
    match field(numbers, "rhs_contracting_dimensions")[..] {
        [axis] if axis == right.rank() as f64 - 1.0 => Ok("dot"),
        [axis] if axis == right.rank() as f64 - 2.0 => Ok("matmul"),
        _ => bail!("a product over other axes"),
    }
}

fn elementwise(name: &str) -> Result<&'static str> {
    Ok(match name {
        "stablehlo.add" => "add",
        "stablehlo.subtract" => "subtract",
        "stablehlo.multiply" => "multiply",
        "stablehlo.divide" => "divide",
        "stablehlo.remainder" => "remainder",
        "stablehlo.minimum" => "min",
        "stablehlo.maximum" => "max",
        "stablehlo.and" => "and",
        "stablehlo.or" => "or",
        "stablehlo.shift_left" => "shift_left",
        "stablehlo.shift_right_logical" => "shift_right",
        "stablehlo.negate" => "negate",
        "stablehlo.abs" => "abs",
        "stablehlo.exponential" => "exp",
        "stablehlo.log" => "log",
        "stablehlo.sqrt" => "sqrt",
        "stablehlo.rsqrt" => "rsqrt",
        "stablehlo.tanh" => "tanh",
        "stablehlo.logistic" => "sigmoid",
        "chlo.erf" => "erf",
        "stablehlo.not" => "not",
        "stablehlo.select" => "select",
        other => bail!("{other} is no op of ours"),
    })
}

fn direction(attribute: &str) -> Result<&'static str> {
    Ok(match attribute {
        "#stablehlo<comparison_direction EQ>" => "equal",
        "#stablehlo<comparison_direction NE>" => "not_equal",
        "#stablehlo<comparison_direction LT>" => "less",
        "#stablehlo<comparison_direction LE>" => "less_equal",
        "#stablehlo<comparison_direction GT>" => "greater",
        "#stablehlo<comparison_direction GE>" => "greater_equal",
        other => bail!("{other} is no direction"),
    })
}

/// `array<i64: 1, 2>` or `2 : i64`.
fn integers(text: &str) -> Vec<f64> {
    let inner = match text.strip_prefix("array<") {
        Some(array) => array.trim_end_matches('>').split_once(':').map_or("", |(_, values)| values),
        None => text.split(':').next().unwrap_or(""),
    };
    inner.split(',').filter_map(|n| n.trim().parse().ok()).collect()
}

/// `name = [1, 2]` or `name = 1` within `#stablehlo.gather<..>`; empty where it is missing.
fn field(attribute: &str, name: &str) -> Vec<f64> {
    let inner = attribute.split_once('<').map_or("", |(_, inner)| inner).trim_end_matches('>');
    let Some((_, value)) = inner.split_once(&format!("{name} = ")) else { return Vec::new() };
    let value = match value.strip_prefix('[') {
        Some(list) => list.split(']').next().unwrap_or(""),
        None => value.split(',').next().unwrap_or(""),
    };
    value.split(',').filter_map(|n| n.trim().parse().ok()).collect()
}

/// Elements of `dense<..> : tensor<..>`, or the one they all are.
fn dense(attribute: &str, ty: &Type) -> Result<Vec<f64>> {
    let inner = attribute.strip_prefix("dense<").and_then(|t| t.rsplit_once("> : ")).map(|(inner, _)| inner);
    let inner = inner.with_context(|| format!("{attribute} is no constant"))?;
    if let Some(hex) = inner.strip_prefix("\"0x").and_then(|t| t.strip_suffix('"')) {
        let width = ty.dtype.size() * 2;
        let one = |digits: &[u8]| {
            let bytes = digits.chunks(2).rev().map(|pair| String::from_utf8_lossy(pair).into_owned());
            number(&format!("0x{}", bytes.collect::<String>()), ty.dtype)
        };
        return hex.as_bytes().chunks(width).map(one).collect();
    }
    let inner = inner.trim_start_matches('[').trim_end_matches(']');
    inner.split(',').map(str::trim).filter(|t| !t.is_empty()).map(|t| number(t, ty.dtype)).collect()
}

fn number(text: &str, dtype: DType) -> Result<f64> {
    match text {
        "true" => return Ok(1.0),
        "false" => return Ok(0.0),
        _ => {}
    }
    let bits = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16)?,
        // As many digits as the dtype needs, and no more.
        None if dtype.is_float() => bits_of_number(text.parse()?, dtype),
        None => return Ok(text.parse()?),
    };
    Ok(match dtype {
        DType::F64 => f64::from_bits(bits),
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        DType::F16 => half::f16::from_bits(bits as u16).to_f64(),
        DType::BF16 => half::bf16::from_bits(bits as u16).to_f64(),
        DType::I32 => f64::from(bits as u32 as i32),
        DType::U32 | DType::U8 | DType::Bool => bits as f64,
    })
}

/// Keep what a result reads.
fn prune(ops: Vec<ReadOp>, results: Vec<Operand>) -> (Vec<ReadOp>, Vec<Operand>) {
    let mut read = vec![false; ops.len()];
    let mark = |read: &mut Vec<bool>, operand: &Operand| {
        if let Operand::Op(at) = operand {
            read[*at] = true;
        }
    };
    results.iter().for_each(|r| mark(&mut read, r));
    for at in (0..ops.len()).rev() {
        if read[at] {
            ops[at].operands.iter().for_each(|o| mark(&mut read, o));
        }
    }
    let mut renamed = vec![0; ops.len()];
    let mut kept = Vec::new();
    let rename = |renamed: &[usize], operand: Operand| match operand {
        Operand::Op(at) => Operand::Op(renamed[at]),
        argument => argument,
    };
    for (at, mut op) in ops.into_iter().enumerate() {
        if read[at] {
            op.operands = op.operands.iter().map(|o| rename(&renamed, *o)).collect();
            renamed[at] = kept.len();
            kept.push(op);
        }
    }
    let results = results.into_iter().map(|r| rename(&renamed, r)).collect();
    (kept, results)
}
