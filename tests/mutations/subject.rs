//! The family of the mutants with checkpoints, and the calls in which the certificate looks at it.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use mgraph_dsl::ir::{DType, TwinBackend};
use mgraph_runtime::model::Model;
use mgraph_tests::certificate::Case;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::{mutants, table::Emitter};

const HIDDEN: usize = 64;
const INNER: usize = 96;
const EXPERTS: usize = 4;
const VOCAB: usize = 80;
const KV: usize = 32;
const GROUP: usize = 32;

/// The family with dense matrices, and with packed ones.
pub struct Models([(Option<usize>, Arc<Model>); 3]);

impl Models {
    pub fn open() -> Models {
        Models([None, Some(4), Some(3)].map(|bits| (bits, model(bits))))
    }
}

fn model(bits: Option<usize>) -> Arc<Model> {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), bits);
    Model::open(folder.path(), &[&mutants::FAMILY]).unwrap()
}

fn checkpoint(folder: &Path, bits: Option<usize>) {
    let mut config = json!({
        "model_type": "mutants", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": EXPERTS,
        "num_experts_per_tok": 2, "sliding_window": 5, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "taps": [-1, 0],
    });
    if let Some(bits) = bits {
        config["quantization"] = json!({ "bits": bits, "group_size": GROUP });
    }
    let mut tensors: BTreeMap<String, (Dtype, Vec<usize>)> = BTreeMap::new();
    let mut dense = |name: &str, shape: &[usize]| drop(tensors.insert(name.into(), (Dtype::F32, shape.to_vec())));
    let mut matrices = vec![("embed_tokens".to_owned(), vec![VOCAB, HIDDEN])];
    dense("norm.weight", &[HIDDEN]);
    dense("tapped.mixing", &[HIDDEN, HIDDEN]);
    for layer in 0..2 {
        let at = |name: &str| format!("layers.{layer}.{name}");
        dense(&at("before_attention.weight"), &[HIDDEN]);
        dense(&at("before_mixture.weight"), &[HIDDEN]);
        dense(&at("before_mixture.bias"), &[HIDDEN]);
        dense(&at("attention.q_proj.bias"), &[HIDDEN]);
        dense(&at("mixture.router"), &[EXPERTS, HIDDEN]);
        matrices.extend([
            (at("attention.q_proj"), vec![HIDDEN, HIDDEN]),
            (at("attention.k_proj"), vec![KV, HIDDEN]),
            (at("attention.v_proj"), vec![KV, HIDDEN]),
            (at("attention.o_proj"), vec![HIDDEN, HIDDEN]),
            (at("mixture.dense.gate_proj"), vec![INNER, HIDDEN]),
            (at("mixture.dense.up_proj"), vec![INNER, HIDDEN]),
            (at("mixture.dense.down_proj"), vec![HIDDEN, INNER]),
            (at("mixture.routed.gate_proj"), vec![EXPERTS, INNER, HIDDEN]),
            (at("mixture.routed.up_proj"), vec![EXPERTS, INNER, HIDDEN]),
            (at("mixture.routed.down_proj"), vec![EXPERTS, HIDDEN, INNER]),
        ]);
    }
    for (name, shape) in matrices {
        let [rows @ .., columns] = &shape[..] else { unreachable!("a matrix has columns") };
        let of = |columns: usize| [rows, &[columns]].concat();
        match bits {
            Some(bits) => {
                tensors.insert(format!("{name}.weight"), (Dtype::U32, of(columns * bits / 32)));
                tensors.insert(format!("{name}.scales"), (Dtype::F32, of(columns / GROUP)));
                tensors.insert(format!("{name}.biases"), (Dtype::F32, of(columns / GROUP)));
            }
            None => drop(tensors.insert(format!("{name}.weight"), (Dtype::F32, shape))),
        }
    }
    // Every number is zero: only what is computed with them is looked at.
    let zeros = vec![0_u8; 4 * EXPERTS * INNER * HIDDEN];
    let views = tensors.iter().map(|(name, (dtype, shape))| {
        let bytes = &zeros[..4 * shape.iter().product::<usize>()];
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// B, S, R, T.
const CHUNK: [usize; 4] = [1, 6, 1, 32];
const ROWS: [usize; 4] = [2, 3, 3, 32];
const STEP: [usize; 4] = [1, 1, 1, 32];

/// Bits of the matrices, sizes, `F`, whether `fused`: together they reach every call in every function.
const CALLS: [(Option<usize>, [usize; 4], DType, bool); 11] = [
    (None, CHUNK, DType::F32, false),
    (None, STEP, DType::F32, false),
    (None, STEP, DType::BF16, true),
    (None, ROWS, DType::BF16, false),
    (None, ROWS, DType::F32, true),
    (Some(4), CHUNK, DType::F32, false),
    (Some(4), STEP, DType::F32, true),
    (Some(4), STEP, DType::BF16, true),
    (Some(4), CHUNK, DType::BF16, true),
    (Some(4), CHUNK, DType::F32, true),
    (Some(3), CHUNK, DType::BF16, false),
];

/// One call, and what the IR says of it.
pub struct Subject<'a> {
    pub case: Case<'a>,
    pub name: String,
    /// With the twins of each backend.
    mlx: Vec<String>,
    hlo: Vec<String>,
}

impl Subject<'_> {
    pub fn ir(&self, emitter: Emitter) -> &[String] {
        match emitter {
            Emitter::Mlx => &self.mlx,
            Emitter::Hlo => &self.hlo,
        }
    }
}

pub fn subjects(models: &Models) -> Vec<Subject<'_>> {
    let mut subjects = Vec::new();
    for (bits, sizes, float, fused) in CALLS {
        let model = models.0.iter().find(|(of, _)| *of == bits).map(|(_, model)| model).unwrap();
        for graph in ["embed", "forward"] {
            let (program, resolved, bindings) = (&*model.program, &*model.resolved, &*model.bindings);
            let case = Case { program, resolved, bindings, graph, sizes, float, fused };
            let stored = bits.map_or("dense".into(), |bits| format!("{bits} bits"));
            let mode = if fused { "fused" } else { "pinned" };
            let [rows, tokens, ..] = sizes;
            let name = format!("`{graph}`, {rows} x {tokens} tokens, {stored}, {float:?}, {mode}");
            let [mlx, hlo] = [TwinBackend::Mlx, TwinBackend::Hlo].map(|backend| case.of_ir(backend).unwrap());
            subjects.push(Subject { case, name, mlx, hlo });
        }
    }
    subjects
}
