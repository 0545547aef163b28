//! Stages of routed layers. The order in which a token's experts are listed means nothing, and implementations differ in it
//! (by probability, by id): before they are compared, both lists stand by id, shares along with their experts.

use std::collections::BTreeMap;

use crate::tensor::Tensor;

const EXPERTS: &str = "topk_experts";
const PARTS: [&str; 2] = [EXPERTS, "topk_weights"];

/// Whether a stage is such a list.
pub fn is_list(name: &str) -> bool {
    layer(name).is_some()
}

/// The stage `name` by the ids of its layer's experts; `None` where it is no such stage.
pub fn by_expert<'a>(name: &str, value: &Tensor, stage: impl Fn(&str) -> Option<&'a Tensor>) -> Option<Tensor> {
    let layer = layer(name)?;
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

/// Lists of a call as they come, each given back once the experts of its layer are known; what is no list at once.
#[derive(Default)]
pub struct Lists {
    experts: BTreeMap<String, Tensor>,
    waiting: Vec<(String, Tensor)>,
}

impl Lists {
    /// What there is to compare now that the stage `name` came.
    pub fn came(&mut self, name: &str, value: Tensor) -> Vec<(String, Tensor)> {
        let Some(layer) = layer(name) else { return vec![(name.to_owned(), value)] };
        if name.ends_with(EXPERTS) {
            self.experts.insert(name.to_owned(), value.clone());
        }
        let of_layer = format!("{layer}{EXPERTS}");
        self.waiting.push((name.to_owned(), value));
        if !self.experts.contains_key(&of_layer) {
            return Vec::new();
        }
        let (ready, waiting) =
            self.waiting.drain(..).partition(|(name, _)| name.strip_prefix(layer).is_some_and(is_part));
        self.waiting = waiting;
        ready
    }

    /// Lists whose experts never came.
    pub fn left(&mut self) -> Vec<(String, Tensor)> {
        std::mem::take(&mut self.waiting)
    }

    pub fn experts(&self, name: &str) -> Option<&Tensor> {
        self.experts.get(name)
    }
}

fn layer(name: &str) -> Option<&str> {
    PARTS.iter().find_map(|part| name.strip_suffix(part))
}

fn is_part(rest: &str) -> bool {
    PARTS.contains(&rest)
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

    #[test]
    fn shares_wait_for_their_experts() {
        let (experts, shares) = (Tensor::from_i32(&[1], &[3]), Tensor::from_f32(&[1], &[0.5]));
        let mut lists = Lists::default();
        let mut came = |name: &str, value: &Tensor| {
            lists.came(name, value.clone()).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(came("layer.1.topk_weights", &shares), [""; 0]);
        assert_eq!(came("layer.1.mlp", &shares), ["layer.1.mlp"]);
        assert_eq!(came("layer.2.topk_weights", &shares), [""; 0]);
        assert_eq!(came("layer.1.topk_experts", &experts), ["layer.1.topk_weights", "layer.1.topk_experts"]);
        assert_eq!(lists.experts("layer.1.topk_experts"), Some(&experts));
        assert_eq!(lists.left(), [("layer.2.topk_weights".to_owned(), shares)]);
    }
}
