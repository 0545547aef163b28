//! The inputs of graphs: which tensors a graph takes in a call, checked before any work, and what `step` is told of a batch.

use std::{collections::BTreeMap, ops::Range};

use mgraph_dsl::{
    config::Resolved,
    dim::Dim,
    ir::{Function, LoadKind, ParameterKind, Program, TensorType, Type},
    load::{Environment, Val, extent},
};

use crate::{
    error::{Context, Result, anyhow, bail, ensure},
    pictures::OfTokens,
    session::{Batch, within},
    tensor::{DType, Tensor},
    weights::concrete,
};

/// A parameter of a graph for calls of certain sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

/// What a call of one graph is given.
#[derive(Debug, Clone)]
pub struct Given {
    /// By name, in the order of the graph's parameters.
    pub inputs: Vec<(String, Tensor)>,
    /// The rows of the session that the call covers, as many as `B`; where the graph has no `B`, none is told.
    pub rows: Option<Range<usize>>,
    /// One past the largest of `positions`; 0 where the graph takes none.
    pub reach: usize,
    /// The first position of each row; none where the graph takes no positions.
    pub starts: Vec<usize>,
    /// Tokens per row, where the graph takes positions.
    pub width: usize,
}

impl Given {
    /// The rows that a call of a session of `rows` rows covers: all of them, where the graph does not tell.
    ///
    /// Errors: rows that the session does not have.
    pub fn covered(&self, rows: usize) -> Result<Range<usize>> {
        let covered = self.rows.clone().unwrap_or(0..rows);
        within(&covered, rows)?;
        Ok(covered)
    }
}

/// What the free dims of `step` are in a call.
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
    free: BTreeMap<&'a str, usize>,
}

impl Environment for Names<'_> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.resolved.get(path).cloned()
    }
    fn free(&self, name: &str) -> Option<i64> {
        self.free.get(name).and_then(|size| i64::try_from(*size).ok())
    }
}

impl Names<'_> {
    fn shape(&self, function: &Function, ty: &TensorType, what: &str) -> Result<Vec<usize>> {
        let size = |dim| {
            extent(dim, function.span, self)
                .map_err(|error| anyhow!("{what}: {}", error.located(&self.program.sources)))
        };
        ty.shape.dims.iter().map(size).collect()
    }
}

fn graph<'p>(program: &'p Program, name: &str) -> Result<&'p Function> {
    program.graph(name).with_context(|| format!("family {} has no graph {name}", program.name))
}

/// The parameters of a graph: all of them dense tensors, which the checker sees to.
pub(crate) fn declared<'p>(function: &'p Function) -> Result<Vec<(&'p str, &'p TensorType)>> {
    let tensor = |parameter: &'p mgraph_dsl::ir::Parameter| {
        let (graph, name) = (&function.name, &parameter.name);
        let ParameterKind::Value(id) = parameter.kind else { bail!("graph {graph} takes {name}, which is no tensor") };
        match &function.value(id).ty {
            Type::Tensor(ty) => Ok((name.as_str(), ty)),
            Type::Matrix(_) | Type::List { .. } => bail!("graph {graph} takes {name}, which is no dense tensor"),
        }
    };
    function.parameters.iter().map(tensor).collect()
}

/// `N`, where a dim is a free one by itself.
fn lone(dim: &Dim) -> Option<&str> {
    match &dim.as_atom()?.load.kind {
        LoadKind::Free(name) => Some(name),
        _ => None,
    }
}

/// What is given to a graph by name, as the graph takes it: in its order, floats in the dtype that it declares. Its rows are those
/// of the session from `first_row` on.
///
/// Errors: a graph or an input that there is not, one too few, and a dtype or shape that does not fit the declaration.
pub fn of_graph(
    program: &Program,
    resolved: &Resolved,
    name: &str,
    given: &[(&str, Tensor)],
    first_row: usize,
    float: DType,
) -> Result<Given> {
    let function = graph(program, name)?;
    let declared = declared(function)?;
    let all = || declared.iter().map(|(input, _)| *input).collect::<Vec<_>>().join(", ");
    if let Some((unknown, _)) = given.iter().find(|(input, _)| !declared.iter().any(|(known, _)| known == input)) {
        bail!("graph {name} takes no {unknown}; it takes {}", all());
    }
    let mut names = Names { program, resolved, free: BTreeMap::new() };
    let mut inputs = Vec::with_capacity(declared.len());
    for (input, ty) in &declared {
        let found = given.iter().find(|(known, _)| known == input);
        let (_, tensor) =
            found.with_context(|| format!("graph {name} is called without {input}; it takes {}", all()))?;
        let dtype = concrete(ty.dtype, float);
        ensure!(
            tensor.dtype == dtype || (tensor.dtype.is_float() && dtype.is_float()),
            "graph {name} takes {input} as {dtype:?}, and is given {:?}",
            tensor.dtype
        );
        ensure!(
            tensor.shape.len() == ty.shape.dims.len(),
            "graph {name} takes {input} with {} axes, and is given {:?}",
            ty.shape.dims.len(),
            tensor.shape
        );
        for (dim, size) in ty.shape.dims.iter().zip(&tensor.shape) {
            if let Some(free) = lone(dim) {
                names.free.entry(free).or_insert(*size);
            }
        }
        let tensor = if dtype.is_float() { tensor.to_float(dtype) } else { tensor.clone() };
        inputs.push(((*input).to_owned(), tensor));
    }
    for ((input, ty), (_, tensor)) in declared.iter().zip(&inputs) {
        let expected = names.shape(function, ty, &format!("input {input} of graph {name}"))?;
        let dims = || ty.shape.dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        ensure!(
            tensor.shape == expected,
            "input {input} of graph {name} has shape {:?}; beside the others it must be {expected:?}, which is [{}]",
            tensor.shape,
            dims()
        );
    }
    let positions = inputs.iter().find(|(input, _)| input == "positions");
    let positions = positions.map(|(_, tensor)| bytemuck::pod_collect_to_vec::<u8, i32>(&tensor.bytes));
    ensure!(positions.iter().flatten().all(|p| *p >= 0), "graph {name} is given a negative position");
    let width = positions.as_ref().and(names.free.get("S")).copied().unwrap_or(0);
    let starts = positions.iter().flatten().step_by(width.max(1)).map(|p| *p as usize).collect();
    let reach = positions.into_iter().flatten().max().map_or(0, |p| p as usize + 1);
    let rows = names.free.get("B").map(|rows| first_row..first_row.saturating_add(*rows));
    Ok(Given { inputs, rows, reach, starts, width })
}

/// The shape of an input of a graph, as far as config alone tells it: free dims are 1.
pub fn declared_shape(program: &Program, resolved: &Resolved, name: &str, input: &str) -> Result<Vec<usize>> {
    let function = graph(program, name)?;
    let declared = declared(function)?;
    let free =
        declared.iter().flat_map(|(_, ty)| ty.shape.dims.iter().filter_map(lone)).map(|free| (free, 1)).collect();
    let found = declared.iter().find(|(known, _)| *known == input);
    let (_, ty) = found.with_context(|| format!("graph {name} takes no {input}"))?;
    Names { program, resolved, free }.shape(function, ty, &format!("input {input} of graph {name}"))
}

/// The shape of a graph's first result, where an input of this shape tells all the sizes it has.
pub fn result_shape(
    program: &Program,
    resolved: &Resolved,
    name: &str,
    input: &str,
    shape: &[usize],
) -> Result<Vec<usize>> {
    let function = graph(program, name)?;
    let declared = declared(function)?;
    let found = declared.iter().find(|(known, _)| *known == input);
    let (_, ty) = found.with_context(|| format!("graph {name} takes no {input}"))?;
    let dims = ty.shape.dims.iter().zip(shape);
    let free = dims.filter_map(|(dim, size)| Some((lone(dim)?, *size))).collect();
    let Some(Type::Tensor(result)) = function.results.first() else { bail!("graph {name} gives no tensor") };
    Names { program, resolved, free }.shape(function, result, &format!("the result of graph {name}"))
}

/// The parameters of `step`: those of `embed`, then those of `forward` but for the embedding, each once.
///
/// Errors: a size that the config does not give.
pub fn of_step(program: &Program, resolved: &Resolved, sizes: CallSizes, float: DType) -> Result<Vec<Input>> {
    let free = BTreeMap::from([("B", sizes.rows), ("S", sizes.width), ("R", sizes.wanted)]);
    let names = Names { program, resolved, free };
    let mut inputs: Vec<Input> = Vec::new();
    for name in ["embed", "forward"] {
        let function = graph(program, name)?;
        for (input, ty) in declared(function)? {
            if input == "x" || inputs.iter().any(|known| known.name == input) {
                continue;
            }
            let shape = names.shape(function, ty, &format!("input {input} of graph {name}"))?;
            inputs.push(Input { name: input.to_owned(), dtype: concrete(ty.dtype, float), shape });
        }
    }
    Ok(inputs)
}

/// Every input of `step` in order, of a batch.
pub fn of_batch(program: &Program, resolved: &Resolved, batch: &Batch, float: DType) -> Result<Given> {
    let inputs = of_step(program, resolved, batch.into(), float)?;
    let told = inputs.into_iter().map(|input| Ok((input.name.clone(), input.of(batch)?))).collect::<Result<_>>()?;
    let starts = batch.positions.iter().step_by(batch.width.max(1)).map(|position| *position as usize).collect();
    Ok(Given { inputs: told, rows: Some(batch.covered()), reach: batch.reach(), starts, width: batch.width })
}

/// Every input of a graph but those that other graphs make, of a batch.
pub fn of_tokens(
    program: &Program,
    resolved: &Resolved,
    name: &str,
    batch: &Batch,
    float: DType,
) -> Result<Vec<(String, Tensor)>> {
    let names: Vec<&str> = declared(graph(program, name)?)?.into_iter().map(|(input, _)| input).collect();
    let inputs = of_step(program, resolved, batch.into(), float)?;
    let inputs = inputs.into_iter().filter(|input| names.contains(&input.name.as_str()));
    inputs.map(|input| Ok((input.name.clone(), input.of(batch)?))).collect()
}

impl Input {
    /// The value in a call. A row whose request has no pictures says so: no token belongs to a span, every axis has the plain
    /// position, no token looks at a tile.
    fn of(&self, batch: &Batch) -> Result<Tensor> {
        let ids = |values: &[i32]| Ok(Tensor::from_i32(&self.shape, values));
        match self.name.as_str() {
            "tokens" => ids(&batch.tokens),
            "positions" => ids(&batch.positions),
            "wanted" => ids(&batch.wanted),
            "spans" => {
                let span = |told: Option<&OfTokens>, position| match told {
                    None => Ok(0),
                    Some(told) => told.span(position),
                };
                ids(&batch.each_token(span)?)
            }
            "axis_positions" => {
                let mut values = Vec::with_capacity(self.shape.iter().product());
                for axis in 0..self.shape.first().copied().unwrap_or(0) {
                    values.extend(batch.each_token(|told, position| match told {
                        None => Ok(position as i32),
                        Some(told) => told.axis_position(axis, position),
                    })?);
                }
                ids(&values)
            }
            "tile_sight" => {
                let [_, _, room @ ..] = &self.shape[..] else { bail!("tile_sight has shape {:?}", self.shape) };
                let room: usize = room.iter().product();
                let seen = batch.each_token(|told, position| match told {
                    None => Ok(vec![0; room]),
                    Some(told) => told.tile_sight(position, room),
                })?;
                Ok(Tensor { dtype: self.dtype, shape: self.shape.clone(), bytes: seen.concat() })
            }
            other => bail!("graph forward takes {other}, which nothing tells of tokens"),
        }
    }
}
