//! The StableHLO backend, piece by piece, through MLIR text and IREE. Each file has its cases; here is what they share.

mod cache;
mod graphs;
mod pinned;
mod primitives;
mod text;

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Build, BuildOptions, Compare, DType, Graph, Type, V, WeightType,
    artifact::Artifacts,
    compile::{FLAGS, compile},
    emit,
    graph::{ArgumentKind, Part, ResultKind},
    iree::Runtime,
    readback::{Operand, Read, read},
};
use crate::{
    probes::{Probes, Stages},
    tensor::Tensor,
};

fn options() -> BuildOptions {
    BuildOptions {
        float: DType::F32,
        fused: false,
        probes: Probes::Unread,
        positions: 8,
        weights: Arc::default(),
        windows: Default::default(),
        states: Arc::default(),
    }
}

/// Values as f64 with a shape, to write cases down.
fn t(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "case");
    let bytes: Vec<u8> = match dtype {
        DType::I32 => values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
        DType::U32 => values.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
        DType::U8 => values.iter().map(|v| *v as u8).collect(),
        DType::Bool => values.iter().map(|v| u8::from(*v != 0.0)).collect(),
        DType::F32 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
        float => return t(DType::F32, shape, values).to_float(float),
    };
    Tensor { dtype, shape: shape.to_vec(), bytes }
}

fn f(shape: &[usize], values: &[f64]) -> Tensor {
    t(DType::F32, shape, values)
}

/// Numbers that are no pattern.
fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f64) / f64::from(1 << 23) - 1.0
    };
    f(shape, &(0..shape.iter().product()).map(|_| next()).collect::<Vec<_>>())
}

/// Record with `body`, compile, call.
fn run_with(options: BuildOptions, inputs: &[Tensor], body: impl FnOnce(&mut Build, &[V]) -> Vec<V>) -> Vec<Tensor> {
    let mut build = Build::new(options);
    let dims = |t: &Tensor| t.shape.iter().map(|d| *d as i64).collect::<Vec<_>>();
    let values: Vec<V> = inputs.iter().map(|t| build.input(t.dtype, &dims(t))).collect();
    let outputs = body(&mut build, &values);
    let graph = build.finish(&outputs).expect("types");
    let text = emit::text(&graph).expect("emission");
    let module = compile(&text, &FLAGS).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
    let runtime = Runtime::new().expect("runtime");
    let types = graph.results.iter().map(|r| graph.ty(r.value).clone()).collect();
    let program = runtime.load(&module, types).expect("load");
    let arguments = inputs.iter().map(|t| runtime.upload(t).expect("upload")).collect();
    let results = program.call(arguments).expect("call");
    results.iter().map(|r| runtime.download(r).expect("download")).collect()
}

fn run(inputs: &[Tensor], body: impl FnOnce(&mut Build, &[V]) -> Vec<V>) -> Vec<Tensor> {
    run_with(options(), inputs, body)
}

#[track_caller]
fn same(found: &Tensor, expected: &Tensor) {
    near(found, expected, 0.0);
}

/// Elements within `ulps` units of the last place of f32; NaN equals NaN, and zeros differ by sign.
#[track_caller]
fn near(found: &Tensor, expected: &Tensor, ulps: f64) {
    assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape));
    for (i, (x, y)) in found.to_f64().iter().zip(expected.to_f64()).enumerate() {
        let bound = ulps * f64::from(f32::EPSILON) * y.abs().max(1e-30);
        let equal = (x.is_nan() && y.is_nan()) || *x == y || (x - y).abs() <= bound;
        assert!(equal, "element {i}: {x}, expected {y}");
    }
}

fn map(x: &Tensor, g: impl Fn(f64) -> f64) -> Tensor {
    t(x.dtype, &x.shape, &x.to_f64().into_iter().map(g).collect::<Vec<_>>())
}

/// `x [.., m, k]` times `y [.., k, n]`, leading axes equal, in f64.
fn product(x: &Tensor, y: &Tensor) -> Tensor {
    let rank = x.shape.len();
    let (m, k, n) = (x.shape[rank - 2], x.shape[rank - 1], y.shape[rank - 1]);
    let (xs, ys) = (x.to_f64(), y.to_f64());
    let batch: usize = x.shape[..rank - 2].iter().product();
    let mut out = Vec::new();
    for b in 0..batch {
        for i in 0..m {
            for j in 0..n {
                out.push((0..k).map(|c| xs[(b * m + i) * k + c] * ys[(b * k + c) * n + j]).sum::<f64>());
            }
        }
    }
    f(&[&x.shape[..rank - 1], &[n]].concat(), &out)
}

fn swapped(x: &Tensor) -> Tensor {
    let rank = x.shape.len();
    let (m, n) = (x.shape[rank - 2], x.shape[rank - 1]);
    let values = x.to_f64();
    let batch = values.len() / (m * n);
    let mut out = Vec::new();
    for b in 0..batch {
        for j in 0..n {
            out.extend((0..m).map(|i| values[(b * m + i) * n + j]));
        }
    }
    f(&[&x.shape[..rank - 2], &[n, m]].concat(), &out)
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor, bound: f64) {
    assert_eq!(found.shape, expected.shape);
    for (x, y) in found.to_f64().iter().zip(expected.to_f64()) {
        assert!((x - y).abs() <= bound, "{x}, expected {y}");
    }
}

fn weights(entries: &[(&str, WeightType)]) -> Arc<BTreeMap<String, WeightType>> {
    Arc::new(entries.iter().map(|(path, ty)| ((*path).to_owned(), ty.clone())).collect())
}

fn load(runtime: &Runtime, graph: &Graph) -> super::iree::Program {
    let text = emit::text(graph).unwrap();
    let module = compile(&text, &FLAGS).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
    runtime.load(&module, graph.results.iter().map(|r| graph.ty(r.value).clone()).collect()).unwrap()
}
