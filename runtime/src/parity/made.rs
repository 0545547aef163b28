//! Reference numbers that an executor makes: what a file would hold, for any input.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use super::{Fed, Golden, LOGITS, Part, Parts, STATE, Settings, every_logit, held, stages};
use crate::{
    backend,
    error::{Context, Result, ensure},
    model::Model,
    probes::Probes,
    sampler::greedy,
    session::{Batch, Progress, SessionOptions},
    spent::Clock,
    tensor::Tensor,
};

/// Runs the tokens and pictures of `inputs` on the executor of `settings`: every probe, every state after them, and, for a single row,
/// `steps` greedy steps. The numbers in `inputs` are not looked at; its noise, where it has any, bounds those who are compared
/// with the result.
pub fn made_by(
    model: &Arc<Model>,
    inputs: &Golden,
    settings: Settings,
    steps: usize,
    progress: &Progress,
) -> Result<Golden> {
    made_in_parts(model, inputs, settings, steps, progress, &mut Parts::start())
}

/// As [`made_by`]; where the time goes is added to `parts`.
pub fn made_in_parts(
    model: &Arc<Model>,
    inputs: &Golden,
    settings: Settings,
    steps: usize,
    progress: &Progress,
    parts: &mut Parts,
) -> Result<Golden> {
    let Fed { rows, width, tokens, pictures } = Fed::of(model, inputs)?;
    let steps = if rows == 1 { steps } else { 0 };
    progress(&format!("loading weights ({})", settings.backend));
    let options = SessionOptions {
        rows,
        capacity: width + steps,
        max_chunk: width + steps,
        dtype: settings.dtype,
        numerics: settings.numerics,
        probes: Probes::Reported,
    };
    let clock = Clock::start();
    let mut session = backend::open(settings.backend, model, options)?;
    parts.add(Part::Load(settings.backend), clock.spent());
    session.tell(Rc::clone(progress));
    progress(&format!("running {rows} x {width} tokens ({}, the reference)", settings.backend));
    let clock = Clock::start();
    let (mut names, mut tensors): (Vec<String>, BTreeMap<String, Tensor>) = Default::default();
    let mut sink = |name: &str, value| {
        names.push(name.to_owned());
        tensors.insert(name.to_owned(), value);
        Ok(())
    };
    let request = stages(session.as_mut(), model, &pictures, &every_logit(rows, width, tokens), &mut sink)?;
    tensors.extend(inputs.with_prefix("input."));
    for path in model.states() {
        tensors.insert(format!("{STATE}{path}"), held(model, session.as_mut(), path, width)?);
    }
    if steps > 0 {
        progress(&format!("running {steps} greedy steps ({}, the reference)", settings.backend));
        let logits = tensors.get("logits").context("a call gives logits")?;
        let vocabulary = *logits.shape.last().filter(|n| **n > 0).context("logits without axes")?;
        let mut row = logits.to_f32().split_off((width - 1) * vocabulary);
        let (mut fed, mut given, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for k in 0..=steps {
            let token = greedy(&row).context("logits that are no numbers have no largest one")? as i32;
            if k > 0 {
                given.push(token);
                all.append(&mut row);
            }
            if k < steps {
                fed.push(token);
                row = request.step(session.as_mut(), &Batch::row(&[token], width + k, 1), None)?.to_f32();
            }
        }
        ensure!(all.len() == steps * vocabulary, "a step gave {} logits for {vocabulary} tokens", all.len() / steps);
        tensors.insert("decode.input_tokens".to_owned(), Tensor::from_i32(&[steps], &fed));
        tensors.insert("decode.output_tokens".to_owned(), Tensor::from_i32(&[steps], &given));
        tensors.insert(LOGITS.to_owned(), Tensor::from_f32(&[steps, vocabulary], &all));
    }
    parts.ran(settings.backend, clock.spent(), session.prepared());
    Ok(inputs.with_numbers(format!("{} on {}", settings.backend, inputs.path()), &names, tensors))
}
