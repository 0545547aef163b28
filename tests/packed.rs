//! Packed matrices on IREE, at every width that divides a byte: their expansion, and the product as defined and with the twin
//! for one row, within the bound that the prelude declares.

use std::{collections::BTreeMap, sync::Arc};

use mgraph_models::llama::{Config, hlo::prelude};
use mgraph_runtime::{
    generated::Call,
    hlo::{
        Build, BuildOptions, DType, Matrix, Type, V, WeightType, compile, emit,
        graph::{ArgumentKind, Part, ResultKind},
        iree::Runtime,
    },
    probes::Probes,
    tensor::Tensor,
};

const ROWS: usize = 5;

/// Bits that look random and are the same every time.
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Within -1..1, with 11 bits, so that f16 holds them.
    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.bits() >> 21) as f32 / 1024.0 - 1.0).collect()
    }
}

/// A matrix of `ROWS` rows: its bytes, its scales and biases, and what it stands for.
struct Packed {
    columns: usize,
    bits: usize,
    group: usize,
    bytes: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    dense: Vec<f32>,
}

impl Packed {
    fn new(columns: usize, bits: usize, group: usize) -> Packed {
        let mut noise = Noise(bits as u64 * 1000 + group as u64);
        let bytes: Vec<u8> = (0..ROWS * columns * bits / 8).map(|_| noise.bits() as u8).collect();
        let (scales, biases) = (noise.floats(ROWS * columns / group), noise.floats(ROWS * columns / group));
        let number = |i: usize| {
            let (byte, lane) = (bytes[i * bits / 8], i % (8 / bits));
            let code = (u32::from(byte) >> (lane * bits)) & ((1 << bits) - 1);
            code as f32 * scales[i / group] + biases[i / group]
        };
        let dense = (0..ROWS * columns).map(number).collect();
        Packed { columns, bits, group, bytes, scales, biases, dense }
    }

    fn ty(&self, scales: DType) -> WeightType {
        let shape = vec![ROWS as i64, self.columns as i64];
        WeightType::Packed { shape, bits: self.bits as i64, group: self.group as i64, scales }
    }

    fn part(&self, part: Part, ty: &Type) -> Tensor {
        let floats = |values: &[f32]| Tensor::from_f32(&ty.sizes(), values).to_float(ty.dtype);
        match part {
            Part::Codes | Part::Bytes => Tensor { dtype: ty.dtype, shape: ty.sizes(), bytes: self.bytes.clone() },
            Part::Scales => floats(&self.scales),
            Part::Biases => floats(&self.biases),
        }
    }

    /// What `body` makes of `x` and this matrix, and the parts that it reads.
    fn run(
        &self,
        fused: bool,
        scales: DType,
        x: &[f32],
        body: impl FnOnce(&mut Call<'_, Config, Build>, V, &Matrix) -> V,
    ) -> (Vec<f32>, Vec<Part>) {
        let mut build = Build::new(BuildOptions {
            float: DType::F32,
            fused,
            probes: Probes::Unread,
            positions: 1,
            weights: Arc::new(BTreeMap::from([("w".to_owned(), self.ty(scales))])),
            windows: Default::default(),
            states: Arc::default(),
        });
        let input = build.input(DType::F32, &[1, (x.len() / self.columns) as i64, self.columns as i64]);
        let matrix = build.matrix("w");
        let result = body(&mut Call::new(&mgraph_tests::small_config(), &mut build), input, &matrix);
        let graph = build.finish(&[result]).unwrap();
        let module = compile::compile(&emit::text(&graph).unwrap(), &compile::FLAGS).unwrap();
        let runtime = Runtime::new().unwrap();
        let results = graph.results.iter().map(|r| graph.ty(r.value).clone()).collect();
        let program = runtime.load(&module, results).unwrap();
        let mut read = Vec::new();
        let arguments = graph.arguments.iter().map(|argument| {
            let tensor = match &argument.kind {
                ArgumentKind::Packed(_, part) => {
                    read.push(*part);
                    self.part(*part, &argument.ty)
                }
                _ => Tensor::from_f32(&argument.ty.sizes(), x),
            };
            runtime.upload(&tensor).unwrap()
        });
        let results = program.call(arguments.collect()).unwrap();
        assert_eq!(graph.results[0].kind, ResultKind::Output(0));
        (runtime.download(&results[0]).unwrap().to_f32(), read)
    }
}

/// Bits and group: 8, 16, 32 and 64 bytes per group.
const CASES: [(usize, usize); 5] = [(2, 32), (4, 32), (4, 64), (4, 128), (8, 32)];

/// `code * scale + bias`, each rounded.
#[test]
fn expansion() {
    for (bits, group) in CASES {
        let w = Packed::new(3 * group, bits, group);
        let scales = if bits == 4 { DType::F16 } else { DType::F32 };
        let x = vec![0.0; w.columns];
        let (found, read) = w.run(false, scales, &x, |cx, _, w| prelude::expand(cx, w).unwrap());
        assert_eq!(read, [Part::Bytes, Part::Scales, Part::Biases], "words are not passed where bytes are read");
        for (x, y) in found.iter().zip(&w.dense) {
            assert_eq!(x, y, "{bits} bits in groups of {group}");
        }
    }
}

#[test]
fn one_row_and_more() {
    for (bits, group) in CASES {
        let w = Packed::new(3 * group, bits, group);
        for (rows, fused) in [(1, false), (1, true), (2, true)] {
            let x = Noise(7).floats(rows * w.columns);
            let (found, _) = w.run(fused, DType::F32, &x, |cx, x, w| prelude::linear(cx, x, w).unwrap());
            for (i, y) in found.iter().enumerate() {
                let (x, numbers) = (&x[i / ROWS * w.columns..], &w.dense[i % ROWS * w.columns..]);
                let terms = (0..w.columns).map(|k| f64::from(x[k]) * f64::from(numbers[k]));
                let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let error = (f64::from(*y) - exact).abs();
                assert!(error <= 1e-5 * size, "{bits} bits in groups of {group}, {rows} rows: {y} for {exact}");
            }
        }
    }
}
