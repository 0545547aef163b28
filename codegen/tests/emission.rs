//! The text that the emitters write: it parses, it is the same every time, and a folder of families becomes a registry, or
//! an error with places.

use std::{fs, path::Path};

use mgraph_codegen::{Options, build, emit, emit_pair, format};
use mgraph_dsl::ir::Program;

fn llama() -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/families/llama.mgraph");
    let program = mgraph_dsl::compile_file(&path).expect("reads");
    program.unwrap_or_else(|failed| panic!("{failed}"))
}

fn text(program: &Program) -> String {
    format(emit(program, &Options::default()).expect("emits")).expect("parses")
}

#[test]
fn the_same_program_gives_the_same_text() {
    let text = text(&llama());
    assert_eq!(text, self::text(&llama()));
    syn::parse_file(&text).expect("is a Rust file");
}

#[test]
fn the_text_reads_like_the_source() {
    let text = text(&llama());
    for line in [
        "/// `block Layer`, llama.mgraph:",
        "pub struct Config {",
        "for layer in &self.layers {",
        "if cfg.tied {",
        "pub fn silu(cx: &mut Call<'_>, x: &Array) -> Result<Array> {",
        "pub fn silu(cx: &mut Call<'_>, x: V) -> Result<V> {",
        "cx.probe(format_args!(\"layer.{}.attn\", self.i), ",
        "return kernels::rms_norm(x, weight, eps);",
        "cx.update_state(&self.k, new_k, positions, -2)",
        "pub static FAMILY: Family = Family {",
    ] {
        assert!(text.contains(line), "no line with `{line}` in\n{text}");
    }
}
