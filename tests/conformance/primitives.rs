//! Every primitive: its text, what it takes, and how far executors may be from it.

use mgraph_dsl::ir::DType::{self, BF16, Bool, F16, F32, F64, I32, U8, U32};

use super::{
    numbers::{Draw, is_float, largest},
    row::{Executor, Of, Open, Refused, Row, Within, row, within},
    types::ALL,
};

const FLOATS: &[DType] = &[F32, F64, F16, BF16];
const SIGNED: &[DType] = &[F32, F64, F16, BF16, I32];
const NUMBERS: &[DType] = &[F32, F64, F16, BF16, I32, U32, U8];
const INTEGERS: &[DType] = &[I32, U32, U8];
const BITS: &[DType] = &[Bool, U32, U8];
const UNSIGNED: &[DType] = &[U32, U8];
const SUMMED: &[DType] = &[F32, F64, I32, U32];
const EVERY: &[DType] = &ALL;

const ONCE: &str = "one operation, rounded once";
const CHOSEN: &str = "one of the operands, though of two zeros either";
const NUMBER: Within = within(Of::Number, 0.0, 0.0, 0.0);
const WHOLE: &str = "integers or bools";

const DIVISION: &[Open] = &[Open {
    when: |dtype, x| !is_float(dtype) && (x[0] < 0.0 || x[1] <= 0.0),
    sentence: "Division and remainder of integers where one is negative or the divisor is 0.",
}];
const SHIFT: &[Open] = &[Open {
    when: |dtype, x| x[1] >= if dtype == U8 { 8.0 } else { 32.0 },
    sentence: "A shift by the width or more.",
}];
const ANGLE: &[Open] =
    &[Open { when: |_, x| x[0].abs() > 1_048_576.0, sentence: "`sin` and `cos` of more than 2^20 radians." }];

/// MLX's own functions of these know only f32.
pub const SINGLE_ON_MLX: Refused =
    Refused { executor: Executor::Mlx, dtypes: &[F64], says: None, why: "not asked of MLX, which computes it in f32" };
pub const SINGLE_ON_IREE: Refused = Refused {
    executor: Executor::Iree,
    dtypes: &[F64],
    says: Some("of f64"),
    why: "refused by IREE, which links no libm and expands it of f32 only",
};

const NONE: &str = "A float as an integer where it is NaN or its whole part is outside the dtype; an \
             integer as one that cannot hold it.";

macro_rules! outside {
    ($to:expr) => {
        &[Open {
            when: |_, x| {
                x[0].is_nan()
                    || x[0].trunc() > largest($to)
                    || x[0].trunc() < if $to == I32 { -2_147_483_648.0 } else { 0.0 }
            },
            sentence: NONE,
        }]
    };
}

/// Of functions within -1..1 that are near 0 where their operand is not.
pub const UNIT: &str = "x * 0.0 + 1.0";

const fn unary(op: &'static str, body: &'static str) -> Row {
    row(op, "x: D[A, B]", "D[A, B]", body).elementwise()
}

const fn binary(op: &'static str, body: &'static str) -> Row {
    row(op, "x: D[A, 1, C], y: D[B, 1]", "D[A, B, C]", body).elementwise()
}

const fn compare(op: &'static str, body: &'static str) -> Row {
    row(op, "x: D[A, 1, C], y: D[B, 1]", "bool[A, B, C]", body).elementwise()
}

const fn cast(op: &'static str, gives: &'static str, body: &'static str) -> Row {
    row(op, "x: D[A, B]", gives, body).elementwise().of(EVERY)
}

pub fn rows() -> Vec<Row> {
    let positive: &[(&str, Draw)] = &[("x", Draw::Whole(0, 200)), ("y", Draw::Whole(1, 20))];
    let shifts: &[(&str, Draw)] = &[("y", Draw::Whole(0, 7))];
    let angles: &[(&str, Draw)] = &[("x", Draw::Within(1000.0))];
    let small: &[(&str, Draw)] = &[("x", Draw::Within(4.0)), ("w", Draw::Within(4.0))];
    vec![
        unary("-", "-x").of(SIGNED).exact(ONCE),
        unary("!", "!x").of(&[Bool]).exact(WHOLE),
        unary("abs", "abs(x)").of(SIGNED).exact(ONCE),
        unary("exp", "exp(x)")
            .of(FLOATS)
            .within(
                within(Of::Ulp, 1.0, 1.0, 4.0).mlx_of(Of::Text("exp(x) * (4.0 + abs(x))")),
                "another libm; MLX's loses with the size of x",
            )
            .refused(&[SINGLE_ON_MLX]),
        unary("log", "log(x)").of(FLOATS).within(within(Of::Ulp, 1.0, 4.0, 4.0), "another libm"),
        unary("sqrt", "sqrt(x)").of(FLOATS).exact(ONCE),
        unary("rsqrt", "rsqrt(x)")
            .of(FLOATS)
            .within(within(Of::Ulp, 1.5, 1.5, 1.5), "a root and a quotient, each rounded"),
        unary("tanh", "tanh(x)")
            .of(FLOATS)
            .within(within(Of::Ulp, 1.5, 4.0, 4.0), "another libm")
            .refused(&[SINGLE_ON_IREE]),
        unary("sin", "sin(x)")
            .of(FLOATS)
            .drawn(angles)
            .open(ANGLE)
            .within(within(Of::Text(UNIT), 1.0, 2.0, 2.0), "another libm, and the angle is reduced")
            .refused(&[SINGLE_ON_MLX, SINGLE_ON_IREE]),
        unary("cos", "cos(x)")
            .of(FLOATS)
            .drawn(angles)
            .open(ANGLE)
            .within(within(Of::Text(UNIT), 1.0, 2.0, 2.0), "another libm, and the angle is reduced")
            .refused(&[SINGLE_ON_MLX, SINGLE_ON_IREE]),
        unary("sigmoid", "sigmoid(x)")
            .of(FLOATS)
            .within(
                within(Of::Ulp, 2.0, 1.0, 8.0).mlx_of(Of::Text("sigmoid(x) * (8.0 + abs(x))")),
                "another libm, and its formula",
            )
            .refused(&[SINGLE_ON_MLX]),
        unary("erf", "erf(x)")
            .of(FLOATS)
            .within(
                within(Of::Text("abs(erf(x)) + 1e-30"), 1.0, 4.0, 4.0).mlx_of(Of::Text(UNIT)),
                "another libm; near 0 MLX's is 0",
            )
            .refused(&[SINGLE_ON_MLX]),
        binary("+", "x + y").of(NUMBERS).exact(ONCE),
        row("+", "x: D[A, B], y: D[]", "D[A, B]", "x + y").of(&[F32, I32]).exact(ONCE),
        binary("-", "x - y").of(NUMBERS).exact(ONCE),
        binary("*", "x * y").of(NUMBERS).exact(ONCE),
        binary("/", "x / y").of(FLOATS).exact(ONCE),
        binary("/", "x / y").of(INTEGERS).drawn(positive).open(DIVISION).exact(WHOLE),
        binary("%", "x % y").of(INTEGERS).drawn(positive).open(DIVISION).exact(WHOLE),
        binary("min", "min(x, y)").of(NUMBERS).within(NUMBER, CHOSEN),
        binary("max", "max(x, y)").of(NUMBERS).within(NUMBER, CHOSEN),
        binary("&", "x & y").of(BITS).exact(WHOLE),
        binary("|", "x | y").of(BITS).exact(WHOLE),
        binary("<<", "x << y").of(UNSIGNED).drawn(shifts).open(SHIFT).exact(WHOLE),
        binary(">>", "x >> y").of(UNSIGNED).drawn(shifts).open(SHIFT).exact(WHOLE),
        compare("==", "x == y").of(EVERY).exact(WHOLE),
        compare("!=", "x != y").of(EVERY).exact(WHOLE),
        compare("<", "x < y").of(NUMBERS).exact(WHOLE),
        compare("<=", "x <= y").of(NUMBERS).exact(WHOLE),
        compare(">", "x > y").of(NUMBERS).exact(WHOLE),
        compare(">=", "x >= y").of(NUMBERS).exact(WHOLE),
        row("select", "c: bool[A, 1, 1], x: D[B, 1], y: D[C]", "D[A, B, C]", "select(c, x, y)")
            .of(EVERY)
            .elementwise()
            .moved(),
        cast("f64", "f64[A, B]", "f64(x)").exact("nothing is lost"),
        cast("f32", "f32[A, B]", "f32(x)").exact("rounded once, ties to even"),
        cast("F", "F[A, B]", "F(x)").exact("to the family's dtype, rounded once"),
        cast("f16", "f16[A, B]", "f16(x)").exact("rounded once, ties to even"),
        cast("bf16", "bf16[A, B]", "bf16(x)").exact("rounded once, ties to even"),
        cast("i32", "i32[A, B]", "i32(x)")
            .drawn(&[("x", Draw::Within(1000.0))])
            .open(outside!(I32))
            .exact("cut toward zero"),
        cast("u32", "u32[A, B]", "u32(x)")
            .drawn(&[("x", Draw::Between(0.0, 200.0))])
            .open(outside!(U32))
            .exact("cut toward zero"),
        cast("u8", "u8[A, B]", "u8(x)")
            .drawn(&[("x", Draw::Between(0.0, 200.0))])
            .open(outside!(U8))
            .exact("cut toward zero"),
        row("constant", "x: D[A]", "D[A, 4]", "reshape(x, [A, 1]) + D([0.1, -2.5, 3e4, 0.0])")
            .of(FLOATS)
            .drawn(&[("x", Draw::Whole(0, 0))])
            .exact("rounded once from f64"),
        row("constant", "x: D[A]", "D[A, 3]", "reshape(x, [A, 1]) + D([0, 7, 200])")
            .of(INTEGERS)
            .drawn(&[("x", Draw::Whole(0, 0))])
            .exact(WHOLE),
        row("constant", "x: D[A]", "D[A]", "x + 0.1")
            .of(FLOATS)
            .drawn(&[("x", Draw::Whole(0, 0))])
            .exact("rounded once from f64"),
        row("iota", "x: i32[A, 1]", "i32[A, A + 2]", "x + iota(A + 2)").exact(WHOLE),
        row("reshape", "x: D[A, B, C]", "D[A * B, C, 1]", "reshape(x, [A * B, C, 1])").of(EVERY).moved(),
        row(
            "reshape",
            "x: D[A, B], y: D[A, C]",
            "D[A, 1, B, C]",
            "reshape(x, [A, 1, B, 1]) + reshape(y, [A, 1, 1, C])",
        )
        .moved(),
        row("reshape", "x: D[12, A]", "D[2, 3, 2, A]", "reshape(x, [2, 3, 2, A])").moved(),
        row("transpose", "x: D[A, B, C]", "D[C, A, B]", "transpose(x, [2, 0, 1])").of(EVERY).moved(),
        row("transpose", "x: D[A, B, C]", "D[A, C, B]", "transpose(x, [.., -1, -2])").moved(),
        row("broadcast", "x: D[B, 1], y: D[A, B, C]", "D[A, B, C]", "select(y == y, broadcast(x, [A, B, C]), y)")
            .of(EVERY)
            .moved(),
        row("concat", "x: D[A, B], y: D[A, C], z: D[A, B]", "D[A, 2 * B + C]", "concat([x, y, z], axis = -1)")
            .of(EVERY)
            .moved(),
        row("concat", "x: D[A, B], y: D[C, B]", "D[A + C, B]", "concat([x, y], axis = 0)").moved(),
        row("x[..]", "x: D[5, A, 4]", "D[3, A]", "x[1..4, _, 2]").of(EVERY).moved(),
        row("x[..]", "x: D[A, B]", "D[A, 0]", "x[.., B..B]").moved(),
        row("split", "x: D[A, 7]", "D[A, 7]", "let (a, b, c) = split(x, [2, 4, 1]);  concat([c, a, b], axis = 1)")
            .of(EVERY)
            .moved(),
        row("sum", "x: D[A, K]", "D[A, 1]", "sum(x, axis = -1)")
            .of(SUMMED)
            .sized(&[("K", &[33, 1, 0, 1024])])
            .drawn(&[("x", Draw::Within(4.0))])
            .within(within(Of::Sum, 1.0, 4.0, 4.0), "the order of the sum"),
        row("sum", "x: D[A, B, C]", "D[1, B, 1]", "sum(x, axis = [0, 2])")
            .of(SUMMED)
            .drawn(&[("x", Draw::Within(4.0))])
            .within(within(Of::Sum, 1.0, 2.0, 2.0), "the order of the sum"),
        row("sum", "x: D[A, B]", "D[1, B]", "sum(x, axis = 0)").of(&[I32, U32]).exact("integers, which wrap"),
        row("maximum", "x: D[A, K]", "D[A, 1]", "maximum(x, axis = -1)")
            .of(NUMBERS)
            .sized(&[("K", &[33, 1, 1024])])
            .within(NUMBER, CHOSEN),
        row("maximum", "x: D[A, 3, B]", "D[1, 1, B]", "maximum(x, axis = [0, 1])")
            .of(NUMBERS)
            .sized(&[("A", &[2, 1])])
            .within(NUMBER, CHOSEN),
        row("maximum", "x: D[A, 0]", "D[A, 1]", "maximum(x, axis = -1)")
            .of(NUMBERS)
            .exact("the least of the dtype: of floats, minus infinity"),
        row("any", "x: bool[A, K]", "bool[A, 1]", "any(x, axis = -1)")
            .of(&[Bool])
            .sized(&[("K", &[33, 1, 0])])
            .exact(WHOLE),
        row("dot", "x: D[A, B, K], w: D[N, K]", "D[A, B, N]", "dot(x, w)")
            .of(FLOATS)
            .sized(&[("K", &[33, 1, 1024, 0])])
            .drawn(small)
            .sums()
            .within(within(Of::Sum, 1.0, 4.0, 4.0), "the order of the sum"),
        row("dot", "x: D[A, M, K], w: D[A, N, K]", "D[A, M, N]", "dot(x, w)")
            .of(FLOATS)
            .drawn(small)
            .sums()
            .within(within(Of::Sum, 1.0, 2.0, 2.0), "the order of the sum"),
        row("matmul", "x: D[A, M, K], w: D[A, K, N]", "D[A, M, N]", "matmul(x, w)")
            .of(FLOATS)
            .sized(&[("K", &[33, 1, 256, 0])])
            .drawn(small)
            .sums()
            .within(within(Of::Sum, 1.0, 4.0, 4.0), "the order of the sum"),
        row("take", "x: D[A, N, B], ids: i32[R, S]", "D[A, R, S, B]", "take(x, ids, axis = 1)")
            .of(EVERY)
            .sized(&[("N", &[5, 1])])
            .drawn(&[("ids", Draw::Index("N"))])
            .within(NUMBER, CHOSEN),
        row("take", "x: D[N, B], ids: i32[R]", "D[R, B]", "take(x, ids, axis = 0)")
            .sized(&[("N", &[7])])
            .drawn(&[("ids", Draw::Index("N"))])
            .moved(),
        row("take_along", "x: D[A, N, B], ids: i32[A, R, 1]", "D[A, R, B]", "take_along(x, ids, axis = 1)")
            .of(EVERY)
            .sized(&[("N", &[5, 1])])
            .drawn(&[("ids", Draw::Index("N"))])
            .moved(),
        row("take_along", "x: D[A, N], ids: i32[A, R]", "D[A, R]", "take_along(x, ids, axis = -1)")
            .sized(&[("N", &[7])])
            .drawn(&[("ids", Draw::Index("N"))])
            .moved(),
        row("top_k", "x: D[A, N]", "D[A, 3]", "let (best, _) = top_k(x, 3);  best")
            .of(FLOATS)
            .sized(&[("N", &[33, 3])])
            .drawn(&[("x", Draw::Whole(-4, 4))])
            .moved(),
        row("top_k", "x: D[A, N]", "i32[A, 5]", "let (_, at) = top_k(x, 5);  at")
            .of(FLOATS)
            .sized(&[("N", &[33, 5])])
            .drawn(&[("x", Draw::Whole(-4, 4))])
            .exact("equal numbers in the order of their places"),
        row(
            "update",
            "held: D[B, H, T, W], x: D[B, H, S, W], positions: i32[B, S]",
            "D[B, H, T, W]",
            "update(held, x, positions, axis = 2)",
        )
        .of(EVERY)
        .sized(&[("T", &[9, 4]), ("S", &[2, 4]), ("B", &[3, 1])])
        .drawn(&[("positions", Draw::Consecutive("T"))])
        .moved(),
    ]
}

/// Primitives that compute nothing, so that no executor has them.
pub const NO_VALUE: &[(&str, &str)] = &[(
    "size",
    "a number in the condition of a twin; `tests/twins.rs` and `dsl/tests/prelude.rs` \
             run both sides",
)];
