//! The flags of `mlxcel serve`: one table, which is this struct. It parses the command line, names the environment variables,
//! is `--help` and the book's table, and the keys of the configuration file are its long names.
//!
//! A flag wins over its variable, a variable over the file, the file over the default.

use std::{ffi::OsString, fs, net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches as _};
use mgraph_runtime::{
    backend::Backend,
    session::{Float, Numerics},
};
use serde_json::{Map, Value};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Checkpoint directory (config.json, safetensors, tokenizer.json)
    #[arg(long, value_name = "DIR", env = "MLXCEL_MODEL")]
    pub model: Option<PathBuf>,
    /// Another name that requests may give the model; may be repeated [default: the directory's name]
    #[arg(long, value_name = "NAME", env = "MLXCEL_ALIAS", value_delimiter = ',')]
    pub alias: Vec<String>,
    /// Address to listen on; anything but a loopback address is reachable by others
    #[arg(long, value_name = "ADDRESS", env = "MLXCEL_HOST", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", env = "MLXCEL_PORT", default_value_t = 8080)]
    pub port: u16,
    /// Key that requests must bring as `Authorization: Bearer KEY`; may be repeated
    #[arg(long, value_name = "KEY", env = "MLXCEL_API_KEY", hide_env_values = true, value_delimiter = ',')]
    pub api_key: Vec<String>,
    /// What runs the model
    #[arg(long, value_enum, env = "MLXCEL_BACKEND", default_value_t = Backend::Mlx)]
    pub backend: Backend,
    /// Activation dtype
    #[arg(long, value_enum, env = "MLXCEL_DTYPE", default_value_t = Float::F32)]
    pub dtype: Float,
    /// `pinned`: op order exactly as written, a request's answer does not depend on others; `fused`: declared twins may stand in
    #[arg(long, value_enum, env = "MLXCEL_NUMERICS", default_value_t = Numerics::Fused)]
    pub numerics: Numerics,
    /// Positions of one request's context, prompt and answer together [default: the largest picture and 4096 tokens, at most
    /// what the model was made for]
    #[arg(long, value_name = "N", env = "MLXCEL_CTX_SIZE", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx_size: Option<u32>,
    /// Set a limit of the family, such as `pictures=2`; may be repeated [default: as the family says]
    #[arg(long = "limit", value_name = "NAME=N", env = "MLXCEL_LIMIT", value_parser = limit, value_delimiter = ',')]
    pub limits: Vec<(String, i64)>,
    /// Requests that run side by side
    #[arg(long, value_name = "N", env = "MLXCEL_PARALLEL", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub parallel: u32,
    /// Requests that may be read or wait; more are told to come again (429)
    #[arg(long, value_name = "N", env = "MLXCEL_MAX_QUEUE", default_value_t = 64)]
    pub max_queue: u32,
    /// Seconds that a request may take, waiting included
    #[arg(long, value_name = "SECONDS", env = "MLXCEL_REQUEST_TIMEOUT", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub request_timeout: u64,
    /// Seconds that one step of the model may take; then requests fail and the server is unhealthy
    #[arg(long, value_name = "SECONDS", env = "MLXCEL_STEP_TIMEOUT", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub step_timeout: u64,
    /// Connections that may be open; more wait until one ends
    #[arg(long, value_name = "N", env = "MLXCEL_MAX_CONNECTIONS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Seconds within which a connection must bring the header of its next request
    #[arg(long, value_name = "SECONDS", env = "MLXCEL_IDLE_TIMEOUT", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_timeout: u64,
    /// Bytes of memory for bodies and pictures of all requests that are read, wait or run; more are told to come again (429)
    #[arg(long, value_name = "BYTES", env = "MLXCEL_MAX_MEMORY_BYTES", default_value_t = 2_000_000_000)]
    pub max_memory_bytes: usize,
    /// Bytes of a request's body, pictures included
    #[arg(long, value_name = "BYTES", env = "MLXCEL_MAX_BODY_BYTES", default_value_t = 64_000_000)]
    pub max_body_bytes: usize,
    /// Pictures of one request
    #[arg(long, value_name = "N", env = "MLXCEL_MAX_IMAGES", default_value_t = 8)]
    pub max_images: usize,
    /// Bytes of a picture's file
    #[arg(long, value_name = "BYTES", env = "MLXCEL_MAX_IMAGE_BYTES", default_value_t = 20_000_000)]
    pub max_image_bytes: usize,
    /// Pixels of a picture, width times height
    #[arg(long, value_name = "PIXELS", env = "MLXCEL_MAX_IMAGE_PIXELS", default_value_t = 64_000_000)]
    pub max_image_pixels: u64,
    /// Folder from which requests may name pictures as `file:` addresses [default: none]
    #[arg(long, value_name = "DIR", env = "MLXCEL_ALLOW_LOCAL_FILES")]
    pub allow_local_files: Option<PathBuf>,
    /// What is logged on standard error, such as `warn` or `mgraph_serve=debug`; never what requests say
    #[arg(long, value_name = "FILTER", env = "MLXCEL_LOG", default_value = "info")]
    pub log: String,
    /// One line for people, or one JSON object
    #[arg(long, value_enum, env = "MLXCEL_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// YAML file with any of these by their long names, such as `port: 8081`
    #[arg(long, value_name = "FILE", env = "MLXCEL_CONFIG")]
    pub config: Option<PathBuf>,
    /// Be the process that runs this model's chat template
    #[arg(long, value_name = "DIR", hide = true)]
    pub render_templates: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

fn limit(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=N, such as pictures=2")?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is no whole number; expected NAME=N"))?;
    Ok((name.trim().to_owned(), value))
}

/// What people may set.
fn table(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !argument.is_hide_set())
}

/// The table.
pub fn command() -> Command {
    Arguments::augment_args(Command::new("mlxcel serve"))
}

impl Arguments {
    /// With what the configuration file says, where one is named; `line` is the command line from `serve` on.
    pub fn with_file(self, line: impl IntoIterator<Item = OsString>) -> Result<Arguments> {
        let Some(file) = &self.config else { return Ok(self) };
        let text = fs::read_to_string(file).with_context(|| format!("reading the configuration {}", file.display()))?;
        let told = || file.display().to_string();
        let value: Value = serde_saphyr::from_str(&text).with_context(told)?;
        let settings = match value {
            Value::Null => Map::new(),
            Value::Object(settings) => settings,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                bail!("{}: expected settings by name, such as `port: 8081`", told())
            }
        };
        let mut command = command();
        for (name, value) in settings {
            command = with_default(command, &name, &value).with_context(told)?;
        }
        let matches = command.try_get_matches_from(line).with_context(told)?;
        Arguments::from_arg_matches(&matches).with_context(told)
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout)
    }
}

/// A setting of the file is a default of the command line: it is parsed, checked and overruled as one.
fn with_default(command: Command, name: &str, value: &Value) -> Result<Command> {
    let known: Vec<&str> = table(&command).filter_map(Arg::get_long).filter(|long| *long != "config").collect();
    if !known.contains(&name) {
        let likeness = |long: &&&str| (strsim::jaro_winkler(long, name) * 1000.0) as u64;
        let hint = known.iter().filter(|long| likeness(long) > 800).max_by_key(likeness);
        bail!(
            "there is no setting {name:?}{}",
            hint.map_or_else(String::new, |long| format!("; did you mean {long:?}?"))
        );
    }
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => bail!("{name}: expected text or a number, found {value}"),
    };
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name));
    let many = argument.is_some_and(|argument| matches!(argument.get_action(), ArgAction::Append));
    let values: Vec<String> = match value {
        Value::Array(items) => items.iter().map(one).collect::<Result<_>>()?,
        single => vec![one(single)?],
    };
    ensure!(many || values.len() == 1, "{name}: expected one value, found {}", values.len());
    let id = argument.map(|argument| argument.get_id().clone()).with_context(|| name.to_owned())?;
    // Clap keeps defaults for as long as the process lives; so do these few.
    let values: Vec<&'static str> = values.into_iter().map(|value| &*value.leak()).collect();
    Ok(command.mut_arg(id, |argument| argument.default_values(values)))
}

/// The table as the book has it.
pub fn page() -> String {
    let mut page = String::from("| flag | variable | default | |\n| --- | --- | --- | --- |\n");
    for argument in table(&command()) {
        let Some(long) = argument.get_long() else { continue };
        let value =
            argument.get_value_names().and_then(|names| names.first()).map_or_else(String::new, |n| format!(" {n}"));
        let variable = argument.get_env().map_or_else(String::new, |name| format!("`{}`", name.to_string_lossy()));
        let defaults: Vec<String> =
            argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let help =
            argument.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        page.push_str(&format!("| `--{long}{value}` | {variable} | {} | {help} |\n", defaults.join(", ")));
    }
    page
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::FromArgMatches as _;

    use super::{Arguments, command, table};

    fn parse(line: &[&str]) -> anyhow::Result<Arguments> {
        let line = std::iter::once("serve").chain(line.iter().copied());
        let matches = command().try_get_matches_from(line.clone())?;
        Arguments::from_arg_matches(&matches)?.with_file(line.map(Into::into))
    }

    fn with_file(text: &str, line: &[&str]) -> anyhow::Result<Arguments> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), text)?;
        let file: &Path = file.path();
        let file = file.display().to_string();
        parse(&[&["--config", &file], line].concat())
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let text = "port: 9001\nparallel: 2\nmodel: /m\nalias: [a, b]\nlimit: pictures=3\nnumerics: pinned\n";
        let read = with_file(text, &["--parallel", "3"]).expect("good");
        assert_eq!((read.port, read.parallel, read.max_queue), (9001, 3, 64));
        assert_eq!(read.model.as_deref(), Some(Path::new("/m")));
        assert_eq!((read.alias, read.limits), (vec!["a".into(), "b".into()], vec![("pictures".into(), 3)]));
    }

    #[test]
    fn what_the_file_says_is_checked_as_the_command_line_is() {
        let cases = [
            ("prt: 1", "did you mean \"port\"?"),
            ("port: 70000", "70000"),
            ("port: [1, 2]", "one value"),
            ("host: {a: 1}", "expected text or a number"),
            ("config: other.yaml", "no setting \"config\""),
            ("- port", "settings by name"),
            ("port: 1\nport: 2", "port"),
            ("backend: cuda", "cuda"),
        ];
        for (text, told) in cases {
            let message = format!("{:#}", with_file(text, &[]).expect_err(text));
            assert!(message.contains(told), "{text}: {message}");
        }
        assert_eq!(with_file("", &[]).expect("an empty file").port, 8080);
    }

    #[test]
    fn every_flag_has_a_variable() {
        for argument in table(&command()) {
            let long = argument.get_long().expect("a long name").to_uppercase().replace('-', "_");
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(&*format!("MLXCEL_{long}")));
        }
    }
}
