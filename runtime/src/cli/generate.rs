//! `mlxcel generate`: one prompt with its pictures; the answer is streamed to standard output, everything else goes to standard
//! error.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use super::{
    Verdict,
    family::FamilyFile,
    limits::Limits,
    progress::{Progress, note},
};
use crate::{
    backend::{self, Backend},
    engine::{self, Prompt},
    error::{Context, Result, bail},
    family::Family,
    model::{MaxPositions, Model},
    pictures::Seen,
    probes::Probes,
    request::{self, Picture, PictureError, Request, Requests},
    sampler::{Sampler, Settings},
    session::{Float, Numerics, Session, SessionOptions},
    template::Conversation,
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
    /// A picture (PNG, JPEG, WebP, GIF, BMP); may be repeated. It is seen where the prompt says `<|image|>`, before the
    /// prompt where it does not
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
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
        ..Settings::GREEDY
    })?;
    let progress = Rc::new(Progress::start());
    progress.step(&format!("opening {}", arguments.model.display()));
    let model = Model::open_with(&arguments.model, &arguments.family.or(families)?, arguments.limits.given()?)?;
    let requests = Requests::open(&model)?;
    let request = request(&arguments, &requests, &progress)?;
    let options = session_options(&arguments, &model, &request)?;
    progress.step(&format!("loading weights ({})", arguments.backend));
    let mut session = backend::open(arguments.backend, &model, options)?;
    let session = session.as_mut();
    session.tell({
        let progress = Rc::clone(&progress);
        Rc::new(move |message| progress.step(message))
    });
    let seen = seen(session, &model, &request, arguments.images.len(), &progress)?;
    let prompt = Prompt { tokens: &request.tokens, seen: seen.as_ref() };
    let shapes = engine::shapes(session, prompt);
    session.prepare(&shapes, &mut |step| progress.step(step))?;
    progress.step(&format!("reading {} tokens", request.tokens.len()));

    let mut stream = requests.tokenizer().stream();
    let mut out = std::io::stdout().lock();
    let outcome = engine::generate(
        session,
        &mut sampler,
        prompt,
        arguments.max_tokens as usize,
        requests.tokenizer().eos_ids(),
        &mut |token| {
            progress.finish();
            if let Some(text) = stream.push(token)? {
                write!(out, "{text}").and_then(|()| out.flush()).context("writing the answer to standard output")?;
            }
            Ok(true)
        },
    )?;
    progress.finish();
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

/// Everything that can be wrong with the request itself is found here, before a weight is read.
fn request(arguments: &Arguments, requests: &Requests, progress: &Progress) -> Result<Request> {
    if !arguments.images.is_empty() {
        requests.can_see().context("--image cannot be used")?;
    }
    let mut pictures = Vec::new();
    for file in &arguments.images {
        pictures.push(picture(file, progress)?);
        requests.have_room(&pictures).context("--image cannot be used so often")?;
    }
    if arguments.raw || !requests.has_template() {
        return requests.text(&arguments.prompt, &pictures);
    }
    let messages = [requests.user(&arguments.prompt, pictures.len()).to_json()];
    let conversation = Conversation { messages: &messages, add_generation_prompt: true, ..Conversation::default() };
    requests.chat(&conversation, &pictures)
}

fn picture(file: &Path, progress: &Progress) -> Result<Picture> {
    let limits = request::Limits::default();
    let read = || -> Result<Picture> {
        let kind = fs::metadata(file)?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            // Opening a pipe already waits for who writes it.
            progress.step(&format!("waiting for what {} gives, which is no plain file", file.display()));
        }
        let opened = File::open(file)?;
        let size = opened.metadata()?.len();
        if size > limits.bytes as u64 {
            return Err(PictureError::TooManyBytes { size: size as usize, limit: limits.bytes }.into());
        }
        let mut bytes = Vec::new();
        // What tells no size, such as a pipe, is read until one byte too many.
        opened.take(limits.bytes as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Picture::read(&bytes, limits)?)
    };
    read().with_context(|| format!("--image {}", file.display()))
}

/// The request's pictures, looked at; `None` where it has none.
fn seen(
    session: &mut dyn Session,
    model: &Arc<Model>,
    request: &Request,
    pictures: usize,
    progress: &Progress,
) -> Result<Option<Seen>> {
    if pictures == 0 && request.pictures.of_tokens.is_none() {
        return Ok(None);
    }
    if pictures > 0 {
        progress.step(&format!("looking at {pictures} picture{}", if pictures == 1 { "" } else { "s" }));
    }
    Seen::look(session, model, &request.pictures, 0, None).map(Some)
}

fn session_options(arguments: &Arguments, model: &Model, request: &Request) -> Result<SessionOptions> {
    let (prompt, max_tokens) = (request.tokens.len(), arguments.max_tokens as usize);
    // The last generated token is never fed back, so it takes no position.
    let needed = prompt + max_tokens - 1;
    // With room to fill a call up, prompts about the same pictures share what was compiled for one of them.
    let room = if request.pictures.vision.is_empty() { 0 } else { arguments.backend.fill_up() };
    let most = model.max_positions()?;
    let roomy = (needed + room).min(most.map_or(usize::MAX, |most| most.count)).max(needed);
    let capacity = arguments.ctx_size.map_or(roomy, |n| n as usize);
    engine::admit(prompt, max_tokens, capacity)?;
    if let Some(MaxPositions { count, from }) = most.filter(|most| capacity > most.count) {
        bail!(
            "this run needs {capacity} positions, but the model was made for {count} ({from}): lower --max-tokens or \
             --ctx-size, or shorten the prompt"
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
