//! What `cargo build` generates for one family: the registry entry through which the runtime reaches it.

pub use mgraph_dsl::ir::ProcessorKind;
use mgraph_dsl::{
    compile_text,
    config::Resolved,
    ir::{FieldKind, Program},
};

use crate::{
    backend::Backend,
    error::{Result, anyhow, bail},
    hlo, mlx,
};

/// An entry of the generated registry.
pub struct Family {
    /// As after `family`.
    pub name: &'static str,
    /// Values of `model_type` in config.json that this family serves.
    pub model_types: &'static [&'static str],
    /// Values of `architectures` there that this family serves: they tell where `model_type` is not there, or is several families'.
    pub architectures: &'static [&'static str],
    pub capabilities: Capabilities,
    /// Path of the source, as diagnostics show it.
    pub file: &'static str,
    /// The source itself: config, binding and the reference interpreter run from it.
    pub source: &'static str,
    /// [`mgraph_dsl::ir::Program::digest`] of what the code was generated from.
    pub digest: &'static str,
    /// Build the eager MLX module over bound weights.
    pub mlx: MlxLoader,
    /// Emit one graph as StableHLO.
    pub hlo: HloEmitter,
}

pub type MlxLoader = fn(&Resolved, &mut mlx::Weights<'_>) -> Result<Box<dyn mlx::Module>>;

/// What a family can do here. Printed into the book from the registry (`tests/registry.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Where it sees pictures: what has to be made of them. `None`: it reads words alone.
    pub pictures: Option<ProcessorKind>,
    /// For which code was generated; the reference executor runs every family.
    pub backends: &'static [Backend],
    /// Whether any of its matrices may be stored packed.
    pub packed: bool,
}

impl Capabilities {
    /// Of a family for which code was generated for `backends`.
    pub fn of(program: &Program, backends: &'static [Backend]) -> Capabilities {
        let fields = program.blocks.iter().flat_map(|block| &block.fields);
        Capabilities {
            pictures: program.processor.as_ref().map(|processor| processor.kind),
            backends,
            packed: fields.into_iter().any(|field| matches!(field.kind, FieldKind::Matrix(_))),
        }
    }
}

/// Config, recorder, name of the graph, its parameters in order; the graph's results in order.
pub type HloEmitter = fn(&Resolved, &mut hlo::Build, &str, &[hlo::V]) -> Result<Vec<hlo::V>>;

impl Family {
    /// A family that is only text: `source` of the file `file`, for which no code was generated. The interpreter runs it; either
    /// backend refuses it with what to do. It lives as long as the process, as those of the registry do.
    ///
    /// Errors: the mistakes of the text, rendered.
    pub fn of_text(file: &str, source: &str) -> Result<&'static Family> {
        let program = compile_text(file, source).map_err(|failed| anyhow!("{file} does not compile:\n{failed}"))?;
        let kept = |text: &str| -> &'static str { Box::leak(text.into()) };
        let all = |names: &[String]| -> &'static [&'static str] {
            Box::leak(names.iter().map(|name| kept(name)).collect::<Vec<_>>().into_boxed_slice())
        };
        Ok(Box::leak(Box::new(Family {
            name: kept(&program.name),
            model_types: all(&program.model_types),
            architectures: all(&program.architectures),
            capabilities: Capabilities::of(&program, &[]),
            file: kept(file),
            source: kept(source),
            digest: kept(&program.digest),
            mlx: |_, _| bail!("{NOT_GENERATED}"),
            hlo: |_, _, _, _| bail!("{NOT_GENERATED}"),
        })))
    }
}

const NOT_GENERATED: &str = "this family was read from a file, and no code was generated from it: run it on the reference \
                             executor, or build it into a binary (`mlxcel new family` begins one)";
