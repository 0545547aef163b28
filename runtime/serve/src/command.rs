//! `mlxcel serve`: flags, logging, and the runtime that everything else runs on.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use mgraph_runtime::{family::Family, memory, request::Limits};
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;

use crate::{
    engine::{Engine, EngineOptions, Room, numbers},
    http::{self, App, routes},
    images::Rules,
    options::{Arguments, LogFormat},
    templates::{self, Templates},
};

/// Threads that parse, tokenize and decode pictures; what they hold at a time is bounded so.
const BLOCKING: usize = 8;

/// Runs the server until a signal ends it; 0 after an orderly end, 2 where it could not run.
pub fn main(families: &'static [&'static Family], arguments: Arguments) -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = line.first().cloned().unwrap_or_default();
    let ended = match &arguments.render_templates {
        Some(model) => templates::work(model),
        None => {
            memory::keep_freed();
            arguments.with_file(line).and_then(|arguments| run(families, command, arguments))
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // That nobody reads it is no reason to end otherwise.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// `command`: the word that calls this one.
fn run(families: &'static [&'static Family], command: OsString, arguments: Arguments) -> Result<()> {
    logging(&arguments)?;
    let Some(model) = arguments.model.clone() else {
        bail!("no model: give its directory with --model, MLXCEL_MODEL or `model:` in the configuration");
    };
    ensure!(model.is_dir(), "{} is no directory: --model names a checkpoint directory", model.display());
    let limits = Limits { bytes: arguments.max_image_bytes, pixels: arguments.max_image_pixels };
    let folder = arguments.allow_local_files.as_deref().map(folder).transpose()?;
    ensure!(arguments.api_key.iter().all(|key| !key.trim().is_empty()), "an API key is empty");
    if !arguments.host.is_loopback() && arguments.api_key.is_empty() {
        tracing::warn!(
            "{} is no loopback address and there is no --api-key: whoever reaches this machine can use the model",
            arguments.host
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING)
        .enable_all()
        .build()
        .context("starting threads")?;
    let names = names(&model, &arguments.alias);
    let metrics = recorder(names.first().map_or("", String::as_str))?;
    let templates = Templates::new(command, model.clone())?;
    let app = || {
        Ok(App {
            engine: Engine::start(engine_options(families, model.clone(), &arguments)?),
            names: names.clone(),
            keys: arguments.api_key.clone(),
            templates,
            rules: Rules { limits, most: arguments.max_images, folder },
            timeout: arguments.timeout(),
            most_body: arguments.max_body_bytes,
            metrics,
            told: told(&arguments, &names),
            document: routes::document().to_json().context("writing the OpenAPI document")?,
            started: http::now(),
        })
    };
    let tell = |address: SocketAddr| {
        // For whoever started the server with port 0.
        let _ = writeln!(std::io::stdout(), "listening on http://{address}");
        tracing::info!("listening on http://{address}; the model is being loaded");
    };
    let limits =
        http::Limits { most: arguments.max_connections as usize, idle: Duration::from_secs(arguments.idle_timeout) };
    let address = SocketAddr::new(arguments.host, arguments.port);
    let served = runtime.block_on(http::serve(address, limits, tell, app));
    // What is still prepared is for nobody.
    runtime.shutdown_background();
    served
}

fn folder(given: &Path) -> Result<PathBuf> {
    let real = given.canonicalize().with_context(|| format!("--allow-local-files {}", given.display()))?;
    ensure!(real.is_dir(), "--allow-local-files {} is no folder", given.display());
    Ok(real)
}

fn engine_options(
    families: &'static [&'static Family],
    model: PathBuf,
    arguments: &Arguments,
) -> Result<EngineOptions> {
    let mut limits: Vec<(String, i64)> = Vec::new();
    for (name, value) in &arguments.limits {
        ensure!(!limits.iter().any(|(other, _)| other == name), "--limit {name} is given twice");
        limits.push((name.clone(), *value));
    }
    Ok(EngineOptions {
        families,
        model,
        backend: arguments.backend,
        dtype: arguments.dtype,
        numerics: arguments.numerics,
        limits,
        ctx_size: arguments.ctx_size.map(|size| size as usize),
        room: Room {
            parallel: arguments.parallel as usize,
            max_queue: arguments.max_queue as usize,
            bytes: arguments.max_memory_bytes,
            step_timeout: Duration::from_secs(arguments.step_timeout),
        },
    })
}

/// The aliases first, then the directory's name; each once.
fn names(model: &Path, aliases: &[String]) -> Vec<String> {
    let real = model.canonicalize().unwrap_or_else(|_| model.to_path_buf());
    let own = real.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = aliases.to_vec();
    names.push(own);
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn told(arguments: &Arguments, names: &[String]) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": names,
        "backend": arguments.backend.to_string(),
        "dtype": format!("{:?}", arguments.dtype).to_lowercase(),
        "numerics": format!("{:?}", arguments.numerics).to_lowercase(),
        "parallel": arguments.parallel,
        "max_queue": arguments.max_queue,
        "request_timeout": arguments.request_timeout,
        "step_timeout": arguments.step_timeout,
        "max_connections": arguments.max_connections,
        "max_memory_bytes": arguments.max_memory_bytes,
        "max_body_bytes": arguments.max_body_bytes,
        "max_images": arguments.max_images,
        "max_image_bytes": arguments.max_image_bytes,
        "max_image_pixels": arguments.max_image_pixels,
        "local_files": arguments.allow_local_files.is_some(),
    })
}

fn logging(arguments: &Arguments) -> Result<()> {
    let filter = EnvFilter::try_new(&arguments.log).with_context(|| format!("--log {:?}", arguments.log))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match arguments.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    set.map_err(|error| anyhow::anyhow!("logging: {error}"))
}

/// Histograms have the bounds that vLLM's have and numbers the label `model_name`, so that its dashboards read them.
fn recorder(model: &str) -> Result<PrometheusHandle> {
    const SECONDS: &[f64] = &[
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 60.0, 300.0,
    ];
    PrometheusBuilder::new()
        .with_recommended_naming(true)
        .add_global_label("model_name", model)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)
        .and_then(PrometheusBuilder::install_recorder)
        .context("collecting metrics")
        .inspect(|_| numbers::describe())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::names;

    #[test]
    fn each_name_is_there_once_and_an_alias_comes_first() {
        let aliases = ["a", "b", "a", "model"].map(str::to_owned);
        assert_eq!(names(Path::new("/there/is/no/model"), &aliases), ["a", "b", "model"]);
        assert_eq!(names(Path::new("/there/is/no/model"), &[]), ["model"]);
    }
}
