//! Chat templates, rendered as `transformers` renders them (its `chat_template_utils.py`, checked against 5.24 by
//! `tests/template.rs`): Jinja with trimmed blocks and loop controls, `{% generation %}`, `tojson` without HTML escapes,
//! `strftime_now`, `raise_exception`, and Python's way of writing values.
//!
//! A template is a program from a stranger. It sees plain data only, and runs on a bounded amount of fuel (steps), to a bounded length. Two
//! differences are known: tuples print as lists, and `~` writes `true` and `none` where Python writes `True` and `None`.

mod generation;
mod json;
mod limits;
mod methods;
mod python;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use jiff::Zoned;
use minijinja::{Environment, ErrorKind, Template, UndefinedBehavior};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{
    checkpoint::{Problem, read_object},
    tokenizer::token_text,
};

/// Instructions one rendering may take; a conversation of a thousand messages takes a few hundredths.
const FUEL: u64 = 10_000_000;

/// The largest source that is compiled, and the stack that holds its deepest nesting: minijinja recurses for operators in a
/// row (`----1`, `{% elif %}`) without limit, at up to half a KiB for each byte.
const MAX_SOURCE: usize = 128 << 10;
const COMPILE_STACK: usize = 128 << 20;

/// The names under which `transformers` hands special tokens to a template.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The templates of one model, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
    special_tokens: Map<String, Value>,
    /// The variables that each template reads.
    read: BTreeMap<String, HashSet<String>>,
}

#[derive(Debug, Error)]
pub enum TemplateError {
    #[error("the chat template refuses this conversation: {0}")]
    Raised(String),
    #[error("the chat template in {} is not valid: {why}", path.display())]
    Syntax { path: PathBuf, why: String },
    #[error("the chat template in {} failed: {why}", path.display())]
    Failed { path: PathBuf, why: String },
    #[error("{} has several chat templates but none named `default`; they are {names}", path.display())]
    NoDefault { path: PathBuf, names: String },
    #[error("{}: `chat_template` is neither a string nor a list of objects with `name` and `template`", .0.display())]
    Form(PathBuf),
    #[error(transparent)]
    Config(#[from] Problem),
}

/// A message of text and pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub role: String,
    /// In the order in which they are read.
    pub content: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// The next of the conversation's pictures.
    Image,
}

impl Message {
    pub fn system(content: &str) -> Message {
        Message::of("system", content)
    }

    pub fn user(content: &str) -> Message {
        Message::of("user", content)
    }

    pub fn assistant(content: &str) -> Message {
        Message::of("assistant", content)
    }

    fn of(role: &str, content: &str) -> Message {
        Message { role: role.into(), content: vec![Part::Text(content.into())] }
    }

    /// As templates read it: the content is a list of parts where a picture is among them. Otherwise it is a string, which
    /// templates of text alone take too; several texts have a line each.
    pub fn to_json(&self) -> Value {
        let text = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Image => None,
        };
        let texts: Option<Vec<String>> = self.content.iter().map(text).collect();
        let content =
            texts.map_or_else(|| self.content.iter().map(Part::to_json).collect(), |texts| json!(texts.join("\n")));
        json!({"role": self.role, "content": content})
    }
}

impl Part {
    fn to_json(&self) -> Value {
        match self {
            Part::Text(text) => json!({"type": "text", "text": text}),
            Part::Image => json!({"type": "image"}),
        }
    }
}

/// What a template is rendered with. Messages are objects with `role` and whatever else the template reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conversation<'a> {
    pub messages: &'a [Value],
    pub tools: Option<&'a [Value]>,
    pub documents: Option<&'a [Value]>,
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`; they win over special tokens of the same name.
    pub variables: Option<&'a Map<String, Value>>,
}

/// What `strftime_now` reads.
#[derive(Debug, Clone)]
pub enum Clock {
    Local,
    Fixed(Zoned),
}

impl ChatTemplate {
    /// The templates of a model directory: `chat_template.jinja`, else `chat_template` in tokenizer_config.json. `None`
    /// when it has neither.
    pub fn open(dir: &Path) -> Result<Option<ChatTemplate>, TemplateError> {
        let config_path = dir.join("tokenizer_config.json");
        let config = read_object(&config_path)?.unwrap_or_default();
        let special_tokens = special_tokens(&config);
        let file = dir.join("chat_template.jinja");
        match std::fs::read_to_string(&file) {
            Ok(source) => {
                let sources = [("default".to_owned(), source)];
                return ChatTemplate::compile(&file, sources, special_tokens, Clock::Local).map(Some);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Problem::Io { path: file, error: error.to_string() }.into()),
        }
        let sources = match config.get("chat_template") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(source)) => vec![("default".to_owned(), source.clone())],
            Some(Value::Array(list)) => {
                let entry = |entry: &Value| {
                    Some((entry.get("name")?.as_str()?.to_owned(), entry.get("template")?.as_str()?.to_owned()))
                };
                let entries: Option<Vec<_>> = list.iter().map(entry).collect();
                entries.ok_or_else(|| TemplateError::Form(config_path.clone()))?
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => return Err(TemplateError::Form(config_path)),
        };
        ChatTemplate::compile(&config_path, sources, special_tokens, Clock::Local).map(Some)
    }

    /// Compiles named templates; `path` serves the messages.
    pub fn compile(
        path: &Path,
        sources: impl IntoIterator<Item = (String, String)>,
        special_tokens: Map<String, Value>,
        clock: Clock,
    ) -> Result<ChatTemplate, TemplateError> {
        let mut environment = environment(clock);
        let mut read = BTreeMap::new();
        let invalid = |why: String| TemplateError::Syntax { path: path.to_path_buf(), why };
        for (name, source) in sources {
            if source.len() > MAX_SOURCE {
                return Err(invalid(format!("it has {} bytes; at most {MAX_SOURCE} are read", source.len())));
            }
            let add = || {
                environment.add_template_owned(name.clone(), generation::as_scopes(&source))?;
                // Parses once more, so it too belongs on the large stack.
                Ok::<_, minijinja::Error>(environment.get_template(&name)?.undeclared_variables(false))
            };
            let added = thread::scope(|scope| {
                let worker = thread::Builder::new().stack_size(COMPILE_STACK).spawn_scoped(scope, add);
                worker.map(ScopedJoinHandle::join)
            });
            match added {
                Ok(Ok(added)) => {
                    let variables = added.map_err(|error| invalid(describe(&error)))?;
                    read.insert(name, variables);
                }
                Ok(Err(_)) => return Err(invalid("compiling it failed; what is above says where".into())),
                Err(error) => return Err(invalid(format!("no thread to compile it on: {error}"))),
            }
        }
        Ok(ChatTemplate { path: path.to_path_buf(), environment, special_tokens, read })
    }

    /// Renders messages of text and pictures.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TemplateError> {
        let messages: Vec<Value> = messages.iter().map(Message::to_json).collect();
        self.render_conversation(&Conversation { messages: &messages, add_generation_prompt, ..Default::default() })
    }

    /// The text of the template that renders a conversation, with tools or without; empty where there is none.
    pub fn source(&self, tools: bool) -> String {
        self.chosen(tools).map_or_else(String::new, |template| template.source().to_owned())
    }

    /// Whether that template reads a variable.
    pub fn reads(&self, variable: &str, tools: bool) -> bool {
        let read = self.chosen(tools).and_then(|template| self.read.get(template.name()));
        read.is_some_and(|variables| variables.contains(variable))
    }

    fn chosen(&self, tools: bool) -> Option<Template<'_, '_>> {
        let named = |name: &str| self.environment.get_template(name).ok();
        tools.then(|| named("tool_use")).flatten().or_else(|| named("default"))
    }

    /// Renders any conversation, with the template named `tool_use` where there are tools and one of that name.
    pub fn render_conversation(&self, conversation: &Conversation<'_>) -> Result<String, TemplateError> {
        let template = self.chosen(conversation.tools.is_some()).ok_or_else(|| {
            let names: Vec<&str> = self.environment.templates().map(|(name, _)| name).collect();
            TemplateError::NoDefault { path: self.path.clone(), names: names.join(", ") }
        })?;
        let mut written = limits::Bounded::default();
        match template.render_captured_to(self.context(conversation), &mut written) {
            Ok(_) => Ok(written.into_text()),
            Err(error) => Err(match raised(&error) {
                Some(message) => TemplateError::Raised(message.to_owned()),
                None => TemplateError::Failed { path: self.path.clone(), why: describe(&error) },
            }),
        }
    }

    fn context(&self, conversation: &Conversation<'_>) -> Map<String, Value> {
        let mut context = self.special_tokens.clone();
        context.extend(conversation.variables.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        context.insert("messages".into(), conversation.messages.iter().map(normalized).collect());
        // Absent is none, not undefined, as in `transformers`.
        let list = |list: Option<&[Value]>| list.map_or(Value::Null, |list| list.to_vec().into());
        context.insert("tools".into(), list(conversation.tools));
        context.insert("documents".into(), list(conversation.documents));
        context.insert("add_generation_prompt".into(), conversation.add_generation_prompt.into());
        context
    }
}

/// `transformers` drops what is null from a message, and gives reasoning under every name that templates read.
fn normalized(message: &Value) -> Value {
    let Value::Object(message) = message else { return message.clone() };
    let present = || message.iter().filter(|(_, value)| !value.is_null());
    let reasoning = ["reasoning_content", "thinking", "reasoning"]
        .into_iter()
        .find_map(|name| message.get(name).filter(|value| !value.is_null()));
    let Some(reasoning) = reasoning else {
        return present().map(|(key, value)| (key.clone(), value.clone())).collect();
    };
    let mut named = Map::new();
    named.insert("thinking".into(), reasoning.clone());
    named.extend(present().map(|(key, value)| (key.clone(), value.clone())));
    named.insert("reasoning_content".into(), reasoning.clone());
    named.into()
}

fn special_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let mut tokens = Map::new();
    for name in SPECIAL_TOKENS {
        if let Some(token) = config.get(name).and_then(token_text) {
            tokens.insert(name.into(), token.into());
        }
    }
    if let Some(Value::Array(list)) = config.get("additional_special_tokens") {
        tokens.insert("additional_special_tokens".into(), list.iter().filter_map(token_text).collect());
    }
    tokens
}

fn environment(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(|out, _, value| Ok(out.write_str(&python::str(value)?)?));
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("format", limits::format);
    environment.add_filter("indent", limits::indent);
    environment.add_filter("string", |value: &minijinja::Value| python::str(value));
    environment.add_filter("join", python::join);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("iterable", python::is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| strftime(&clock, format));
    environment
}

fn raise_exception(message: &minijinja::Value) -> Result<minijinja::Value, minijinja::Error> {
    let message = python::str(message)?;
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// Marks an error as the template's own words.
#[derive(Debug, Error)]
#[error("{0}")]
struct Raised(String);

fn raised(error: &minijinja::Error) -> Option<&str> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message);
        }
        source = error.source();
    }
    None
}

fn strftime(clock: &Clock, format: &str) -> Result<String, minijinja::Error> {
    let now = match clock {
        Clock::Local => Zoned::now(),
        Clock::Fixed(time) => time.clone(),
    };
    jiff::fmt::strtime::format(format, &now).map_err(|error| {
        minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}"))
    })
}

fn describe(error: &minijinja::Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return "it did not end within its allowance of steps".to_owned();
    }
    if error.kind() == ErrorKind::WriteFailure {
        return limits::too_long().to_string();
    }
    error.to_string()
}
