//! Every primitive and every op of the prelude on MLX and on IREE, over `tests/conformance`; `dsl/tests/conformance.rs` has the
//! interpreter, and holds that the tables leave nothing out. The book's table is printed here.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use mgraph_dsl::{interpret::Operand, ir::DType};
use mgraph_runtime::{
    backend::Backend,
    direct::{Many, Settings},
    session::Numerics,
};
use mgraph_tests::executors::{dtype, operand};

#[path = "conformance/mod.rs"]
#[allow(dead_code, reason = "the interpreter's test needs more of it")]
mod conformance;

use conformance::{
    cases::{Call, Suite},
    composites,
    primitives::{self, UNIT},
    row::{Executor, Of, Row, Within},
};

fn rows() -> Vec<Row> {
    primitives::rows().into_iter().chain(composites::rows()).collect()
}

/// The worst of each row, and what is wrong.
fn judged(backend: Backend, executor: Executor) -> (BTreeMap<usize, f64>, Vec<String>) {
    // A few ops by name, for who looks for a fault.
    let mut chosen = rows();
    if let Ok(op) = std::env::var("MGRAPH_OP") {
        chosen.retain(|row| op.split_whitespace().any(|op| row.op == op));
    }
    let suite = Suite::new(executor, chosen);
    let (mut worst, mut wrong) = (BTreeMap::new(), Vec::new());
    for family in [DType::F32, DType::F16, DType::BF16] {
        let settings = Settings { numerics: Numerics::Pinned, float: dtype(family) };
        let refusal = |call: &Call| suite.rows[call.row].refusal(executor, call.dtype);
        let unasked = |call: &Call| refusal(call).is_some_and(|refused| refused.says.is_none());
        let mine = |call: &&Call| call.family == family && !unasked(call);
        let calls: Vec<&Call> = suite.calls.iter().filter(mine).collect();
        let mut many = Many::new(backend, settings);
        for call in &calls {
            many.add(&suite.program, &call.op, call.operands.iter().map(operand).collect());
        }
        for (call, found) in calls.iter().zip(many.run()) {
            let row = &suite.rows[call.row];
            let shown = format!("{} ({}, {})", row.op, call.dtype.name(), call.shown);
            let judge = || {
                if let Some(says) = refusal(call).and_then(|refused| refused.says) {
                    return match found {
                        Err(error) if format!("{error:#}").contains(says) => Ok(0.0),
                        Err(error) => Err(format!("{error:#}")),
                        Ok(_) => Err("it was to be refused".into()),
                    };
                }
                let found = found.map_err(|error| format!("{error:#}"))?;
                let [found] = found.as_slice() else { return Err(format!("{} results", found.len())) };
                if found.dtype != dtype(call.gives) {
                    return Err(format!("the result is {:?}", found.dtype));
                }
                let numbers = found.to_f64();
                let units = suite.units(call, &numbers, false)?;
                let (at, most) = units.iter().copied().enumerate().fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
                let bound = row.within.bound(executor);
                if most > bound {
                    let meant = suite.single(call)?.to_f64()[at];
                    let count = units.iter().filter(|units| **units > bound).count();
                    let of = operands(call, at);
                    return Err(format!(
                        "{count} of {}: {most:.3} units: {:?} for {meant:?}{of}",
                        units.len(),
                        numbers[at]
                    ));
                }
                Ok(most)
            };
            match judge() {
                Ok(units) => {
                    let worst = worst.entry(call.row).or_insert(0.0_f64);
                    *worst = worst.max(units);
                }
                Err(said) => wrong.push(format!("{shown}: {said}")),
            }
        }
    }
    (worst, wrong)
}

/// The elements that made an element, where operands have the result's shape.
fn operands(call: &Call, at: usize) -> String {
    let mut shown = String::new();
    for operand in call.operands.iter().filter(|_| call.edges) {
        if let Operand::Tensor(x) = operand {
            let _ = write!(shown, ", of {:?}", x.to_f64()[at]);
        }
    }
    shown
}

fn bound(within: &Within, executor: Executor) -> String {
    let n = within.bound(executor);
    match within.of(executor) {
        Of::Exact => "exact".into(),
        Of::Number => "exact, but for the sign of zero".into(),
        Of::Ulp => format!("{n} ulp"),
        Of::Sum => format!("{n} eps of the sum of magnitudes"),
        Of::Text(UNIT) => format!("{n} eps"),
        Of::Text(text) => format!("{n} eps of `{text}`"),
        Of::Largest => format!("{n} eps of the largest"),
    }
}

/// Rows of one op that say the same share a line; `seen` is the worst on MLX and on IREE, by row.
fn table(rows: &[Row], seen: [&BTreeMap<usize, f64>; 2]) -> String {
    let mut lines: Vec<([String; 4], String, [f64; 2])> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let bounds = [Executor::Interpreter, Executor::Mlx, Executor::Iree].map(|e| bound(&row.within, e));
        let [interpreter, mlx, iree] = bounds;
        let mut why = row.why.to_owned();
        for refused in row.refused {
            let dtypes: Vec<&str> = refused.dtypes.iter().map(|dtype| dtype.name()).collect();
            let _ = write!(why, "; {}: {}", dtypes.join(", "), refused.why);
        }
        let op = format!("`{}`", row.op.replace('|', "\\|"));
        let (key, most) = ([op, interpreter, mlx, iree], seen.map(|seen| seen.get(&at).copied().unwrap_or(0.0)));
        match lines.iter_mut().find(|(k, w, _)| *k == key && *w == why) {
            Some((_, _, worst)) => *worst = [worst[0].max(most[0]), worst[1].max(most[1])],
            None => lines.push((key, why, most)),
        }
    }
    let mut page = "| op | interpreter | MLX | IREE | seen on MLX | seen on IREE | because |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for ([op, interpreter, mlx, iree], why, [on_mlx, on_iree]) in lines {
        let few = |x: f64| if x == 0.0 { "0".to_owned() } else { format!("{x:.2}") };
        let (on_mlx, on_iree) = (few(on_mlx), few(on_iree));
        let _ = writeln!(page, "| {op} | {interpreter} | {mlx} | {iree} | {on_mlx} | {on_iree} | {why} |");
    }
    page
}

/// A table without its two columns that another processor may fill otherwise.
fn bounds_of(table: &str) -> String {
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let kept = cells.iter().enumerate().filter(|(i, _)| cells.len() < 7 || !(4..6).contains(i));
        kept.map(|(_, cell)| *cell).collect::<Vec<_>>().join(" | ")
    };
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn backends_keep_their_bounds_and_the_book_says_them() {
    let (mlx, mut wrong) = judged(Backend::Mlx, Executor::Mlx);
    let (iree, more) = judged(Backend::Iree, Executor::Iree);
    wrong.extend(more);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    if std::env::var_os("MGRAPH_OP").is_some() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/conformance.md");
    let text = std::fs::read_to_string(&page).expect("a page of the book");
    let begin = "<!-- printed: conformance -->\n";
    let (before, rest) = text.split_once(begin).expect("the page prints the table");
    let (shown, after) = rest.split_once("<!-- end -->\n").expect("the table ends");
    let fresh = table(&rows(), [&mlx, &iree]);
    if std::env::var_os("MGRAPH_BLESS").is_some() {
        let whole = format!("{before}{begin}\n{fresh}\n<!-- end -->\n{after}");
        std::fs::write(&page, whole).expect("a writable page");
    } else {
        let same = bounds_of(shown.trim()) == bounds_of(fresh.trim());
        assert!(same, "book/src/conformance.md is stale; MGRAPH_BLESS=1 prints it again");
    }
}
