//! Two probes of one name, each under its condition: the trace tells which of them a config runs.

use std::collections::BTreeMap;

use mgraph_dsl::{
    bind::{Stored, StoredDtype, bind},
    compile_text,
    config::resolve,
    ir::DType,
    trace::{Sizes, trace},
};

const FAMILY: &str = r#"
family toy for "toy"
config {
    vocab:  dim  = "vocab"
    hidden: dim  = "hidden"
    scaled: bool = "scaled"
}
type Hidden = F[B, S, hidden]
model {
    table: Embedding(vocab, hidden)
    graph embed(tokens: i32[B, S]) -> Hidden { table(tokens) }
    graph forward(x: Hidden, positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        let x = rows_at(x, wanted);
        if scaled {
            (table.logits(x) * 2.0) @ "logits"
        } else {
            table.logits(x) @ "logits"
        }
    }
}
"#;

#[test]
fn the_probe_that_ran_is_the_one_whose_place_is_told() {
    let program = compile_text("toy.mgraph", FAMILY).unwrap();
    let line = |span| program.sources.line_column(span).0;
    let written: Vec<usize> =
        FAMILY.lines().enumerate().filter(|(_, line)| line.contains("@ \"logits\"")).map(|(at, _)| at + 1).collect();
    for (scaled, place) in [(true, written[0]), (false, written[1])] {
        let config = serde_json::json!({ "vocab": 3, "hidden": 2, "scaled": scaled });
        let resolved = resolve(&program, &config, &[]).unwrap();
        let table = Stored { shape: vec![3, 2], dtype: StoredDtype::F32 };
        let stored = BTreeMap::from([("table.weight".to_owned(), table)]);
        let bindings = bind(&program, &resolved, &stored, &|_| None).unwrap();
        let sizes = Sizes {
            inputs: &[("x", DType::F, &[1, 1, 2]), ("positions", DType::I32, &[1, 1]), ("wanted", DType::I32, &[1, 1])],
            rows: 1,
            positions: 1,
            family: DType::F32,
            twins: None,
        };
        let trace = trace(&program, &resolved, &bindings, "forward", &sizes).unwrap();
        let probes: Vec<_> = trace.probes.iter().map(|(name, span)| (name.as_str(), line(*span))).collect();
        assert_eq!(probes, [("logits", place)], "scaled: {scaled}");
    }
    assert_eq!(program.probe("logits").map(line), Some(written[0]), "the text alone tells the first");
}
