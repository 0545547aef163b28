//! The states of a session: one buffer each for all rows, rows outermost, so that some rows are a piece of it. A call is passed the
//! piece, and what it assigns is written there: nothing is copied, and no other row is touched.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    ops::Range,
    sync::Arc,
};

use super::{
    artifact::Artifacts,
    build::{Build, BuildOptions},
    compile,
    graph::Graph,
    iree::{Buffer, Program, Runtime},
    types::{DType, Type, V},
};
use crate::{
    error::{Context as _, Result, anyhow, ensure},
    tensor::Tensor,
};

/// Compiled code takes a buffer to begin at a multiple of this many bytes (`IREE_HAL_HEAP_BUFFER_ALIGNMENT`).
const ALIGNMENT: usize = 64;

pub struct States {
    /// Of all rows, by field path.
    types: Arc<BTreeMap<String, Type>>,
    rows: usize,
    held: BTreeMap<String, Held>,
    /// Cuts pieces out of buffers; loaded when a call covers some rows for the first time.
    cutter: Option<Program>,
    pieces: HashMap<Range<usize>, BTreeMap<String, Buffer>>,
}

/// One state, all rows.
enum Held {
    Device(Buffer),
    /// Rows do not begin where compiled code could find them: passed by copy. Such states are small, for positions come in hundreds.
    Host(Tensor),
}

impl States {
    /// Nothing is held before [`States::reset`].
    pub fn new(types: Arc<BTreeMap<String, Type>>, rows: usize) -> States {
        States { types, rows, held: BTreeMap::new(), cutter: None, pieces: HashMap::new() }
    }

    /// The types of states of so many rows.
    pub fn types(&self, rows: usize) -> Arc<BTreeMap<String, Type>> {
        let of = |(path, ty): (&String, &Type)| (path.clone(), rows_of(ty, rows));
        Arc::new(self.types.iter().map(of).collect())
    }

    /// All are zero. The old ones go first, so that there is never room for both.
    pub fn reset(&mut self, runtime: &Runtime) -> Result<()> {
        self.pieces.clear();
        self.held.clear();
        for (path, ty) in self.types.iter() {
            let held = if self.rows == 1 || row_bytes(ty).is_multiple_of(ALIGNMENT) {
                Held::Device(runtime.zeros(ty)?)
            } else {
                Held::Host(Tensor::zeros(ty.dtype, &ty.sizes()))
            };
            self.held.insert(path.clone(), held);
        }
        Ok(())
    }

    /// By path, what lies on the device.
    fn on_device(&self) -> (Vec<String>, Vec<Buffer>) {
        let on_device = self.held.iter().filter_map(|(path, held)| match held {
            Held::Device(buffer) => Some((path.clone(), buffer.clone())),
            Held::Host(_) => None,
        });
        on_device.unzip()
    }

    /// Loads what cuts, so that no call has to.
    pub fn prepare(&mut self, runtime: &Runtime, artifacts: &Artifacts, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let (_, wholes) = self.on_device();
        if self.cutter.is_none() && !wholes.is_empty() {
            let types: Vec<&Type> = wholes.iter().map(Buffer::ty).collect();
            let module = artifacts.get(&cutter(&types)?, &compile::FLAGS, "what finds rows of states", progress)?;
            self.cutter = Some(runtime.load(&module, types.into_iter().cloned().collect())?);
        }
        Ok(())
    }

    /// Makes pieces of these rows, which [`States::piece`] gives.
    pub fn cut(
        &mut self,
        rows: &Range<usize>,
        runtime: &Runtime,
        artifacts: &Artifacts,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        if *rows == (0..self.rows) || self.pieces.contains_key(rows) {
            return Ok(());
        }
        let (paths, wholes) = self.on_device();
        let types: Vec<Type> = wholes.iter().map(|whole| rows_of(whole.ty(), rows.len())).collect();
        if wholes.is_empty() {
            self.pieces.insert(rows.clone(), BTreeMap::new());
            return Ok(());
        }
        self.prepare(runtime, artifacts, progress)?;
        let cutter = self.cutter.as_ref().context("the module that cuts states is loaded")?;
        let bounds = [rows.start, rows.len()].map(|n| n as i32);
        let bounds = runtime.upload(&Tensor::from_i32(&[2], &bounds))?;
        let pieces = cutter.call_for([bounds].into_iter().chain(wholes).collect(), &types)?;
        self.pieces.insert(rows.clone(), paths.into_iter().zip(pieces).collect());
        Ok(())
    }

    /// Some rows of a state, which were cut. A call that assigns the state writes into this buffer.
    pub fn piece(&self, path: &str, rows: &Range<usize>, runtime: &Runtime) -> Result<Buffer> {
        match self.held(path)? {
            Held::Host(whole) => runtime.upload(&rows_in(whole, rows)),
            Held::Device(whole) if *rows == (0..self.rows) => Ok(whole.clone()),
            Held::Device(_) => {
                let piece = self.pieces.get(rows).and_then(|pieces| pieces.get(path));
                piece.cloned().with_context(|| format!("rows {rows:?} of state {path} were not cut"))
            }
        }
    }

    /// After a call that assigned the state of these rows, `new`. What lies on the device is written already.
    pub fn assigned(&mut self, path: &str, rows: &Range<usize>, new: &Buffer, runtime: &Runtime) -> Result<()> {
        let held = self.held.get_mut(path).with_context(|| format!("there is no state {path}"))?;
        if let Held::Host(whole) = held {
            let new = runtime.download(new)?;
            let size = whole.bytes.len() / self.rows.max(1);
            let place = whole.bytes.get_mut(rows.start * size..rows.end * size);
            let place = place.filter(|place| place.len() == new.bytes.len());
            place.with_context(|| format!("state {path} came back as {:?}", new.shape))?.copy_from_slice(&new.bytes);
        }
        Ok(())
    }

    /// All rows of a state.
    pub fn whole(&self, path: &str, runtime: &Runtime) -> Result<Tensor> {
        match self.held(path)? {
            Held::Device(whole) => runtime.download(whole),
            Held::Host(whole) => Ok(whole.clone()),
        }
    }

    fn held(&self, path: &str) -> Result<&Held> {
        self.held.get(path).with_context(|| format!("there is no state {path}"))
    }
}

fn rows_of(ty: &Type, rows: usize) -> Type {
    let mut ty = ty.clone();
    if let Some(first) = ty.shape.first_mut() {
        *first = rows as i64;
    }
    ty
}

fn row_bytes(ty: &Type) -> usize {
    ty.sizes().get(1..).unwrap_or_default().iter().product::<usize>() * ty.dtype.size()
}

fn rows_in(whole: &Tensor, rows: &Range<usize>) -> Tensor {
    let size = whole.bytes.len() / whole.shape.first().copied().unwrap_or(1).max(1);
    let shape = [&[rows.len()], whole.shape.get(1..).unwrap_or_default()].concat();
    Tensor { dtype: whole.dtype, shape, bytes: whole.bytes[rows.start * size..rows.end * size].to_vec() }
}

/// A module without device code: `main(bounds, state, ..)` gives, of each state, the rows from `bounds[0]` on, `bounds[1]` of them, as
/// views of the same memory. IREE's runtime has this too; [`eerie`] does not hand it on.
fn cutter(states: &[&Type]) -> Result<String> {
    let view = "!hal.buffer_view";
    let list = |one: &dyn Fn(usize) -> String| (0..states.len()).map(one).collect::<Vec<_>>().join(", ");
    let parameters = list(&|i| format!("%s{i}: {view}"));
    let views = list(&|_| view.to_owned());
    let mut text = format!(
        "module @module {{
  func.func @main(%bounds: {view}, {parameters}) -> ({views}) {{
    %bytes = hal.buffer_view.buffer<%bounds : {view}> : !hal.buffer
    %at0 = arith.constant 0 : index
    %at1 = arith.constant 4 : index
    %first_i32 = hal.buffer.load<%bytes : !hal.buffer>[%at0] : i32
    %rows_i32 = hal.buffer.load<%bytes : !hal.buffer>[%at1] : i32
    %first = arith.index_cast %first_i32 : i32 to index
    %rows = arith.index_cast %rows_i32 : i32 to index
    %dense = hal.encoding_type<dense_row_major> : i32
"
    );
    for (i, state) in states.iter().enumerate() {
        let mut shape = String::from("%rows");
        let mut dims = String::new();
        for (axis, size) in state.shape.iter().enumerate().skip(1) {
            writeln!(dims, "    %d{i}_{axis} = arith.constant {size} : index")?;
            write!(shape, ", %d{i}_{axis}")?;
        }
        write!(
            text,
            "{dims}    %row{i} = arith.constant {} : index
    %type{i} = hal.buffer_view.element_type<%s{i} : {view}> : i32
    %buffer{i} = hal.buffer_view.buffer<%s{i} : {view}> : !hal.buffer
    %offset{i} = arith.muli %first, %row{i} : index
    %length{i} = arith.muli %rows, %row{i} : index
    %piece{i} = hal.buffer_view.create buffer(%buffer{i} : !hal.buffer)[%offset{i}, %length{i}] shape([{shape}]) \
             type(%type{i}) encoding(%dense) : {view}
",
            row_bytes(state)
        )?;
    }
    writeln!(text, "    return {} : {views}\n  }}\n}}", list(&|i| format!("%piece{i}")))?;
    Ok(text)
}

/// A graph that forgets: of one row, all positions from its input `kept` on, and where it keeps none the states that have no positions.
/// `positions` says which axis they are.
pub fn forgetting(options: BuildOptions, positions: &dyn Fn(&str) -> Option<usize>) -> Result<Graph> {
    let states = Arc::clone(&options.states);
    let mut build = Build::new(options);
    let kept = build.input(DType::I32, &[1]);
    build.inputs_of_windows(1);
    let zero = build.integer(0, DType::I32);
    let some = build.compare(super::Compare::Greater, kept, zero);
    for (path, ty) in states.iter() {
        let state = build.state(path);
        let keeps = match positions(path) {
            Some(axis) => {
                let size = size_of(path, ty, axis)?;
                let kept = match build.first_of(state) {
                    Some(first) => build.subtract(kept, first),
                    None => kept,
                };
                let places = build.iota(size);
                let keeps = build.compare(super::Compare::Less, places, kept);
                along(&mut build, keeps, ty, axis)
            }
            None => build.reshape(some, &vec![1; ty.rank()]),
        };
        let left = or_nothing(&mut build, keeps, state, ty);
        build.set_state(path, left);
    }
    let graph = build.finish(&[])?;
    ensure!(graph.results.len() == states.len(), "a state is not forgotten");
    Ok(graph)
}

/// A graph that lets one row of the states with this number go of as many first positions as its input says: the later ones move down.
pub fn moving(options: BuildOptions, number: usize, positions: &dyn Fn(&str) -> Option<usize>) -> Result<Graph> {
    let (states, windows) = (Arc::clone(&options.states), Arc::clone(&options.windows));
    let mut build = Build::new(options);
    let by = build.input(DType::I32, &[1]);
    for (path, ty) in states.iter().filter(|(path, _)| windows.get(*path).is_some_and(|held| held.number == number)) {
        let axis = positions(path).with_context(|| format!("state {path} has no positions"))?;
        let size = size_of(path, ty, axis)?;
        let state = build.state(path);
        let places = build.iota(size);
        let places = build.add(places, by);
        let moved = build.take(state, places, axis as i32);
        let size = build.integer(size, DType::I32);
        let keeps = build.compare(super::Compare::Less, places, size);
        let keeps = along(&mut build, keeps, ty, axis);
        let left = or_nothing(&mut build, keeps, moved, ty);
        build.set_state(path, left);
    }
    build.finish(&[])
}

fn size_of(path: &str, ty: &Type, axis: usize) -> Result<i64> {
    ty.shape.get(axis).copied().ok_or_else(|| anyhow!("state {path} has no axis {axis}"))
}

/// A vector along an axis of a type.
fn along(build: &mut Build, vector: V, ty: &Type, axis: usize) -> V {
    let mut shape = vec![1; ty.rank()];
    shape[axis] = ty.shape[axis];
    build.reshape(vector, &shape)
}

/// The value where it is kept, else zero.
fn or_nothing(build: &mut Build, keeps: V, value: V, ty: &Type) -> V {
    let keeps = build.broadcast(keeps, &ty.shape);
    let nothing = build.number(0.0, ty.dtype);
    let nothing = build.broadcast(nothing, &ty.shape);
    build.select(keeps, value, nothing)
}
