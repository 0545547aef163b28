//! Stages of routed layers. The order in which a token's experts are listed means nothing, and implementations differ in it
//! (by probability, by id): before they are compared, both lists stand by id, shares along with their experts.

use crate::tensor::Tensor;

const EXPERTS: &str = "topk_experts";
const PARTS: [&str; 2] = [EXPERTS, "topk_weights"];

/// Whether a stage is such a list.
pub fn is_list(name: &str) -> bool {
    PARTS.iter().any(|part| name.ends_with(part))
}

/// The stage `name` by the ids of its layer's experts; `None` where it is no such stage.
pub fn by_expert<'a>(name: &str, value: &Tensor, stage: impl Fn(&str) -> Option<&'a Tensor>) -> Option<Tensor> {
    let layer = PARTS.iter().find_map(|part| name.strip_suffix(part))?;
    let experts = stage(&format!("{layer}{EXPERTS}"))?;
    let per_token = *experts.shape.last().filter(|n| **n > 0)?;
    if experts.len() != value.len() {
        return None;
    }
    let (ids, size) = (experts.to_f64(), value.dtype.size());
    let mut bytes = Vec::with_capacity(value.bytes.len());
    for (ids, values) in ids.chunks(per_token).zip(value.bytes.chunks(per_token * size)) {
        let mut places: Vec<usize> = (0..per_token).collect();
        places.sort_by(|a, b| ids[*a].total_cmp(&ids[*b]));
        places.into_iter().for_each(|at| bytes.extend_from_slice(&values[at * size..(at + 1) * size]));
    }
    Some(Tensor { dtype: value.dtype, shape: value.shape.clone(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_go_with_their_experts() {
        let experts = Tensor::from_i32(&[1, 2, 2], &[3, 1, 0, 2]);
        let shares = Tensor::from_f32(&[1, 2, 2], &[0.75, 0.25, 0.5, 0.5]);
        let stage = |name: &str| (name == "layer.1.topk_experts").then_some(&experts);
        let ordered = |name: &str, value: &Tensor| by_expert(name, value, stage).map(|t| t.to_f64());
        assert_eq!(ordered("layer.1.topk_experts", &experts), Some(vec![1.0, 3.0, 0.0, 2.0]));
        assert_eq!(ordered("layer.1.topk_weights", &shares), Some(vec![0.25, 0.75, 0.5, 0.5]));
        assert_eq!(ordered("layer.1.mlp", &shares), None);
    }
}
