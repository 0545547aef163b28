//! The families of the tests (`families/`); and a drift for the certificate to catch: `llama` whose StableHLO emitter alone was
//! given another text of `silu`.

use std::{env, fs, path::PathBuf};

use mgraph_codegen::{Options, emit_pair, format};
use mgraph_dsl::{
    compile, compile_text, prelude_sources,
    source::{PRELUDE, Sources},
};

const FAMILY: &str = "../models/families/llama.mgraph";
const SILU: &str = "{ x * sigmoid(x) }";
const QUOTIENT: &str = "{ x / (1.0 + exp(-x)) }";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    mgraph_codegen::build::families("families");
    println!("cargo::rerun-if-changed={FAMILY}");
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string(FAMILY)?;
    let faithful = compile_text(FAMILY, &text)?;

    let prelude = prelude_sources().get(PRELUDE).text.clone();
    if prelude.matches(SILU).count() != 1 {
        return Err(format!("the prelude no longer has exactly one {SILU}").into());
    }
    let mut sources = Sources::default();
    sources.add("prelude.mgraph", prelude.replace(SILU, QUOTIENT));
    let family = sources.add(FAMILY, &text);
    let drifted = compile(sources, family)?;

    let path = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join(FAMILY).canonicalize()?;
    let module = format(emit_pair(&faithful, &drifted, &Options { path: Some(path) })?)?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("quotient_silu.rs"), module)?;
    Ok(())
}
