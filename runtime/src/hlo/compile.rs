//! StableHLO text to a VMFB, by IREE's compiler: a shared library, loaded when the first graph has to be compiled.
//!
//! The compiler runs in this process and keeps some hundred megabytes of it until the end; a start that finds its graphs in
//! the [cache](super::artifact) never loads it.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::UNIX_EPOCH,
};

use eerie::compiler::{Compiler, CompilerError};
use tempfile::NamedTempFile;

use crate::error::{Context as _, Result, anyhow};

/// Where the compiler library lies: the library itself, or a folder that has it.
pub const LIBRARY_VARIABLE: &str = "IREE_COMPILER_LIB";

/// One target: this machine. Without O2 a matrix-vector product costs ten times as much (measured: 13-22 ms for 1.3 ms).
/// f64 would become f32, of which the reduction of angles would notice ([`super::emit`]). The compiler would evaluate
/// constants on an IREE of its own, whose threads cannot start beside OpenBLAS ([`super::iree`]); they are evaluated at load.
pub const FLAGS: [&str; 7] = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-type=stablehlo",
    "--iree-opt-level=O2",
    "--iree-input-demote-f64-to-f32=false",
    "--iree-opt-const-eval=false",
];

/// Of so many tokens or patches on, a graph is compiled with [`WIDE`] too.
const MANY: usize = 512;

/// A dispatch may take half of a worker's stack, which is 2 MiB ([`super::iree`]). IREE's own limit of 32 KiB refuses a sum beside a
/// norm of 729 rows of 1152 numbers, and the graph is compiled a second time.
const WIDE: &str = "--iree-llvmcpu-stack-allocation-limit=1048576";

/// Added where the compiler fails, which O2's fusions can make it do: a masked softmax that two read becomes one dispatch with stores
/// outside of its workgroups (`attention_3d_gqa_causal` of `tests/onnx`).
const CAREFUL: &str = "--iree-dispatch-creation-enable-aggressive-fusion=false";

/// For a graph of `tokens` tokens over weights that are packed or not.
///
/// Data tiling lets a packed matrix unpack straight into the layout that the product wants (14% at 64 tokens). Of fewer than 16 tokens
/// the product is the prelude's `linear_by_lanes`, which has no use for another layout (576 x 1536 times 8 tokens: 0.27 ms without,
/// 0.37 with). A weight that is dense would be laid out anew in each call (decode 21.7 to 61 ms), and a single token has nothing to
/// gain. Of many tokens it is little beside the product, and products of odd sizes gain most: of 1458 patches, two layers of Molmo2's
/// tower take 2.5 s of CPU instead of 3.4 s.
pub fn flags(tokens: usize, packed: bool) -> Vec<&'static str> {
    let tiling = tokens >= if packed { 16 } else { MANY };
    let tiling = tiling.then_some("--iree-global-opt-data-tiling");
    FLAGS.into_iter().chain(tiling).chain((tokens >= MANY).then_some(WIDE)).collect()
}

/// The compiler library: from the environment, else where the build found it.
pub fn library() -> Result<PathBuf> {
    let path = env::var_os(LIBRARY_VARIABLE).filter(|set| !set.is_empty()).map(PathBuf::from);
    let path = path.or_else(|| option_env!("IREE_COMPILER_LIB").map(PathBuf::from));
    let advice = format!(
        "`make setup` installs it; or `pip install iree-base-compiler=={}` and let IREE_COMPILER_LIB name its libIREECompiler",
        super::iree::VERSION
    );
    let path = path.ok_or_else(|| anyhow!("IREE's compiler is needed and {LIBRARY_VARIABLE} is not set: {advice}"))?;
    if !path.exists() {
        return Err(anyhow!("IREE's compiler is not at {}: {advice}", path.display()));
    }
    Ok(path)
}

/// What tells one compiler from another without loading it: size and time of the library.
pub fn identity(library: &Path) -> Result<String> {
    let data = library.metadata().with_context(|| format!("looking at {}", library.display()))?;
    let time = data.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("{} bytes, modified {}", data.len(), time.as_nanos()))
}

/// What the compiler calls itself. Loads it.
pub fn revision(library: &Path) -> Result<String> {
    let compiler = Compiler::with_library(library).map_err(|e| anyhow!("{e}"))?;
    compiler.get_revision().map_err(|e| anyhow!("{e}"))
}

/// Bytes of temporary files that there has to be room for: ten times the largest module of the families here (measured: 0.37 MB).
const TEMPORARY: usize = 4 << 20;

/// Asks the folder of the compiler's temporary files whether it takes any: where it does not, the compiler ends the process.
fn room_for_temporary_files() -> Result<()> {
    // As LLVM looks for it.
    let named = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"].iter().find_map(env::var_os);
    let folder = named.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let asked = NamedTempFile::new_in(&folder).and_then(|mut file| file.write_all(&vec![0; TEMPORARY]));
    asked.with_context(|| {
        format!(
            "IREE's compiler writes temporary files to {}, which does not take {} MB; make room there, or let TMPDIR name \
             another folder",
            folder.display(),
            TEMPORARY >> 20
        )
    })
}

/// Compile one module. One at a time: the compiler sets up its targets on first use, and two that do so together crash.
pub fn compile(text: &str, flags: &[&str]) -> Result<Vec<u8>> {
    static ONE: Mutex<()> = Mutex::new(());
    let library = library()?;
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    room_for_temporary_files()?;
    // MLIR recurses deeper than the 2 MiB of a Rust thread may hold.
    let run = || {
        let compiler = Compiler::with_library(&library).map_err(|e| anyhow!("{e}"))?;
        let attempt = |flags: &[&str]| {
            compiler.compile_str(text, flags).map_err(|e| match e {
                CompilerError::IREECompilerDiagnosticsError(found) => {
                    anyhow!("IREE does not compile the graph: {found}")
                }
                CompilerError::IREECompilerError(error, found) => {
                    anyhow!("IREE does not compile the graph: {error}\n{found}")
                }
                other => anyhow!("IREE does not compile the graph: {other}"),
            })
        };
        attempt(flags).or_else(|error| attempt(&[flags, &[CAREFUL]].concat()).map_err(|_| error))
    };
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("iree-compile".into()).stack_size(64 << 20).spawn_scoped(scope, run);
        let worker = worker.context("starting a thread for IREE's compiler")?;
        worker.join().map_err(|_| anyhow!("IREE's compiler thread ended abruptly"))?
    })
}
