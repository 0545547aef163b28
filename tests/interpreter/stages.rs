//! The probes of a run beside the stages of the reference.

use std::collections::BTreeMap;

use mgraph_dsl::interpret::{Tensor, Typed};

use crate::{
    fixture::{Golden, texts},
    request::Request,
};

/// What is wrong with a stage.
pub struct Difference {
    pub stage: String,
    pub what: String,
}

/// Every stage is probed, in the reference's order within its graph, and right.
pub fn hold(golden: &Golden, request: &Request, variant: Option<&str>) {
    if let Some(Difference { stage, what }) = first_difference(golden, request, variant) {
        panic!("{stage}: {what}");
    }
}

pub fn first_difference(golden: &Golden, request: &Request, variant: Option<&str>) -> Option<Difference> {
    let stages = match variant {
        None => &golden.facts["stages"],
        Some(variant) => &golden.facts["variants"][variant]["stages"],
    };
    let mut last = BTreeMap::new();
    for stage in texts(stages) {
        let name = variant.map_or_else(|| stage.to_owned(), |variant| format!("{variant}/{stage}"));
        let wrong = |what: String| Some(Difference { stage: name.clone(), what });
        let Some((at, found)) = found(request, stage) else { return wrong("no probe has this name".into()) };
        let last = last.entry(request.probes[at].graph).or_insert(at);
        if at < *last {
            return wrong("probed before the stage that it follows".into());
        }
        *last = at;
        if let Some(what) = golden.differs(&name, &found, &golden.numbers[&name].elements) {
            return wrong(what);
        }
    }
    None
}

/// The elements of a stage, and which probe they are of.
fn found(request: &Request, stage: &str) -> Option<(usize, Vec<f64>)> {
    let probe = |name: &str| {
        let at = request.probes.iter().position(|probe| probe.name == name)?;
        Some((at, &request.probes[at].value))
    };
    let router = |part: &str| stage.strip_suffix(part).and_then(|layer| probe(&format!("{layer}topk_experts")));
    if let Some((_, experts)) = router("topk_experts").or_else(|| router("topk_weights")) {
        return probe(stage).map(|(at, values)| (at, by_expert(experts, values)));
    }
    match stage {
        // The host chooses rows of `adapter.projected`.
        "adapter.image_features" => Some((probe("adapter.projected")?.0, request.chosen_features()?)),
        // Words alone merge with nothing.
        "text.merged" if !request.has_pictures() => probe("text.embed").map(|(at, value)| (at, value.to_f64())),
        _ => probe(stage).map(|(at, value)| (at, value.to_f64())),
    }
}

/// The values of each token's experts by expert id: the order of experts means nothing.
fn by_expert(experts: &Tensor, values: &Tensor) -> Vec<f64> {
    let per_token = *experts.shape().last().expect("an axis of experts");
    let (experts, values) = (experts.to_f64(), values.to_f64());
    let tokens = experts.chunks(per_token).zip(values.chunks(per_token));
    let ordered = tokens.flat_map(|(experts, values)| {
        let mut pairs: Vec<(f64, f64)> = experts.iter().copied().zip(values.iter().copied()).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        pairs.into_iter().map(|(_, value)| value)
    });
    ordered.collect()
}
