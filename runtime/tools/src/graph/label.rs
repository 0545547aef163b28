//! The words of a picture: calls, primitives and load expressions, as the author wrote them wherever they were written.

use mgraph_dsl::{
    ir::*,
    print,
    source::{PRELUDE, Span},
};

/// Longer texts are cut: a picture shows that there is a computation, the file shows which.
const LONGEST: usize = 48;

/// A load expression, as written.
pub fn load(program: &Program, load: &Load) -> String {
    shortened(&program.sources.text(load.span).split_whitespace().collect::<Vec<_>>().join(" "))
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let kept: String = text.chars().take(LONGEST - 2).collect();
    format!("{kept} ..")
}

/// `Linear(hidden, inner)`, `Layer(i) × 0..depth`, without the arguments that were left to their defaults.
pub fn field(program: &Program, field: &Field) -> String {
    let call = |block: BlockId, arguments: &[Load]| {
        let given = arguments.iter().filter(|argument| written_after(argument.span, field.span));
        let given: Vec<String> = given.map(|argument| load(program, argument)).collect();
        let name = &program.block(block).name;
        if given.is_empty() { name.clone() } else { format!("{name}({})", given.join(", ")) }
    };
    match &field.kind {
        FieldKind::Child { block, arguments } => call(*block, arguments),
        FieldKind::Children { block, arguments, low, high, .. } => {
            let count = match &low.kind {
                LoadKind::Int(0) => load(program, high),
                _ => format!("{}..{}", load(program, low), load(program, high)),
            };
            format!("{} × {count}", call(*block, arguments))
        }
        FieldKind::Tensor(ty) | FieldKind::State(ty) | FieldKind::Derived { ty, .. } => {
            print::ty(&Type::Tensor(ty.clone()))
        }
        FieldKind::Matrix(shape) => print::ty(&Type::Matrix(shape.clone())),
        FieldKind::Let(value) => load(program, value),
    }
}

/// Defaults are written where the block or op is, not at the call.
fn written_after(argument: Span, start: Span) -> bool {
    argument.file == start.file && argument.start > start.start && argument.start < start.start + 400
}

/// `split_heads(heads, head_dim)`: the op with its load arguments.
pub fn op_call(program: &Program, op: OpId, arguments: &[Argument]) -> String {
    let given: Vec<String> = arguments
        .iter()
        .filter_map(|argument| match argument {
            Argument::Load(value) if value.span.file != PRELUDE => Some(load(program, value)),
            Argument::Load(_) | Argument::Value(_) => None,
        })
        .collect();
    let name = &program.op(op).name;
    if given.is_empty() { name.clone() } else { format!("{name}({})", given.join(", ")) }
}

/// `layer.{i}.attn`
pub fn probe(program: &Program, name: &[PatternPart]) -> String {
    let mut text = String::new();
    for part in name {
        match part {
            PatternPart::Text(part) => text += part,
            PatternPart::Hole(hole) => {
                let written = program.sources.text(hole.span);
                // A hole's place is the string that it stands in.
                if let Some(whole) = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
                    return whole.to_owned();
                }
                text += &format!("{{{written}}}");
            }
        }
    }
    text
}

/// The primitive, with the operands that are constants (`Some`) written out.
pub fn primitive(program: &Program, op: &Prim, operands: &[Option<&str>], result: &Type) -> String {
    match op {
        Prim::Unary(op) => unary(*op).to_owned(),
        Prim::Binary(op) => infix(binary(*op), operands),
        Prim::Compare(op) => infix(compare(*op), operands),
        Prim::Select => {
            let arms: Vec<&str> = operands.iter().skip(1).filter_map(|operand| *operand).collect();
            if arms.is_empty() { "select".to_owned() } else { format!("select, else {}", arms.join(", ")) }
        }
        Prim::Convert => match result {
            Type::Tensor(ty) => ty.dtype.name().to_owned(),
            Type::Matrix(_) | Type::List { .. } => "convert".to_owned(),
        },
        Prim::Constant(value) | Prim::ConstantList(value) => load(program, value),
        Prim::Iota => "iota".to_owned(),
        Prim::Reshape => "reshape".to_owned(),
        Prim::Transpose(_) => "transpose".to_owned(),
        Prim::Broadcast => "broadcast".to_owned(),
        Prim::Concat { .. } | Prim::ConcatList { .. } => "concat".to_owned(),
        Prim::Slice(slots) => {
            let whole = slots.iter().take_while(|slot| matches!(slot, SliceSlot::Whole)).count();
            let lead = (whole > 1).then(|| "..".to_owned());
            let rest = slots.iter().skip(if whole > 1 { whole } else { 0 });
            let slots: Vec<String> = rest
                .map(|slot| match slot {
                    SliceSlot::Whole => "_".to_owned(),
                    SliceSlot::Range(low, high) => format!("{}..{}", load(program, low), load(program, high)),
                    SliceSlot::At(at) => load(program, at),
                })
                .collect();
            // The bounds of `split(x, [a, b])` are placed at the list of its sizes.
            if slots.iter().any(|slot| slot.starts_with('[')) {
                return "part of split".to_owned();
            }
            let slots: Vec<String> = lead.into_iter().chain(slots).collect();
            shortened(&format!("[{}]", slots.join(", ")))
        }
        Prim::Reduce { op, .. } => op.name().to_owned(),
        Prim::Dot => "dot".to_owned(),
        Prim::Matmul => "matmul".to_owned(),
        Prim::Take { .. } => "take".to_owned(),
        Prim::TakeAlong { .. } => "take_along".to_owned(),
        Prim::TopKValues(k) => format!("top_k({}), values", load(program, k)),
        Prim::TopKIndices(k) => format!("top_k({}), indices", load(program, k)),
        Prim::Update { .. } => "update".to_owned(),
        Prim::MatrixDense => "dense".to_owned(),
        Prim::MatrixCodes => "codes".to_owned(),
        Prim::MatrixBytes => "bytes".to_owned(),
        Prim::MatrixScales => "scales".to_owned(),
        Prim::MatrixBiases => "biases".to_owned(),
        Prim::MatrixRows => "rows".to_owned(),
        Prim::Item(at) => format!("[{}]", load(program, at)),
    }
}

fn infix(symbol: &str, operands: &[Option<&str>]) -> String {
    match operands {
        [Some(left), None] => format!("{left} {symbol}"),
        [None, Some(right)] => format!("{symbol} {right}"),
        [Some(left), Some(right)] => format!("{left} {symbol} {right}"),
        [..] => symbol.to_owned(),
    }
}

fn unary(op: Unary) -> &'static str {
    match op {
        Unary::Negate => "-",
        Unary::Not => "!",
        Unary::Abs
        | Unary::Exp
        | Unary::Log
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Tanh
        | Unary::Sin
        | Unary::Cos
        | Unary::Sigmoid
        | Unary::Erf => op.name(),
    }
}

fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "×",
        Binary::Divide => "/",
        Binary::Remainder => "%",
        Binary::Min => "min",
        Binary::Max => "max",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::ShiftLeft => "<<",
        Binary::ShiftRight => ">>",
    }
}

fn compare(op: Compare) -> &'static str {
    match op {
        Compare::Equal => "==",
        Compare::NotEqual => "!=",
        Compare::Less => "<",
        Compare::LessEqual => "<=",
        Compare::Greater => ">",
        Compare::GreaterEqual => ">=",
    }
}
