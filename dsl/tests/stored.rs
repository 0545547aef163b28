//! Every form of `as`, on dense and on packed matrices: the same numbers stored in other ways give the same logits.

use std::{collections::BTreeMap, sync::Arc};

use mgraph_dsl::{
    bind::{Stored, StoredDtype, WeightKind, bind},
    compile_text,
    config::resolve,
    interpret::{Interpreter, Precision, Tensor},
    ir::DType,
};

const WIDTH: usize = 32;
const WORDS: usize = 6;
const EXPERTS: usize = 2;
const BITS: usize = 4;
const GROUP: usize = 16;

/// [`plain`] leaves out what follows `as`.
const FAMILY: &str = r#"
family toy for "toy"
config { words: dim = "words"  width: dim = "width"  experts: dim = "experts" }
type Hidden = F[B, S, width]
model as "" | "language_model" {
    table:   Q[words, width]                      as "wte.old.weight" + "wte.new.weight"
    up:      Linear(width, width)                 as "fused"[0..width]
    down:    Linear(width, width)                 as "fused"[width..2 * width]
    experts_mlp: SwiGluExperts(experts, width, width) as "experts.{}" | "switch_mlp"
    graph embed(tokens: i32[B, S]) -> Hidden { lookup(table, tokens) }
    graph forward(x: Hidden, positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, words] {
        let x = up(x) - down(x) * 0.5;
        let chosen = broadcast(iota(experts), [B, S, experts]);
        let share = broadcast(F(0.5), [B, S, experts]);
        linear(rows_at(x + experts_mlp(x, chosen, share), wanted), table)
    }
}
"#;

/// The same without `as`.
fn plain() -> String {
    let lines = FAMILY.lines().map(|line| match line.split_once(" as ") {
        Some((field, rest)) if rest.ends_with('{') => format!("{field} {{"),
        Some((field, _)) => field.to_string(),
        None => line.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A matrix of whole sixteenths, so that it can be packed without loss: one code of 4 bits each.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    codes: Vec<u8>,
}

impl Matrix {
    fn new(rows: usize, seed: u32) -> Matrix {
        let mut state = seed;
        let codes = (0..rows * WIDTH).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 20) as u8 % 16
        });
        Matrix { rows, codes: codes.collect() }
    }

    fn cut(&self, low: usize, high: usize) -> Matrix {
        Matrix { rows: high - low, codes: self.codes[low * WIDTH..high * WIDTH].to_vec() }
    }

    fn over(&self, other: &Matrix) -> Matrix {
        Matrix { rows: self.rows + other.rows, codes: [&self.codes[..], &other.codes[..]].concat() }
    }
}

#[derive(Default)]
struct Store {
    tensors: BTreeMap<String, (Stored, Vec<u8>)>,
}

impl Store {
    fn tensor(&mut self, name: &str, dtype: StoredDtype, shape: &[usize], bytes: Vec<u8>) {
        let shape = shape.iter().map(|n| *n as u64).collect();
        self.tensors.insert(name.to_owned(), (Stored { shape, dtype }, bytes));
    }

    /// `lead` splits the rows into a stack.
    fn matrix(&mut self, module: &str, matrix: &Matrix, lead: &[usize], packed: bool) {
        let rows = matrix.rows / lead.iter().product::<usize>();
        let shape = |last: usize| [lead, &[rows, last]].concat();
        let floats = |numbers: Vec<f32>| numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        if !packed {
            let numbers = matrix.codes.iter().map(|code| f32::from(*code) / 16.0 - 0.5).collect();
            return self.tensor(&format!("{module}.weight"), StoredDtype::F32, &shape(WIDTH), floats(numbers));
        }
        let words = matrix.codes.chunks(32 / BITS);
        let words = words.map(|codes| codes.iter().rev().fold(0u32, |word, code| word << BITS | u32::from(*code)));
        let words = words.flat_map(u32::to_le_bytes).collect();
        self.tensor(&format!("{module}.weight"), StoredDtype::U32, &shape(WIDTH * BITS / 32), words);
        let groups = matrix.rows * WIDTH / GROUP;
        for (side, number) in [("scales", 1.0 / 16.0), ("biases", -0.5)] {
            let bytes = floats(vec![number; groups]);
            self.tensor(&format!("{module}.{side}"), StoredDtype::F32, &shape(WIDTH / GROUP), bytes);
        }
    }

    fn logits(&self, family: &str, packed: bool) -> Vec<f64> {
        let program = Arc::new(compile_text("toy.mgraph", family).unwrap_or_else(|failed| panic!("{failed}")));
        let config = serde_json::json!({ "words": WORDS, "width": WIDTH, "experts": EXPERTS });
        let resolved = Arc::new(resolve(&program, &config, &[]).expect("the config is right"));
        let stored = self.tensors.iter().map(|(name, (stored, _))| (name.clone(), stored.clone())).collect();
        let bindings = bind(&program, &resolved, &stored, &|_| None).unwrap_or_else(|faults| panic!("{faults:?}"));
        let kind = WeightKind::Packed { bits: BITS as u32, group: GROUP as u32 };
        assert!(bindings.weights.iter().all(|w| w.kind == if packed { kind } else { WeightKind::Matrix }));
        let bytes: BTreeMap<String, Vec<u8>> = self.tensors.iter().map(|(n, (_, b))| (n.clone(), b.clone())).collect();
        let read = move |name: &str| bytes.get(name).cloned().ok_or_else(|| format!("no tensor {name}"));
        let mut reference =
            Interpreter::new(program, resolved, bindings.into(), DType::F32, Precision::Double, Box::new(read));
        let ids = |numbers: &[i32]| Tensor::i32(vec![1, numbers.len()], numbers.to_vec()).expect("ids");
        let tokens = ids(&[5, 0, 3]);
        let x = reference.call("embed", &[("tokens", tokens)], &[0], 3).expect("embed runs").results.remove(0);
        let inputs = [("x", x), ("positions", ids(&[0, 1, 2])), ("wanted", ids(&[0, 1, 2]))];
        reference.call("forward", &inputs, &[0], 3).expect("forward runs").results[0].to_f64()
    }
}

/// The numbers of every field, in the order of the family.
struct Numbers {
    table: Matrix,
    up: Matrix,
    down: Matrix,
    /// Gate, up and down of the experts, one above the other.
    experts: [(&'static str, Matrix); 3],
}

fn numbers() -> Numbers {
    let experts = |name, seed| (name, Matrix::new(EXPERTS * WIDTH, seed));
    Numbers {
        table: Matrix::new(WORDS, 1),
        up: Matrix::new(WIDTH, 2),
        down: Matrix::new(WIDTH, 3),
        experts: [experts("gate_proj", 4), experts("up_proj", 5), experts("down_proj", 6)],
    }
}

#[test]
fn stored_in_other_ways_it_is_the_same_model() {
    let Numbers { table, up, down, experts } = numbers();
    let mut whole = Store::default();
    // Without `as`, `table` is stored under its own name.
    whole.matrix("up", &up, &[], false);
    whole.matrix("down", &down, &[], false);
    for (name, matrix) in &experts {
        whole.matrix(&format!("experts_mlp.{name}"), matrix, &[EXPERTS], false);
    }
    whole.matrix("table", &table, &[], false);
    let (stored, bytes) = whole.tensors.remove("table.weight").expect("just put there");
    whole.tensors.insert("table".into(), (stored, bytes));
    let expected = whole.logits(&plain(), false);
    assert!(expected.iter().any(|x| x.abs() > 1e-3));

    for packed in [false, true] {
        for (root, stacked) in [("", false), ("", true), ("language_model.", false), ("language_model.", true)] {
            let mut store = Store::default();
            store.matrix(&format!("{root}wte.old"), &table.cut(0, 4), &[], packed);
            store.matrix(&format!("{root}wte.new"), &table.cut(4, WORDS), &[], packed);
            store.matrix(&format!("{root}fused"), &up.over(&down), &[], packed);
            for (name, matrix) in &experts {
                if stacked {
                    store.matrix(&format!("{root}switch_mlp.{name}"), matrix, &[EXPERTS], packed);
                    continue;
                }
                for expert in 0..EXPERTS {
                    let own = matrix.cut(expert * WIDTH, (expert + 1) * WIDTH);
                    store.matrix(&format!("{root}experts.{expert}.{name}"), &own, &[], packed);
                }
            }
            let found = store.logits(FAMILY, packed);
            let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-9, "{root:?}, stacked: {stacked}, packed: {packed}: off by {worst:e}");
        }
    }
}
