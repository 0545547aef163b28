//! A family written wrong that no stage of a golden tells: the list of ops does.

use mgraph_dsl::{
    interpret::Precision,
    ir::DType,
    trace::{Sizes, trace},
};

use crate::{
    fixture::{Edit, Golden},
    request::{Request, fed},
    stages::first_difference,
};

/// `x / (1 + exp(-x))` differs from `x * sigmoid(x)` in the last bits alone: no stage of a golden tells (an accelerator's gate did,
/// after 13 minutes). The list of ops does, before anything runs.
#[test]
fn the_quotient_form_of_silu_is_another_list_of_ops() {
    let quotient = [Edit { from: "{ x * sigmoid(x) }", to: "{ x / (1.0 + exp(-x)) }" }];
    let traces = [&[], &quotient[..]].map(|edits| {
        let golden = Golden::edited("llama", "llama", edits);
        let (tokens, pictures) = fed(&golden, None);
        let mut request = Request::new(&golden, Precision::Single, DType::F32, pictures);
        request.forward(&tokens, 0..tokens.len());
        assert!(first_difference(&golden, &request, None).is_none());
        let inputs =
            [("x", DType::F, &[1, 12, 96][..]), ("positions", DType::I32, &[1, 12]), ("wanted", DType::I32, &[1, 1])];
        let sizes = Sizes { inputs: &inputs, rows: 1, positions: 16, family: DType::F32, twins: None };
        let trace = trace(&golden.program, &golden.resolved, &golden.bindings, "forward", &sizes).expect("a trace");
        trace.nodes.into_iter().map(|node| node.what).collect::<Vec<_>>()
    });
    assert_ne!(traces[0], traces[1]);
}
