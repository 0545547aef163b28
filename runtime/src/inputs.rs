//! The inputs of graph `step`, by name: what the engine says of a call, and of pictures what there is to say where a request
//! has words alone. Pictures wait for the processors.

use mgraph_dsl::{
    config::Resolved,
    ir::{ParameterKind, Program, Type},
    load::{Environment, Val, extent},
};

use crate::{
    error::{Context, Result, anyhow, bail},
    session::Batch,
    tensor::{DType, Tensor},
    weights::concrete,
};

/// A parameter of `step` for calls of certain sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// What the free dims of a graph are in a call.
#[derive(Debug, Clone, Copy)]
pub struct CallSizes {
    /// `B`
    pub rows: usize,
    /// `S`
    pub width: usize,
    /// `R`
    pub wanted: usize,
}

impl From<&Batch> for CallSizes {
    fn from(batch: &Batch) -> CallSizes {
        CallSizes { rows: batch.rows, width: batch.width, wanted: batch.wanted_per_row() }
    }
}

/// A config, and the sizes of a call.
struct Names<'a> {
    program: &'a Program,
    resolved: &'a Resolved,
    sizes: CallSizes,
}

impl Environment for Names<'_> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.resolved.get(path).cloned()
    }
    fn free(&self, name: &str) -> Option<i64> {
        let size = match name {
            "B" => self.sizes.rows,
            "S" => self.sizes.width,
            "R" => self.sizes.wanted,
            _ => return None,
        };
        i64::try_from(size).ok()
    }
}

/// Of `step`: those of `embed`, then those of `forward` but for the embedding, each once.
///
/// Errors: a size that the config does not give; an input that neither the engine nor words alone can tell.
pub fn of_step(program: &Program, resolved: &Resolved, sizes: CallSizes, float: DType) -> Result<Vec<Input>> {
    let names = Names { program, resolved, sizes };
    let mut inputs: Vec<Input> = Vec::new();
    for graph in ["embed", "forward"] {
        let function = program.graph(graph).with_context(|| format!("the family has no graph {graph}"))?;
        for parameter in &function.parameters {
            let name = &parameter.name;
            if name == "x" || inputs.iter().any(|input| input.name == *name) {
                continue;
            }
            let ParameterKind::Value(id) = parameter.kind else {
                bail!("graph {graph} takes {name}, which is no tensor");
            };
            let Type::Tensor(ty) = &function.value(id).ty else {
                bail!("graph {graph} takes {name}, which is no dense tensor");
            };
            let dim = |d| {
                extent(d, function.span, &names)
                    .map_err(|error| anyhow!("input {name} of graph {graph}: {}", error.located(&program.sources)))
            };
            let shape = ty.shape.dims.iter().map(dim).collect::<Result<_>>()?;
            let dtype = concrete(ty.dtype, float);
            inputs.push(Input { name: name.clone(), dtype, shape });
        }
    }
    Ok(inputs)
}

impl Input {
    /// The value in a call whose requests have no pictures: no token belongs to a span, every axis has the plain position, no
    /// token looks at a tile.
    pub fn of_words(&self, batch: &Batch) -> Result<Tensor> {
        let ids = |values: &[i32]| Ok(Tensor::from_i32(&self.shape, values));
        match self.name.as_str() {
            "tokens" => ids(&batch.tokens),
            "positions" => ids(&batch.positions),
            "wanted" => ids(&batch.wanted),
            "axis_positions" => ids(&batch.positions.repeat(self.shape.first().copied().unwrap_or(0))),
            "spans" | "tile_sight" => {
                let bytes = self.shape.iter().product::<usize>() * self.dtype.size();
                Ok(Tensor { dtype: self.dtype, shape: self.shape.clone(), bytes: vec![0; bytes] })
            }
            other => {
                bail!("graph forward takes {other}, which the family's processor makes of pictures; none runs yet")
            }
        }
    }
}

/// Every input of `step` for words alone, in order.
pub fn of_words(program: &Program, resolved: &Resolved, batch: &Batch, float: DType) -> Result<Vec<(String, Tensor)>> {
    let inputs = of_step(program, resolved, batch.into(), float)?;
    inputs.into_iter().map(|input| Ok((input.name.clone(), input.of_words(batch)?))).collect()
}
