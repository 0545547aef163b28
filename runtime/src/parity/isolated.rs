//! What an isolated run goes on from at each stage, and where it cannot.

use super::{Golden, routed};
use crate::{
    probes::{Probes, Stages},
    tensor::Tensor,
};

/// The reference's value of every stage.
pub fn stages(golden: &Golden) -> Stages {
    Stages::new(golden.stages().into_iter().filter_map(|stage| {
        let value = golden.get(&stage)?;
        let given = match routed::is_list(&stage) {
            true => Err("the order of a token's experts means nothing, and the reference's may be another".to_owned()),
            false => Ok(value.clone()),
        };
        Some((stage, given))
    }))
}

/// Why the call went on from its own value of a stage, where the run is isolated and it did.
pub fn kept(probes: &Probes, stage: &str, ours: &Tensor) -> Option<String> {
    match probes {
        Probes::Unread | Probes::Reported => None,
        Probes::Isolated(stages) => stages.value(stage, ours.dtype, &ours.shape)?.err(),
    }
}
