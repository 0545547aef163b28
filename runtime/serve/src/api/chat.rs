//! The body of `POST /v1/chat/completions`: messages, tools and the form of the answer.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    ApiError, body,
    generation::{Checked, Generation, Known, MOST_ALTERNATIVES, max_tokens},
};

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Own {
    pub messages: Vec<Message>,
    /// The older name of `max_completion_tokens`.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_tokens: Option<i64>,
    /// Most tokens of an answer; absent means as many as the context holds.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<i64>,
    /// Report the logarithm of each token's probability.
    #[serde(default)]
    pub logprobs: Option<bool>,
    /// And of so many alternatives.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 20)]
    pub top_logprobs: Option<u32>,
    #[serde(default)]
    pub response_format: Option<ResponseFormat>,
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    #[serde(default)]
    pub tool_choice: Option<ToolChoice>,
    /// False: at most one call.
    #[serde(default)]
    pub parallel_tool_calls: Option<bool>,
    /// Variables for the chat template, such as `enable_thinking`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

/// All parameters, for the document.
#[derive(Deserialize, ToSchema)]
#[schema(as = ChatCompletionRequest)]
pub struct ChatBody {
    #[serde(flatten)]
    pub own: Own,
    #[serde(flatten)]
    pub generation: Generation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    /// As `system`.
    Developer,
    User,
    Assistant,
    Tool,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::System | Role::Developer => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChatMessage)]
pub struct Message {
    pub role: Role,
    #[serde(default)]
    pub content: Option<Content>,
    #[serde(default)]
    pub name: Option<String>,
    /// Of an assistant's message: what it called.
    #[serde(default)]
    pub tool_calls: Option<Vec<CallMade>>,
    /// Of a tool's message: which call it answers.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    #[serde(default)]
    pub reasoning_content: Option<String>,
    /// Part of what clients send back of an answer; null.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub refusal: Option<Value>,
    /// As `refusal`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub audio: Option<Value>,
    /// As `refusal`; calls are in `tool_calls`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub function_call: Option<Value>,
    /// As `refusal`; null or an empty list.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Object>>)]
    pub annotations: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, ToSchema)]
#[schema(as = MessageContent)]
pub enum Content {
    #[schema(title = "text")]
    Text(String),
    #[schema(title = "parts")]
    Parts(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schema(as = ContentPart)]
pub enum Part {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageUrl {
    /// `data:image/..;base64,..`, or `file:` where the server permits it.
    pub url: String,
    /// `auto`.
    #[serde(default)]
    pub detail: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Content, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(parts)).map(Content::Parts)
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MessageToolCall)]
pub struct CallMade {
    #[serde(default)]
    pub id: Option<String>,
    #[serde(rename = "type", default)]
    pub kind: FunctionOnly,
    pub function: FunctionCalled,
    /// Part of what clients send back of a stream; nothing depends on it.
    #[serde(default)]
    pub index: Option<u32>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCalled {
    pub name: String,
    /// JSON, as text.
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FunctionOnly {
    #[default]
    Function,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    #[serde(rename = "type")]
    pub kind: FunctionOnly,
    pub function: Function,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FunctionDefinition)]
pub struct Function {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    /// A JSON schema.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Map<String, Value>>,
    /// Calls that are forced always fit the schema.
    #[serde(default)]
    pub strict: Option<bool>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected \"none\", \"auto\", \"required\", or an object that names a function")]
pub enum ToolChoice {
    Mode(ToolMode),
    Named(NamedTool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolMode {
    None,
    Auto,
    Required,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedTool {
    #[serde(rename = "type")]
    pub kind: FunctionOnly,
    pub function: FunctionName,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionName {
    pub name: String,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonSchema {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    #[schema(value_type = Object)]
    pub schema: Value,
    /// Answers always fit the schema.
    #[serde(default)]
    pub strict: Option<bool>,
}

/// A request that is well formed.
#[derive(Debug, Clone)]
pub struct Chat {
    pub generation: Checked,
    /// As chat templates read them; a picture is a part `{"type": "image"}`.
    pub messages: Vec<Value>,
    /// Where the pictures lie, in the order of the parts, each with the path of its parameter.
    pub images: Vec<Image>,
    /// None where no tool may be called.
    pub tools: Option<Tools>,
    pub format: Option<ResponseFormat>,
    pub max_tokens: Option<usize>,
    pub logprobs: Option<usize>,
    pub variables: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub path: String,
    pub url: String,
}

#[derive(Debug, Clone)]
pub struct Tools {
    pub functions: Vec<Function>,
    /// As chat templates read them.
    pub listed: Vec<Value>,
    pub choice: Choice,
    pub several: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    Auto,
    Required,
    Named(String),
}

/// Reads and checks a body.
pub fn parse(bytes: &[u8], known: Known) -> Result<Chat, ApiError> {
    let mut object = body::object(bytes)?;
    let listed = object.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    let own: Own = body::take(&mut object)?;
    let generation: Generation = body::take(&mut object)?;
    body::nothing_left(&object, &[body::fields::<Own>(), body::fields::<Generation>()].concat())?;
    let generation = generation.check(known.logits)?;
    if own.messages.is_empty() {
        return Err(ApiError::parameter("messages", "messages is empty: there is nothing to answer"));
    }
    let mut images = Vec::new();
    let mut messages = Vec::new();
    for (at, message) in own.messages.into_iter().enumerate() {
        messages.push(message.templated(&format!("messages[{at}]"), &mut images)?);
    }
    Ok(Chat {
        generation,
        messages,
        images,
        tools: tools(own.tools.unwrap_or_default(), listed, own.tool_choice, own.parallel_tool_calls)?,
        format: own.response_format,
        max_tokens: most(own.max_tokens, own.max_completion_tokens)?,
        logprobs: logprobs(own.logprobs.unwrap_or(false), own.top_logprobs)?,
        variables: variables(own.chat_template_kwargs.unwrap_or_default())?,
    })
}

fn most(old: Option<i64>, new: Option<i64>) -> Result<Option<usize>, ApiError> {
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        let message = format!("max_tokens is {old} and max_completion_tokens {new}: they mean the same, give one");
        return Err(ApiError::parameter("max_tokens", message));
    }
    Ok(max_tokens("max_completion_tokens", new)?.or(max_tokens("max_tokens", old)?))
}

fn logprobs(wanted: bool, top: Option<u32>) -> Result<Option<usize>, ApiError> {
    match top {
        Some(count) if count > MOST_ALTERNATIVES => {
            let message = format!("top_logprobs is {count}; at most {MOST_ALTERNATIVES} are reported");
            Err(ApiError::parameter("top_logprobs", message))
        }
        Some(1..) if !wanted => {
            Err(ApiError::parameter("top_logprobs", "top_logprobs go with `\"logprobs\": true` alone"))
        }
        Some(_) | None => Ok(wanted.then_some(top.unwrap_or(0) as usize)),
    }
}

/// What a template's variables may not replace.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

fn variables(variables: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    match RESERVED.iter().find(|name| variables.contains_key(**name)) {
        Some(name) => {
            let path = format!("chat_template_kwargs.{name}");
            Err(ApiError::parameter(&path, format!("{path}: the server sets this one")))
        }
        None => Ok(variables),
    }
}

fn tools(
    given: Vec<Tool>,
    listed: Vec<Value>,
    choice: Option<ToolChoice>,
    several: Option<bool>,
) -> Result<Option<Tools>, ApiError> {
    let functions: Vec<Function> = given.into_iter().map(|tool| tool.function).collect();
    for (at, function) in functions.iter().enumerate() {
        let path = format!("tools[{at}].function.name");
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if function.name.is_empty() || function.name.len() > 64 || !function.name.chars().all(good) {
            let message = format!("{path} is {:?}; expected 1 to 64 letters, digits, `_` and `-`", function.name);
            return Err(ApiError::parameter(&path, message));
        }
        if functions[..at].iter().any(|other| other.name == function.name) {
            return Err(ApiError::parameter(&path, format!("{path}: {:?} is there twice", function.name)));
        }
    }
    if choice.is_some() && functions.is_empty() {
        return Err(ApiError::parameter("tool_choice", "tool_choice goes with `tools` alone, and there are none"));
    }
    let choice = match choice {
        None | Some(ToolChoice::Mode(ToolMode::Auto)) => Choice::Auto,
        Some(ToolChoice::Mode(ToolMode::None)) => return Ok(None),
        Some(ToolChoice::Mode(ToolMode::Required)) => Choice::Required,
        Some(ToolChoice::Named(NamedTool { function: FunctionName { name }, .. })) => {
            if !functions.iter().any(|function| function.name == name) {
                let message = format!("tool_choice names {name:?}, which is not among the tools");
                return Err(ApiError::parameter("tool_choice", message));
            }
            Choice::Named(name)
        }
    };
    Ok((!functions.is_empty()).then_some(Tools { functions, listed, choice, several: several.unwrap_or(true) }))
}

impl Message {
    /// As chat templates read it; its pictures are added to `images`.
    fn templated(self, path: &str, images: &mut Vec<Image>) -> Result<Value, ApiError> {
        let refuse = |field: &str, message: &str| {
            let path = format!("{path}.{field}");
            Err(ApiError::parameter(&path, format!("{path}: {message}")))
        };
        let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        for (field, value) in [
            ("refusal", &self.refusal),
            ("audio", &self.audio),
            ("function_call", &self.function_call),
            ("annotations", &self.annotations),
        ] {
            if value.as_ref().is_some_and(|value| !empty(value)) {
                return refuse(field, "this server's answers have none; expected null");
            }
        }
        let calls = self.tool_calls.unwrap_or_default();
        if !calls.is_empty() && self.role != Role::Assistant {
            return refuse("tool_calls", "only messages of the assistant call tools");
        }
        if self.content.is_none() && calls.is_empty() {
            return refuse("content", "a message needs content");
        }
        if (self.role == Role::Tool) != self.tool_call_id.is_some() {
            return refuse(
                "tool_call_id",
                "a message of a tool has the id of the call that it answers, others have none",
            );
        }
        let mut told = Map::new();
        told.insert("role".into(), self.role.name().into());
        let content = match self.content {
            None => Value::Null,
            Some(content) => content.templated(&format!("{path}.content"), self.role, images)?,
        };
        told.insert("content".into(), content);
        for (key, value) in
            [("name", self.name), ("tool_call_id", self.tool_call_id), ("reasoning_content", self.reasoning_content)]
        {
            if let Some(value) = value {
                told.insert(key.into(), value.into());
            }
        }
        if !calls.is_empty() {
            let calls = calls.into_iter().enumerate().map(|(at, call)| call.templated(path, at));
            told.insert("tool_calls".into(), calls.collect::<Result<_, _>>()?);
        }
        Ok(told.into())
    }
}

impl CallMade {
    fn templated(self, path: &str, at: usize) -> Result<Value, ApiError> {
        // Templates write the arguments with `tojson`, so they get the object.
        let arguments = match serde_json::from_str(&self.function.arguments) {
            Ok(Value::Object(arguments)) => arguments,
            // As models call what takes no arguments.
            Err(_) if self.function.arguments.trim().is_empty() => Map::new(),
            Ok(_) | Err(_) => {
                let path = format!("{path}.tool_calls[{at}].function.arguments");
                return Err(ApiError::parameter(&path, format!("{path} is no JSON object written as a string")));
            }
        };
        let id = self.id.map_or(Value::Null, Value::String);
        Ok(json!({"id": id, "type": "function", "function": {"name": self.function.name, "arguments": arguments}}))
    }
}

impl Content {
    /// A string where there are words alone, which every template takes; several texts have a line each.
    fn templated(self, path: &str, role: Role, images: &mut Vec<Image>) -> Result<Value, ApiError> {
        let parts = match self {
            Content::Text(text) => return Ok(text.into()),
            Content::Parts(parts) => parts,
        };
        let before = images.len();
        let mut told = Vec::new();
        for (at, part) in parts.into_iter().enumerate() {
            let path = format!("{path}[{at}]");
            match part {
                Part::Text { text } => told.push(json!({"type": "text", "text": text})),
                Part::ImageUrl { image_url } => {
                    if role != Role::User {
                        return Err(ApiError::parameter(&path, format!("{path}: only a user's message has pictures")));
                    }
                    if image_url.detail.is_some_and(|detail| detail != "auto") {
                        let path = format!("{path}.image_url.detail");
                        let message = format!("{path}: the model's image processor decides; expected \"auto\"");
                        return Err(ApiError::parameter(&path, message));
                    }
                    images.push(Image { path, url: image_url.url });
                    told.push(json!({"type": "image"}));
                }
            }
        }
        if images.len() > before {
            return Ok(told.into());
        }
        let texts: Vec<&str> = told.iter().filter_map(|part| part["text"].as_str()).collect();
        Ok(texts.join("\n").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Known, parse};

    /// Messages as templates read them, or the parameter that was refused.
    fn read(messages: &Value) -> Result<Value, Option<String>> {
        let body = json!({ "messages": messages }).to_string();
        let chat = parse(body.as_bytes(), Known { logits: 10, ids: 10 }).map_err(|error| error.detail.param)?;
        Ok(chat.messages.into())
    }

    #[test]
    fn a_choice_of_tools_goes_with_tools() {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        for choice in
            [json!("auto"), json!("none"), json!("required"), json!({"type": "function", "function": {"name": "f"}})]
        {
            for (tools, refused) in [(&Value::Null, true), (&json!([]), true), (&tools, false)] {
                let body =
                    json!({"messages": [{"role": "user", "content": "?"}], "tools": tools, "tool_choice": choice});
                let read = parse(body.to_string().as_bytes(), Known { logits: 10, ids: 10 });
                let param = read.err().and_then(|error| error.detail.param);
                assert_eq!(param.as_deref() == Some("tool_choice"), refused, "{body}: {param:?}");
            }
        }
    }

    #[test]
    fn an_answer_may_be_sent_back_as_clients_write_it() {
        let call = |arguments: &str| {
            json!([{"role": "assistant", "content": null, "refusal": null, "audio": null,
            "function_call": null, "annotations": [], "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}])
        };
        for (arguments, told) in [("{}", json!({})), ("", json!({})), ("{\"x\":1}", json!({"x": 1}))] {
            let read = read(&call(arguments)).expect("good");
            assert_eq!(read[0]["tool_calls"][0]["function"]["arguments"], told, "{arguments:?}");
        }
        assert_eq!(read(&call("[]")), Err(Some("messages[0].tool_calls[0].function.arguments".into())));
        for (field, value) in [
            ("audio", json!({"id": "a"})),
            ("function_call", json!({"name": "f"})),
            ("annotations", json!([{"type": "url_citation"}])),
            ("refusal", json!("no")),
        ] {
            let mut message = json!([{"role": "assistant", "content": "a"}]);
            message[0][field] = value;
            assert_eq!(read(&message), Err(Some(format!("messages[0].{field}"))), "{field}");
        }
    }
}
