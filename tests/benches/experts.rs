//! What a token of a mixture of experts costs: with the experts that it visits, or with all there are?
//!
//! The same layers with 8 of 64, 8 of 128 and 32 of 64 experts, and dense with the width of 8: all but 32 of 64 multiply a token with as
//! many weights. Time of cores says it, which other work on the machine does not stretch.

use std::path::Path;

use mgraph_runtime::error::Result;

use crate::{
    contender::{Contender, Load, Measured, agree, rounds},
    random::{FeedForward, Shape, checkpoint},
};

const LOAD: Load = Load { prefill: 64, decode: 32, rounds: 2 };
const INNER: usize = 256;

const CASES: [(&str, FeedForward); 4] = [
    ("dense, as wide as 8", FeedForward::Dense { inner: 8 * INNER }),
    ("8 of 64", FeedForward::Experts { count: 64, active: 8, inner: INNER }),
    ("8 of 128", FeedForward::Experts { count: 128, active: 8, inner: INNER }),
    ("32 of 64", FeedForward::Experts { count: 64, active: 32, inner: INNER }),
];

const WHO: [&str; 3] = ["mlx-lm", "MLX", "IREE"];

fn shape(feed_forward: FeedForward) -> Shape {
    Shape { layers: 4, hidden: 512, heads: 8, kv_heads: 4, head_dim: 64, feed_forward }
}

pub fn run(root: &Path) -> Result<()> {
    let mut contenders = Vec::new();
    for (what, feed_forward) in CASES {
        let dir = checkpoint(&root.join("target/bench"), &shape(feed_forward))?;
        contenders.push(Contender::peer("mlx-lm", what, "mlx-lm", &dir, LOAD));
        contenders.extend(["MLX", "IREE"].map(|who| Contender::ours(who, what, &dir, LOAD)));
    }
    let best = rounds(&contenders, LOAD)?;
    for (theirs, of_case) in contenders.chunks(WHO.len()).zip(best.chunks(WHO.len())) {
        agree(theirs, of_case)?;
    }
    table(&best);
    Ok(())
}

fn table(best: &[Measured]) {
    let Load { prefill, decode, rounds } = LOAD;
    println!(
        "\nexperts: 4 layers of 512, experts of {INNER}, random weights, f32; prefill {prefill} tokens, decode {decode}; best of up to \
         {rounds} interleaved rounds; per case all decode the same tokens"
    );
    println!(
        "{:8} {:20} {:>14} {:>14} {:>18} {:>11}",
        "who", "experts", "prefill tok/s", "decode tok/s", "core ms per token", "peak MB"
    );
    for (place, who) in WHO.iter().enumerate() {
        for ((what, _), of_case) in CASES.iter().zip(best.chunks(WHO.len())) {
            let m = &of_case[place];
            println!(
                "{who:8} {what:20} {:>14.1} {:>14.1} {:>18.2} {:>11.0}",
                m.prefill_tok_s,
                m.decode_tok_s,
                m.decode_cpu_ms,
                m.peak_rss_bytes as f64 / 1e6
            );
        }
    }
}
