//! The probes of a run beside the stages of the reference.

use std::collections::BTreeMap;

use mgraph_dsl::interpret::Typed;

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
        if let Some(what) = golden.differs(&name, &found, &expected(golden, request, &name, stage)) {
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
    // Both lists of a layer come at once.
    if let Some((at, experts)) = routed(stage).and_then(|layer| probe(&format!("{layer}{EXPERTS}"))) {
        let per_token = *experts.shape().last().expect("an axis of experts");
        return probe(stage).map(|(_, values)| (at, by_expert(per_token, &experts.to_f64(), &values.to_f64())));
    }
    match stage {
        // The host chooses rows of `adapter.projected`.
        "adapter.image_features" => Some((probe("adapter.projected")?.0, request.chosen_features()?)),
        // Words alone merge with nothing.
        "text.merged" if !request.has_pictures() => probe("text.embed").map(|(at, value)| (at, value.to_f64())),
        _ => probe(stage).map(|(at, value)| (at, value.to_f64())),
    }
}

/// What a golden has for a stage, in the order of [`found`]. `name` is the stage's there.
fn expected(golden: &Golden, request: &Request, name: &str, stage: &str) -> Vec<f64> {
    let elements = |name: &str| &golden.numbers[name].elements;
    let per_token = routed(stage).and_then(|layer| {
        let probe = request.probes.iter().find(|probe| probe.name == format!("{layer}{EXPERTS}"))?;
        probe.value.shape().last().copied()
    });
    match (per_token, routed(name)) {
        (Some(per_token), Some(layer)) => by_expert(per_token, elements(&format!("{layer}{EXPERTS}")), elements(name)),
        _ => elements(name).clone(),
    }
}

const EXPERTS: &str = "topk_experts";

/// Whose chosen experts, or their shares, a stage is.
fn routed(stage: &str) -> Option<&str> {
    stage.strip_suffix(EXPERTS).or_else(|| stage.strip_suffix("topk_weights"))
}

/// The values of each token's experts by expert id: the order of experts means nothing.
fn by_expert(per_token: usize, experts: &[f64], values: &[f64]) -> Vec<f64> {
    let tokens = experts.chunks(per_token).zip(values.chunks(per_token));
    let ordered = tokens.flat_map(|(experts, values)| {
        let mut pairs: Vec<(f64, f64)> = experts.iter().copied().zip(values.iter().copied()).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        pairs.into_iter().map(|(_, value)| value)
    });
    ordered.collect()
}
