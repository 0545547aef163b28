//! SmolLM2-135M-Instruct, packed and expanded: MLX beside mlx-lm on the same weights, IREE beside llama.cpp.

use std::{fs, path::Path};

use mgraph_runtime::error::{Result, ensure};

use crate::{
    contender::{Contender, Load, Measured, rounds},
    expand,
};

const LOAD: Load = Load { prefill: 256, decode: 128, rounds: 3 };

pub fn run(root: &Path) -> Result<()> {
    let models = root.join(".toolchain/models");
    let packed = models.join("smollm2-135m-instruct");
    let gguf = models.join("smollm2-135m-instruct.gguf");
    ensure!(packed.is_dir() && gguf.is_file(), "the real model is not here: `make model` fetches and imports it");
    let dense = models.join("smollm2-135m-instruct-f32");
    expand::to_f32(&packed, &dense)?;

    let contenders = [
        Contender::peer("mlx-lm", "Q4_1", "mlx-lm", &packed, LOAD),
        Contender::ours("MLX", "Q4_1", &packed, LOAD),
        Contender::peer("mlx-lm", "f32", "mlx-lm", &dense, LOAD),
        Contender::ours("MLX", "f32", &dense, LOAD),
        Contender::peer("llama.cpp", "Q4_1", "llama-cpp", &gguf, LOAD),
        Contender::ours("IREE", "Q4_1", &packed, LOAD),
        Contender::ours("IREE", "f32", &dense, LOAD),
    ];
    let best = rounds(&contenders, LOAD)?;
    table(&contenders, &best);
    println!("checkpoint Q4_1: {:.0} MB", fs::metadata(packed.join("model.safetensors"))?.len() as f64 / 1e6);
    Ok(())
}

/// Ours beside the peer that the mark is set against.
fn table(contenders: &[Contender], best: &[Measured]) {
    let find = |who: &str, what: &str| contenders.iter().position(|c| (c.who, c.what) == (who, what)).map(|i| &best[i]);
    let Load { prefill, decode, rounds } = LOAD;
    println!(
        "\nprefill {prefill} tokens, decode {decode}; best of {rounds} interleaved rounds; ratios to the peer named"
    );
    println!("{:10} {:6} {:>14} {:>14} {:>11}  beside", "who", "weights", "prefill tok/s", "decode tok/s", "peak MB");
    for (Contender { who, what, .. }, m) in contenders.iter().zip(best) {
        let peer = match *who {
            "MLX" => Some("mlx-lm"),
            "IREE" => Some("llama.cpp"),
            _ => None,
        };
        let beside = peer.and_then(|p| Some((p, find(p, what).or_else(|| find(p, "Q4_1"))?))).map(|(p, other)| {
            format!(
                "{p}: prefill {:.2}x, decode {:.2}x",
                m.prefill_tok_s / other.prefill_tok_s,
                m.decode_tok_s / other.decode_tok_s
            )
        });
        let peak = m.peak_rss_bytes as f64 / 1e6;
        println!(
            "{who:10} {what:6} {:>14.1} {:>14.1} {peak:>11.0}  {}",
            m.prefill_tok_s,
            m.decode_tok_s,
            beside.unwrap_or_default()
        );
    }
}
