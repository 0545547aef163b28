//! A checkpoint understood as a family: config resolved, weights bound, nothing computed yet.

use std::{
    collections::BTreeMap,
    mem::{self, Discriminant},
    path::Path,
    sync::Arc,
};

use mgraph_dsl::{
    bind::{self, Bindings, Stored, StoredDtype, Weight, WeightKind},
    config::{self, ConfigNames, Origin, Resolved},
    diagnostic::suggest,
    interpret::Primitive,
    ir::{self, Program, TensorType, Type},
    load,
    trace::{Node, NodeId, Sizes, What, trace},
};
use serde_json::Value;

use crate::{
    checkpoint::{Checkpoint, Dtype},
    error::{Context, Result, anyhow, bail},
    family::Family,
    quantization::Quantization,
    weights::WeightReader,
};

pub struct Model {
    pub family: &'static Family,
    pub program: Arc<Program>,
    pub resolved: Arc<Resolved>,
    pub bindings: Arc<Bindings>,
    pub checkpoint: Arc<Checkpoint>,
    states: Vec<String>,
}

/// The most positions that a model is run for.
#[derive(Debug, Clone, Copy)]
pub struct MaxPositions {
    pub count: usize,
    /// Who says so, for people.
    pub from: &'static str,
}

impl Model {
    /// Opens `dir`, finds its family by `model_type` or `architectures`, resolves the config and binds every weight. All faults of one
    /// step are reported together, with the file they are in.
    pub fn open(dir: &Path, families: &[&'static Family]) -> Result<Arc<Model>> {
        Model::open_with(dir, families, &[])
    }

    /// As [`Model::open`], with limits of the family set by dotted name. One that the family has not is a fault of the config.
    pub fn open_with(dir: &Path, families: &[&'static Family], limits: &[(String, i64)]) -> Result<Arc<Model>> {
        let checkpoint = Checkpoint::open(dir)?;
        let config_file = dir.join("config.json").display().to_string();
        let (family, program) = family_of(checkpoint.config(), families, &config_file)?;
        let resolved = config::resolve(&program, checkpoint.config(), limits).map_err(|faults| {
            let shown: Vec<String> = faults.iter().map(|f| f.display(&config_file).to_string()).collect();
            listed(&format!("{config_file} does not fit family {}", family.name), &shown)
        })?;
        let quantization = Quantization::from_config(checkpoint.config()).map_err(|e| anyhow!("{config_file}: {e}"))?;
        let stored = checkpoint.tensors().iter().map(|(name, tensor)| {
            (name.clone(), Stored { shape: tensor.shape.clone(), dtype: stored_dtype(tensor.dtype) })
        });
        let stored: BTreeMap<String, Stored> = stored.collect();
        let declared = |path: &str| quantization.for_path(path).map(|a| (a.bits, a.group));
        let bindings = bind::bind(&program, &resolved, &stored, &declared).map_err(|faults| {
            listed(&format!("the weights in {} do not fit family {}", dir.display(), family.name), &faults)
        })?;
        let states = bindings.states.iter().map(|s| s.path.clone()).collect();
        Ok(Arc::new(Model {
            family,
            program: Arc::new(program),
            resolved: Arc::new(resolved),
            bindings: Arc::new(bindings),
            checkpoint: Arc::new(checkpoint),
            states,
        }))
    }

    pub fn weights(&self) -> WeightReader<'_> {
        WeightReader::new(self)
    }

    /// Field paths of all states, in their canonical order.
    pub fn states(&self) -> &[String] {
        &self.states
    }

    /// Whether most of its numbers are stored in codes of a few bits.
    pub fn is_packed(&self) -> bool {
        let (packed, dense): (Vec<&Weight>, Vec<&Weight>) =
            self.bindings.weights.iter().partition(|weight| matches!(weight.kind, WeightKind::Packed { .. }));
        let numbers =
            |weights: Vec<&Weight>| weights.iter().map(|weight| weight.shape.iter().product::<u64>()).sum::<u64>();
        numbers(packed) > numbers(dense)
    }

    /// How many tokens the model tells apart: the last axis of what `forward` gives.
    pub fn vocabulary(&self) -> Result<usize> {
        let forward = self.program.graph("forward").context("the family has no graph forward")?;
        let Some(Type::Tensor(TensorType { shape, .. })) = forward.results.first() else {
            bail!("the first result of graph forward is no tensor of logits");
        };
        let last = shape.dims.last().context("the logits of graph forward have no axis")?;
        let names = ConfigNames { program: &self.program, resolved: &self.resolved };
        load::extent(last, forward.span, &names)
            .map_err(|error| anyhow!("the width of the logits: {}", error.located(&self.program.sources)))
    }

    /// How many token ids `embed` tells apart: rows of the table in which it looks them up. More than [`Model::vocabulary`]
    /// where some ids are only read, such as those that stand for pictures.
    pub fn token_ids(&self) -> Result<usize> {
        const ONE: &[usize] = &[1, 1];
        let inputs = [("tokens", ir::DType::I32, ONE)];
        let sizes = Sizes { inputs: &inputs, rows: 1, positions: 1, family: ir::DType::F32, twins: None };
        let trace = trace(&self.program, &self.resolved, &self.bindings, "embed", &sizes);
        let Ok(trace) = trace else { return self.vocabulary() };
        let tokens = |node: &NodeId| trace.nodes[node.0].what == What::Input("tokens".into());
        let looks_up = |node: &&Node| {
            node.what == What::Primitive(Primitive::Take { axis: 0 }) && node.operands.get(1).is_some_and(tokens)
        };
        let rows = trace.nodes.iter().filter(looks_up).map(|node| trace.nodes[node.operands[0].0].shape[0]);
        rows.min().map_or_else(|| self.vocabulary(), Ok)
    }

    /// The most positions that the model is run for, where anybody says: `max_position_embeddings` in config.json, or fewer by the
    /// family's limit `context`, where it has one.
    pub fn max_positions(&self) -> Result<Option<MaxPositions>> {
        let limit =
            self.context_limit().map(|count| MaxPositions { count, from: "its limit; --limit context=N sets it" });
        let stated = self.stated_positions()?;
        let stated = stated.map(|count| MaxPositions { count, from: "max_position_embeddings in config.json" });
        Ok(limit.into_iter().chain(stated).min_by_key(|most| most.count))
    }

    fn context_limit(&self) -> Option<usize> {
        let mut settings = self.resolved.iter();
        let limit = |origin: &Origin| matches!(origin, Origin::LimitDefault | Origin::LimitGiven);
        let (_, value, _) = settings.find(|(path, _, origin)| path.join(".") == "context" && limit(origin))?;
        value.as_int().and_then(|most| usize::try_from(most).ok())
    }

    /// `max_position_embeddings` of the config's root or of `text_config`; null is not stated.
    fn stated_positions(&self) -> Result<Option<usize>> {
        const KEY: &str = "max_position_embeddings";
        let config = self.checkpoint.config();
        let stated = |object: &Value| object.get(KEY).filter(|v| !v.is_null()).cloned();
        let Some(value) = stated(config).or_else(|| config.get("text_config").and_then(stated)) else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(count @ 1..) => Ok(Some(count as usize)),
            Some(0) | None => {
                let file = self.checkpoint.dir().join("config.json");
                bail!("{}: {KEY:?} is {value}; expected a positive integer", file.display())
            }
        }
    }
}

/// Errors: a token that is none of the model's `token_ids`.
pub(crate) fn in_vocabulary(tokens: impl IntoIterator<Item = i64>, token_ids: usize) -> Result<()> {
    let outside = |token: &i64| usize::try_from(*token).map_or(true, |token| token >= token_ids);
    if let Some(token) = tokens.into_iter().find(outside) {
        bail!(
            "token {token} is not in the model's vocabulary of {token_ids}: the tokens come from a tokenizer of another model, \
             or one that was extended without its checkpoint"
        );
    }
    Ok(())
}

/// What is read of a `config.json` besides the family's own keys, here and by the modules named.
pub(crate) const OWN_KEYS: &[&str] = &[
    "model_type",
    "architectures",
    "max_position_embeddings",
    "text_config.max_position_embeddings",
    // tokenizer
    "eos_token_id",
    "text_config.eos_token_id",
    // quantization
    "quantization",
    "quantization_config",
];

/// The family that serves `config`, and its program; `file` is for messages.
pub(crate) fn family_of(
    config: &Value,
    families: &[&'static Family],
    file: &str,
) -> Result<(&'static Family, Program)> {
    let family = choose(config, families, file)?;
    let program = mgraph_dsl::compile_text(family.file, family.source)
        .map_err(|failed| anyhow!("{} does not compile:\n{failed}", family.file))?;
    Ok((family, program))
}

/// By `model_type`; by `architectures` where that is not there, or is that of several families.
fn choose(config: &Value, families: &[&'static Family], file: &str) -> Result<&'static Family> {
    let stated = |key| config.get(key).filter(|value| !value.is_null());
    let architectures = stated("architectures").and_then(Value::as_array).into_iter().flatten();
    let architectures: Vec<&str> = architectures.filter_map(Value::as_str).collect();
    let of_architecture = |family: &&&Family| architectures.iter().any(|name| family.architectures.contains(name));
    let by_architecture = || families.iter().filter(of_architecture).copied().collect::<Vec<_>>();
    let listed = |names: fn(&Family) -> &[&'static str]| -> Vec<&str> {
        families.iter().flat_map(|family| names(family).iter().copied()).collect()
    };
    let Some(model_type) = stated("model_type") else {
        return match by_architecture()[..] {
            [family] => Ok(family),
            _ if architectures.is_empty() => bail!(
                "{file} has neither \"model_type\" nor \"architectures\", so its family is unknown; known as model_type are {}",
                listed(|family| family.model_types).join(", ")
            ),
            _ => bail!(
                "{file} has no \"model_type\", and \"architectures\" {architectures:?} are those of no one family; known are {}",
                listed(|family| family.architectures).join(", ")
            ),
        };
    };
    let Some(model_type) = model_type.as_str() else {
        bail!("{file}: \"model_type\" is {model_type}; expected the name of a family as a string")
    };
    let serves = |family: &&&Family| family.model_types.contains(&model_type);
    let all: Vec<&Family> = families.iter().filter(serves).copied().collect();
    match all[..] {
        [family] => Ok(family),
        [] => {
            let known = listed(|family| family.model_types);
            let near = suggest(model_type, known.iter().copied());
            let near = match (near, &by_architecture()[..]) {
                (Some(near), _) => format!(" (did you mean {near:?}?)"),
                (None, [family]) => format!(" (its architectures are those of family {})", family.name),
                (None, _) => String::new(),
            };
            bail!(
                "{file}: no family serves model_type {model_type:?}{near}; known are {}; `mlxcel new family` begins another",
                known.join(", "),
            )
        }
        ref several => match several.iter().filter(of_architecture).collect::<Vec<_>>()[..] {
            [family] => Ok(family),
            _ => {
                let each = several.iter().map(|f| format!("{} ({})", f.name, f.architectures.join(", ")));
                bail!(
                    "{file}: model_type {model_type:?} is that of several families, and \"architectures\" {architectures:?} do \
                     not tell which: {}",
                    each.collect::<Vec<_>>().join(", ")
                )
            }
        },
    }
}

/// Every kind of fault, but of each no more than a person reads.
fn listed<T: std::fmt::Display>(what: &str, faults: &[T]) -> crate::error::Error {
    const SHOWN: usize = 40;
    let mut kinds: Vec<(Discriminant<T>, usize)> = Vec::new();
    let mut lines = vec![format!("{what}:")];
    for fault in faults {
        let kind = mem::discriminant(fault);
        let at = kinds.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            kinds.push((kind, 0));
            kinds.len() - 1
        });
        kinds[at].1 += 1;
        if kinds[at].1 <= SHOWN {
            lines.push(format!("  - {fault}"));
        }
    }
    let hidden: usize = kinds.iter().map(|(_, count)| count.saturating_sub(SHOWN)).sum();
    if hidden > 0 {
        lines.push(format!("  and {hidden} more of these kinds"));
    }
    anyhow!("{}", lines.join("\n"))
}

fn stored_dtype(dtype: Dtype) -> StoredDtype {
    match dtype {
        Dtype::F64 => StoredDtype::F64,
        Dtype::F32 => StoredDtype::F32,
        Dtype::F16 => StoredDtype::F16,
        Dtype::BF16 => StoredDtype::BF16,
        Dtype::I64 => StoredDtype::I64,
        Dtype::I32 => StoredDtype::I32,
        Dtype::U32 => StoredDtype::U32,
        Dtype::U8 => StoredDtype::U8,
        Dtype::BOOL => StoredDtype::Bool,
        _ => StoredDtype::Other,
    }
}

#[cfg(test)]
mod tests {
    use mgraph_dsl::ir::Program;
    use serde_json::json;

    use super::choose;
    use crate::family::Family;

    /// A family without anything else, served as `header` says.
    fn family(header: &str) -> &'static Family {
        let text = format!(
            "family {header}
            model {{
                table: Embedding(2, 2)
                graph embed(tokens: i32[B, S]) -> F[B, S, 2] {{ table(tokens) }}
                graph forward(x: F[B, S, 2], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, 2] {{ rows_at(x, wanted) }}
            }}"
        );
        Family::of_text("toy.mgraph", &text).expect("a family")
    }

    #[test]
    fn architectures_tell_where_the_type_does_not() {
        let of = |program: &Program| (program.model_types.clone(), program.architectures.clone());
        let text = r#"family one for "old" | "new" as "OneLM" | "OneForVision""#;
        let program = mgraph_dsl::compile_text("one.mgraph", family(&text[7..]).source).expect("a family");
        assert_eq!(of(&program), (vec!["old".into(), "new".into()], vec!["OneLM".into(), "OneForVision".into()]));

        let families = [
            family(&text[7..]),
            family(r#"two for "shared" as "TwoLM""#),
            family(r#"three for "shared" as "ThreeLM""#),
            family(r#"four for "four""#),
        ];
        let served = |config: serde_json::Value| choose(&config, &families, "config.json").map(|family| family.name);
        assert_eq!(served(json!({"model_type": "new"})).ok(), Some("one"));
        assert_eq!(served(json!({"model_type": "new", "architectures": ["TwoLM"]})).ok(), Some("one"));
        assert_eq!(served(json!({"model_type": null, "architectures": ["OneForVision"]})).ok(), Some("one"));
        assert_eq!(served(json!({"architectures": ["Unknown", "TwoLM"]})).ok(), Some("two"));
        assert_eq!(served(json!({"model_type": "shared", "architectures": ["ThreeLM"]})).ok(), Some("three"));
        assert_eq!(served(json!({"model_type": "four", "architectures": "FourLM"})).ok(), Some("four"));

        let refused = |config: serde_json::Value, words: &[&str]| {
            let told = served(config.clone()).expect_err(&config.to_string()).to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{config}: {told}");
        };
        refused(json!({}), &["neither \"model_type\" nor \"architectures\"", "old, new, shared"]);
        refused(json!({"architectures": ["FiveLM"]}), &["FiveLM", "OneLM, OneForVision, TwoLM, ThreeLM"]);
        refused(json!({"architectures": ["TwoLM", "ThreeLM"]}), &["no one family"]);
        refused(json!({"model_type": 3}), &["\"model_type\" is 3"]);
        refused(json!({"model_type": "nwe"}), &["did you mean \"new\"?"]);
        refused(json!({"model_type": "quite-other", "architectures": ["OneLM"]}), &["those of family one"]);
        refused(json!({"model_type": "shared"}), &["two (TwoLM), three (ThreeLM)"]);
    }
}
