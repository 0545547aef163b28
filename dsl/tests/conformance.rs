//! Every primitive and every op of the prelude on the reference interpreter, f32 beside f64, over `tests/conformance`; and
//! that the tables there leave nothing out.

use mgraph_dsl::{interpret::Typed, ir::DType, ops::primitives, source::PRELUDE};

#[path = "../../tests/conformance/mod.rs"]
#[allow(dead_code, reason = "backends need more of it")]
mod conformance;

use conformance::{
    cases::{Call, Suite, compiled, text},
    composites,
    primitives::{self as own, NO_VALUE},
    row::{Executor, Row},
    types::ALL,
};

fn rows() -> Vec<Row> {
    own::rows().into_iter().chain(composites::rows()).collect()
}

/// Where a composite rounds to a narrow dtype at every step, edge values are far from those of f64: then the steps are the
/// meaning, and only backends can be judged.
fn steps_matter(call: &Call, row: &Row) -> bool {
    let composite = composites::rows().iter().any(|r| r.op == row.op);
    composite && call.edges && matches!(call.dtype, DType::F16 | DType::BF16)
}

#[test]
fn the_interpreter_keeps_its_bounds() {
    let suite = Suite::new(Executor::Interpreter, rows());
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for call in &suite.calls {
        let row = &suite.rows[call.row];
        if steps_matter(call, row) {
            continue;
        }
        judged += 1;
        let bound = row.within.bound(Executor::Interpreter);
        let judge = || {
            let found = suite.single(call)?;
            if found.dtype() != call.gives {
                return Err(format!("the result is {}", found.dtype().name()));
            }
            let units = suite.units(call, &found.to_f64(), true)?;
            Ok(units.into_iter().fold(0.0, f64::max))
        };
        match judge() {
            Ok(units) if units <= bound => {}
            Ok(units) => wrong.push(format!("{} ({}, {}): {units} units", row.op, call.dtype.name(), call.shown)),
            Err(said) => wrong.push(format!("{} ({}, {}): {said}", row.op, call.dtype.name(), call.shown)),
        }
    }
    assert!(wrong.is_empty(), "{} of {judged}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_primitive_and_no_op_of_the_prelude_is_left_out() {
    let (primitive_rows, composite_rows) = (own::rows(), composites::rows());
    for primitive in primitives() {
        let excused = NO_VALUE.iter().any(|(name, _)| *name == primitive.name);
        assert!(
            excused || primitive_rows.iter().any(|row| row.op == primitive.name),
            "no row for `{}`",
            primitive.name
        );
    }
    let program = compiled("").expect("the prelude compiles");
    for op in program.ops.iter().filter(|op| op.span.file == PRELUDE) {
        assert!(composite_rows.iter().any(|row| row.op == op.name), "no row for `{}` of the prelude", op.name);
    }
    for row in &composite_rows {
        assert!(row.body.contains(&format!("{}(", row.op)), "the row of `{}` calls something else", row.op);
    }
}

#[test]
fn rows_list_every_dtype_that_the_checker_admits() {
    let mut wrong = Vec::new();
    for row in own::rows().iter().filter(|row| row.elementwise) {
        // Several rows may share an operator's dtypes.
        let listed =
            |dtype| own::rows().iter().any(|r| r.op == row.op && r.body == row.body && r.dtypes.contains(&dtype));
        for dtype in ALL {
            let admitted = compiled(&text("row", row.takes, row.gives, row.body, dtype)).is_ok();
            if admitted != listed(dtype) {
                let says = if admitted { "admits" } else { "refuses" };
                wrong.push(format!("`{}` of {}: the checker {says} it", row.body, dtype.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_says_what_is_left_open() {
    let page = include_str!("../../book/src/language/primitives.md");
    for row in rows() {
        for open in row.open {
            assert!(page.contains(open.sentence), "the row of `{}` leaves open what no sentence says", row.op);
        }
    }
}
