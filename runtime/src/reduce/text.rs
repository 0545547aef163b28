//! Ops of a trace as an op of the language: sizes are numbers, each primitive is one statement.

use mgraph_dsl::{
    compile_whole_prelude,
    interpret::{Cut, Number, Primitive},
    ir::{Binary, Compare, Program, Unary},
    prelude_sources,
    trace::{Node, NodeId, Trace, What},
};

use crate::error::{Context, Result, anyhow, bail};

/// Some ops of a trace, the last of which gives the result. What they read besides is given; numbers are written into the text.
pub struct Slice<'t> {
    trace: &'t Trace,
    /// In order of evaluation.
    pub computed: Vec<NodeId>,
    /// In order of first use; parameter `i` is `xi`.
    pub inputs: Vec<NodeId>,
}

impl<'t> Slice<'t> {
    pub fn new(trace: &'t Trace, mut computed: Vec<NodeId>) -> Slice<'t> {
        computed.sort_unstable();
        computed.dedup();
        let read = computed.iter().flat_map(|id| &trace.nodes[id.0].operands);
        let (mut given, mut numbers) = (Vec::new(), Vec::new());
        for id in read {
            if computed.contains(id) || given.contains(id) || numbers.contains(id) {
                continue;
            }
            if literal(&trace.nodes[id.0]).is_some() { numbers.push(*id) } else { given.push(*id) }
        }
        // An op of numbers alone would have nothing to take.
        let inputs = if given.is_empty() { numbers } else { given };
        Slice { trace, computed, inputs }
    }

    pub fn result(&self) -> Result<NodeId> {
        self.computed.last().copied().context("a slice has an op")
    }

    /// What follows the name of the op; `note` is a comment above a statement.
    pub fn text(&self, note: &dyn Fn(&Node) -> Option<String>) -> Result<String> {
        let parameters: Vec<String> =
            self.inputs.iter().enumerate().map(|(i, id)| format!("x{i}: {}", ty(&self.trace.nodes[id.0]))).collect();
        let result = self.result()?;
        let mut text = format!("({}) -> {} {{\n", parameters.join(", "), ty(&self.trace.nodes[result.0]));
        for id in &self.computed {
            let node = &self.trace.nodes[id.0];
            if let Some(note) = note(node) {
                text += &format!("    // {note}\n");
            }
            text += &format!("    {};\n", self.statement(*id, node)?);
        }
        text += &format!("    {}\n}}\n", self.name(result)?);
        Ok(text)
    }

    fn name(&self, id: NodeId) -> Result<String> {
        if let Some(at) = self.inputs.iter().position(|input| *input == id) {
            return Ok(format!("x{at}"));
        }
        if let Some(at) = self.computed.iter().position(|computed| *computed == id) {
            return Ok(format!("y{at}"));
        }
        literal(&self.trace.nodes[id.0]).with_context(|| format!("value {} is not given", id.0))
    }

    fn statement(&self, id: NodeId, node: &Node) -> Result<String> {
        let What::Primitive(primitive) = &node.what else { bail!("a slice has primitives only") };
        let names: Vec<String> = node.operands.iter().map(|id| self.name(*id)).collect::<Result<_>>()?;
        let first = node.operands.first().map(|id| self.trace.nodes[id.0].shape.as_slice()).unwrap_or_default();
        let (name, body) = (self.name(id)?, expression(primitive, node, &names, first)?);
        let [values, indices] =
            [matches!(primitive, Primitive::TopKValues(_)), matches!(primitive, Primitive::TopKIndices(_))];
        Ok(match (values, indices) {
            (true, _) => format!("let ({name}, _) = {body}"),
            (_, true) => format!("let (_, {name}) = {body}"),
            (false, false) => format!("let {name} = {body}"),
        })
    }
}

fn ty(node: &Node) -> String {
    format!("{}{:?}", node.dtype.name(), node.shape)
}

/// A scalar number as the text has it.
fn literal(node: &Node) -> Option<String> {
    let What::Primitive(Primitive::Constant(number)) = &node.what else { return None };
    match number {
        _ if !node.shape.is_empty() => None,
        Number::Int(n) => Some(format!("{}({n})", node.dtype.name())),
        Number::Float(x) if x.is_finite() => Some(format!("{}({x:?})", node.dtype.name())),
        Number::Float(_) | Number::Bool(_) => None,
    }
}

fn expression(primitive: &Primitive, node: &Node, names: &[String], first: &[usize]) -> Result<String> {
    let one = || names.first().context("an op without operand");
    let two = || match names {
        [x, y] => Ok((x, y)),
        _ => Err(anyhow!("{} takes two operands, not {}", primitive.name(), names.len())),
    };
    let between = |sign: &str| two().map(|(x, y)| format!("{x} {sign} {y}"));
    let called = |name: &str| format!("{name}({})", names.join(", "));
    let with = |attribute: String| format!("{}({}, {attribute})", primitive.name(), names.join(", "));
    Ok(match primitive {
        Primitive::Unary(Unary::Negate) => format!("-{}", one()?),
        Primitive::Unary(Unary::Not) => format!("!{}", one()?),
        Primitive::Unary(op) => called(op.name()),
        Primitive::Binary(op) => match op {
            Binary::Add => between("+")?,
            Binary::Subtract => between("-")?,
            Binary::Multiply => between("*")?,
            Binary::Divide => between("/")?,
            Binary::Remainder => between("%")?,
            Binary::Min | Binary::Max => called(primitive.name()),
            Binary::And => between("&")?,
            Binary::Or => between("|")?,
            Binary::ShiftLeft => between("<<")?,
            Binary::ShiftRight => between(">>")?,
        },
        Primitive::Compare(op) => between(match op {
            Compare::Equal => "==",
            Compare::NotEqual => "!=",
            Compare::Less => "<",
            Compare::LessEqual => "<=",
            Compare::Greater => ">",
            Compare::GreaterEqual => ">=",
        })?,
        Primitive::Select | Primitive::Dot | Primitive::Matmul => called(primitive.name()),
        Primitive::Convert => called(node.dtype.name()),
        Primitive::Reshape | Primitive::Broadcast => with(format!("{:?}", node.shape)),
        Primitive::Transpose(permutation) => with(format!("{permutation:?}")),
        Primitive::Concat { axis } => format!("concat([{}], axis = {axis})", names.join(", ")),
        Primitive::Slice(cuts) => {
            let cut = |(cut, size): (&Cut, &usize)| match cut.keep {
                true if cut.start == 0 && cut.end == *size => "_".to_owned(),
                true => format!("{}..{}", cut.start, cut.end),
                false => cut.start.to_string(),
            };
            format!("{}[{}]", one()?, cuts.iter().zip(first).map(cut).collect::<Vec<_>>().join(", "))
        }
        Primitive::Reduce { axes, .. } => with(format!("axis = {axes:?}")),
        Primitive::Take { axis } | Primitive::TakeAlong { axis } | Primitive::Update { axis } => {
            with(format!("axis = {axis}"))
        }
        Primitive::TopKValues(k) | Primitive::TopKIndices(k) => format!("top_k({}, {k})", one()?),
        Primitive::Constant(_) | Primitive::ConstantList(_) | Primitive::Iota => {
            bail!("{} is given, not computed", primitive.name())
        }
    })
}

/// Ops with the least family around them that the language asks for.
pub fn family(ops: &str, tf32: bool) -> String {
    let tf32 = if tf32 { "allow" } else { "forbid" };
    format!(
        "family reduced for \"reduced\"\n\nnumerics {{ tf32 {tf32} }}\n\n\
         config {{\n    vocab: dim = \"vocab\"\n    hidden: dim = \"hidden\"\n}}\n\n\
         {ops}\n\
         model {{\n    table: Embedding(vocab, hidden)\n\n    \
         graph embed(tokens: i32[B, S]) -> F[B, S, hidden] {{ table(tokens) }}\n\n    \
         graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {{\n        \
         table.logits(rows_at(x, wanted))\n    }}\n}}\n"
    )
}

/// The program of ops; it holds ops that no graph reaches.
pub fn compiled(ops: &str, tf32: bool) -> Result<Program> {
    of_file("case.mgraph", &family(ops, tf32))
}

pub fn of_file(name: &str, text: &str) -> Result<Program> {
    let mut sources = prelude_sources();
    let file = sources.add(name, text);
    compile_whole_prelude(sources, file).map_err(|failed| anyhow!("{name} does not compile:\n{failed}"))
}
