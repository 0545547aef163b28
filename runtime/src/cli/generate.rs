//! `mlxcel generate`: one prompt, streamed to standard output; everything else goes to standard error.

use std::{io::Write, path::PathBuf};

use super::{
    Verdict,
    family::FamilyFile,
    limits::Limits,
    progress::{Progress, note},
};
use crate::{
    backend::{self, Backend},
    engine,
    error::{Context, Result, bail},
    family::Family,
    model::Model,
    probes::Probes,
    sampler::{Sampler, Settings},
    session::{Float, Numerics, SessionOptions},
    template::{self, Message},
    tokenizer::Tokenizer,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Checkpoint directory (config.json, safetensors, tokenizer.json)
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// What runs the model
    #[arg(long, value_enum, default_value_t = Backend::Mlx)]
    backend: Backend,
    /// The user's message; put through the chat template where the checkpoint has one
    #[arg(long)]
    prompt: String,
    /// Take the prompt as it is, without the chat template
    #[arg(long)]
    raw: bool,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// 0 takes the most likely token always
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Smallest set of tokens whose probabilities reach P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Only the K most likely tokens; 0 is no limit
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: u32,
    /// Seed of the sampler; the same seed gives the same text
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// `pinned`: op order exactly as written; `fused`: declared twins may stand in
    #[arg(long, value_enum, default_value_t = Numerics::Fused)]
    numerics: Numerics,
    /// Activation dtype
    #[arg(long, value_enum, default_value_t = Float::F32)]
    dtype: Float,
    /// Positions of the context, prompt and answer together [default: as many as this run needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx_size: Option<u32>,
    #[command(flatten)]
    family: FamilyFile,
    #[command(flatten)]
    limits: Limits,
    /// Print the generated token ids at the end, on standard error
    #[arg(long)]
    print_ids: bool,
}

pub fn run(families: &'static [&'static Family], arguments: Arguments) -> Result<Verdict> {
    let mut sampler = Sampler::new(Settings {
        temperature: arguments.temperature,
        top_p: arguments.top_p,
        top_k: arguments.top_k as usize,
        seed: arguments.seed,
    })?;
    let progress = Progress::start();
    progress.step(&format!("opening {}", arguments.model.display()));
    let model = Model::open_with(&arguments.model, &arguments.family.or(families)?, arguments.limits.given()?)?;
    let tokenizer = Tokenizer::open(&arguments.model)?;
    let prompt = encode_prompt(&arguments, &tokenizer)?;
    let options = session_options(&arguments, &model, prompt.len())?;
    progress.step(&format!("loading weights ({})", arguments.backend));
    let mut session = backend::open(arguments.backend, &model, options)?;
    let shapes = engine::shapes(session.as_ref(), prompt.len());
    session.prepare(&shapes, &mut |step| progress.step(step))?;
    progress.finish();

    let mut stream = tokenizer.stream();
    let mut out = std::io::stdout().lock();
    let outcome = engine::generate(
        session.as_mut(),
        &mut sampler,
        &prompt,
        arguments.max_tokens as usize,
        tokenizer.eos_ids(),
        &mut |token| {
            if let Some(text) = stream.push(token)? {
                write!(out, "{text}").and_then(|()| out.flush()).context("writing the answer to standard output")?;
            }
            Ok(true)
        },
    )?;
    writeln!(out, "{}", stream.finish()?).context("writing the answer to standard output")?;
    note(format_args!(
        "prefill {} tokens, {:.1} tok/s; decode {} tokens, {:.1} tok/s ({}, {:?})",
        outcome.prompt_tokens,
        outcome.prefill_rate(),
        outcome.tokens.len(),
        outcome.decode_rate(),
        arguments.backend,
        outcome.finish,
    ));
    if arguments.print_ids {
        note(format_args!("ids {:?}", outcome.tokens));
    }
    Ok(Verdict::Done)
}

fn encode_prompt(arguments: &Arguments, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    match template::ChatTemplate::open(&arguments.model)? {
        Some(chat) if !arguments.raw => {
            let text = chat.render(&[Message::user(&arguments.prompt)], true)?;
            Ok(tokenizer.encode(&text, false)?)
        }
        _ => Ok(tokenizer.encode(&arguments.prompt, true)?),
    }
}

fn session_options(arguments: &Arguments, model: &Model, prompt: usize) -> Result<SessionOptions> {
    let max_tokens = arguments.max_tokens as usize;
    // The last generated token is never fed back, so it takes no position.
    let needed = prompt + max_tokens - 1;
    let capacity = arguments.ctx_size.map_or(needed, |n| n as usize);
    engine::admit(prompt, max_tokens, capacity)?;
    if let Some(limit) = model.max_positions()?
        && capacity > limit
    {
        bail!(
            "this run needs {capacity} positions, but the model was made for {limit} (max_position_embeddings in \
             config.json): lower --max-tokens or --ctx-size, or shorten the prompt"
        );
    }
    Ok(SessionOptions {
        rows: 1,
        capacity,
        max_chunk: 256,
        dtype: arguments.dtype,
        numerics: arguments.numerics,
        probes: Probes::Unread,
    })
}
