//! What a config asks of a checkpoint, found by asking: nothing is stored at first, and what is missing says its name and shape.

use std::{collections::BTreeMap, fs, path::Path};

use mgraph_dsl::{
    bind::{BindFault, Bindings, Stored, StoredDtype, bind},
    config::Resolved,
    ir::Program,
};
use proptest::prelude::Rng;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::Value;

use super::draw::{below, share};

pub type Layout = BTreeMap<String, Stored>;

/// Rounds until everything is there: of a stack the first that is missing is told, and what several tensors share last.
const ROUNDS: usize = 64;

/// Where a field may lie in several places, one of them.
pub fn layout(program: &Program, resolved: &Resolved, random: &mut dyn Rng) -> Result<(Layout, Bindings), String> {
    let mut chosen = program.clone();
    let mut turn = |places: usize| below(random, places.max(1));
    let roots = turn(chosen.roots.len());
    chosen.roots.rotate_left(roots);
    for field in chosen.blocks.iter_mut().flat_map(|block| &mut block.fields) {
        let first = turn(field.stored.places.len());
        field.stored.places.rotate_left(first);
    }
    let mut stored = Layout::new();
    let mut told = Vec::new();
    for _ in 0..ROUNDS {
        let faults = match bind(&chosen, resolved, &stored, &|_| None) {
            // The family itself has to find them too.
            Ok(_) => {
                let bindings = bind(program, resolved, &stored, &|_| None).map_err(shown)?;
                return Ok((stored, bindings));
            }
            Err(faults) => faults,
        };
        for fault in &faults {
            match fault {
                BindFault::Missing { name, shape, .. } => {
                    let shape: Vec<u64> = shape.iter().map(|size| size.unwrap_or(1)).collect();
                    stored.insert(name.clone(), Stored { shape, dtype: StoredDtype::F32 });
                }
                BindFault::Shape { name, expected, found, .. } => {
                    let first = name.split(" + ").next().and_then(|name| stored.get_mut(name));
                    let (Some(first), [wanted, ..], [have, ..]) = (first, &expected[..], &found[..]) else {
                        return Err(fault.to_string());
                    };
                    let Some(rows) = (first.shape[0] + wanted).checked_sub(*have).filter(|rows| *rows > 0) else {
                        return Err(fault.to_string());
                    };
                    first.shape[0] = rows;
                }
                BindFault::Unclaimed { .. }
                | BindFault::DType { .. }
                | BindFault::Twice { .. }
                | BindFault::Rows { .. }
                | BindFault::Packed { .. }
                | BindFault::Load { .. } => return Err(fault.to_string()),
            }
        }
        told = faults;
    }
    Err(shown(told))
}

fn shown(faults: Vec<BindFault>) -> String {
    faults.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub fn elements(layout: &Layout) -> u64 {
    layout.values().map(|tensor| tensor.shape.iter().product::<u64>()).sum()
}

/// Matrices that keep the size of what goes through them; gains and the like near 1.
fn numbers(shape: &[u64], random: &mut dyn Rng) -> Vec<u8> {
    let count = shape.iter().product::<u64>();
    let (center, width) = match shape {
        [.., columns] if shape.len() > 1 => (0.0, (3.0 / *columns as f64).sqrt()),
        _ => (0.75, 0.5),
    };
    (0..count).flat_map(|_| ((center + width * (2.0 * share(random) - 1.0)) as f32).to_le_bytes()).collect()
}

/// A checkpoint of random numbers.
pub fn write(folder: &Path, config: &Value, layout: &Layout, random: &mut dyn Rng) {
    let data: Vec<(&str, Vec<usize>, Vec<u8>)> = layout
        .iter()
        .map(|(name, tensor)| {
            let shape = tensor.shape.iter().map(|size| *size as usize).collect();
            (name.as_str(), shape, numbers(&tensor.shape, random))
        })
        .collect();
    let views =
        data.iter().map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}
