//! A family that is there for its ops alone, and numbers to call them with.

use mgraph_dsl::{compile_whole_prelude, ir::Program, prelude_sources};

/// `ops` within the least family that the checker takes.
pub fn program(ops: &str) -> Program {
    let text = format!(
        "family toy for \"toy\"\n\
         config {{ vocab: dim = \"vocab\"  hidden: dim = \"hidden\" }}\n\
         {ops}\n\
         model {{\n\
             table: Embedding(vocab, hidden)\n\
             graph embed(tokens: i32[B, S]) -> F[B, S, hidden] {{ table(tokens) }}\n\
             graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {{\n\
                 table.logits(rows_at(x, wanted))\n\
             }}\n\
         }}\n"
    );
    let mut sources = prelude_sources();
    let file = sources.add("toy.mgraph", text);
    compile_whole_prelude(sources, file).unwrap_or_else(|failed| panic!("{failed}"))
}

/// From -1 to 1, the same every time.
pub fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
