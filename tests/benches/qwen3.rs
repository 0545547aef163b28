//! Qwen3 with random weights, 8 layers of 1024 in the proportions of Qwen3-0.6B, in f32: MLX and IREE beside every peer that computes it.

use std::path::Path;

use mgraph_runtime::error::Result;

use crate::{
    contender::{Contender, Load, Measured, agree, available, rounds},
    random::{FeedForward, Shape, checkpoint},
};

const LOAD: Load = Load { prefill: 512, decode: 64, rounds: 2 };

const SHAPE: Shape = Shape {
    layers: 8,
    hidden: 1024,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    feed_forward: FeedForward::Dense { inner: 3072 },
};

/// As the table calls them, with their programs.
const PEERS: [(&str, &str); 3] = [("mlx-lm", "mlx-lm"), ("transformers", "transformers"), ("keras-hub", "keras-hub")];

pub fn run(root: &Path) -> Result<()> {
    let dir = checkpoint(&root.join("target/bench"), &SHAPE)?;
    let peers = PEERS.into_iter().filter(|(_, script)| available(root, script));
    let mut contenders: Vec<Contender> =
        peers.map(|(who, script)| Contender::peer(who, "f32", script, &dir, LOAD)).collect();
    let theirs = contenders.len();
    contenders.extend(["MLX", "IREE"].map(|who| Contender::ours(who, "f32", &dir, LOAD)));
    let best = rounds(&contenders, LOAD)?;
    agree(&contenders, &best)?;
    table(&contenders, &best, theirs);
    Ok(())
}

/// Ours beside all peers, of which there are `theirs`, the first ones.
fn table(contenders: &[Contender], best: &[Measured], theirs: usize) {
    let Load { prefill, decode, rounds } = LOAD;
    let Shape { layers, hidden, heads, kv_heads, head_dim, .. } = SHAPE;
    println!(
        "\nQwen3, random weights, f32: {layers} layers of {hidden}, {heads} heads of {head_dim} ({kv_heads} of keys), inner 3072, \
         vocabulary 8192\nprefill {prefill} tokens, decode {decode} after them; best of up to {rounds} interleaved rounds; all \
         decode the same tokens"
    );
    println!("{:13} {:>14} {:>14} {:>11}  beside: prefill, decode", "who", "prefill tok/s", "decode tok/s", "peak MB");
    for (i, (contender, m)) in contenders.iter().zip(best).enumerate() {
        let beside: Vec<String> = contenders[..theirs]
            .iter()
            .zip(best)
            .filter(|_| i >= theirs)
            .map(|(peer, other)| {
                let (prefill, decode) = (m.prefill_tok_s / other.prefill_tok_s, m.decode_tok_s / other.decode_tok_s);
                format!("{} {prefill:.2}x, {decode:.2}x", peer.who)
            })
            .collect();
        println!(
            "{:13} {:>14.1} {:>14.1} {:>11.0}  {}",
            contender.who,
            m.prefill_tok_s,
            m.decode_tok_s,
            m.peak_rss_bytes as f64 / 1e6,
            beside.join("; ")
        );
    }
}
