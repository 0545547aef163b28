//! The path of `make vision` at a size that a test can afford: released widths of Molmo2-4B's vision part on two layers, stored in
//! bf16, a picture of nine crops, MLX beside IREE, within the family's contract.

use std::{ops::ControlFlow, rc::Rc};

use mgraph_fullsize::{Shapes, Stored, checkpoint, inputs};
use mgraph_runtime::{
    backend::Backend,
    model::Model,
    parity::{self, Golden, Outcome, Part, Parts, Row, Settings, Verdict, Watch},
    session::{Float, Numerics},
};

#[test]
fn the_vision_gate_on_two_layers() {
    let dir = tempfile::tempdir().unwrap();
    checkpoint(dir.path(), &Shapes::SHALLOW, Stored::Bf16, 20).unwrap();
    let view = inputs(dir.path(), &Shapes::SHALLOW, "large", 8, 20).unwrap();
    assert_eq!((view.crops, view.features), (9, 3 * 3 + 5 * 9));
    let model = Model::open(dir.path(), mgraph_models::FAMILIES).unwrap();
    let given = Golden::open(&dir.path().join("large.safetensors")).unwrap();
    let settings = |backend| Settings { backend, numerics: Numerics::Pinned, dtype: Float::F32 };
    let mut parts = Parts::start();
    let progress = Rc::new(|_: &str| ()) as mgraph_runtime::session::Progress;
    let made = parity::made_in_parts(&model, &given, settings(Backend::Iree), 0, &progress, &mut parts).unwrap();
    let mut rows = Vec::new();
    let mut keep = |row: &Row| {
        rows.push(row.clone());
        ControlFlow::Continue(())
    };
    let watch = Watch { wanted: &|_| true, progress, on_row: &mut keep, parts: &mut parts };
    let tally = parity::watched(&model, &made, settings(Backend::Mlx), watch).unwrap();
    assert_eq!((tally.diverged, tally.unjudged), (0, 0), "{rows:?}");
    // Two stages before the layers, three of each, three after them, fourteen of the adapter, six of the text, logits, states.
    assert_eq!(rows.len(), 2 + 2 * 3 + 3 + 14 + 6 + 1 + model.states().len() - 1, "{rows:?}");
    assert!(rows.iter().all(|row| row.verdict() == Verdict::Within));
    // The contract leaves the projector room for bf16; in f32 it is nowhere near.
    let far = |row: &Row| match &row.outcome {
        Outcome::Compared { difference, .. } => difference.max_abs,
        Outcome::Mismatch(_) | Outcome::NotProbed => f64::INFINITY,
    };
    let projected = rows.iter().find(|row| row.stage == "adapter.projected").map(far);
    assert!(projected.is_some_and(|far| far > 0.0 && far < 1e-4), "{projected:?}");
    let spent: Vec<Part> = parts.all().iter().map(|(part, _)| *part).collect();
    let (iree, mlx) = (Backend::Iree, Backend::Mlx);
    let all = [Part::Load(iree), Part::Compile(iree), Part::Run(iree), Part::Load(mlx), Part::Compare, Part::Run(mlx)];
    assert_eq!(spent, all);
}
