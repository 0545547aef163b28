//! A body of JSON becomes a typed value, or an error that names the field. Keys that nobody reads are refused, each with its
//! reason where there is one: nothing is ignored in silence.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::{
    PartialSchema,
    openapi::{RefOr, Schema},
};

use super::ApiError;

/// A parameter of OpenAI's or of other servers that this one knows and does not serve.
pub struct Unserved {
    pub name: &'static str,
    /// The value that asks for nothing and is taken, as JSON. `null` always is.
    pub harmless: &'static str,
    pub why: &'static str,
}

const fn unserved(name: &'static str, harmless: &'static str, why: &'static str) -> Unserved {
    Unserved { name, harmless, why }
}

/// What is refused by name, the book's list too.
pub const UNSERVED: &[Unserved] = &[
    unserved("audio", "null", "answers are text"),
    unserved("best_of", "1", "every answer is returned; ask for several with `n`"),
    unserved("chat_template", "null", "the template is the checkpoint's"),
    unserved("echo", "false", "the prompt is not returned"),
    unserved("function_call", "\"auto\"", "use `tool_choice`"),
    unserved("functions", "[]", "use `tools`"),
    unserved("grammar", "null", "use `response_format`"),
    unserved("guided_json", "null", "use `response_format` of type `json_schema`"),
    unserved("length_penalty", "1", "there is no beam search"),
    unserved("metadata", "{}", "answers are not stored"),
    unserved("modalities", "[\"text\"]", "answers are text"),
    unserved("prediction", "null", "no draft is taken"),
    unserved("prompt_cache_key", "null", "prefixes are found by their tokens"),
    unserved("prompt_logprobs", "null", "logarithms are of the answer alone"),
    unserved("reasoning_effort", "null", "pass what the template reads in `chat_template_kwargs`"),
    unserved("safety_identifier", "null", "there is nobody to report to"),
    unserved("service_tier", "\"auto\"", "there is one tier"),
    unserved("store", "false", "answers are not stored"),
    unserved("suffix", "null", "text is continued at its end alone"),
    unserved("use_beam_search", "false", "there is no beam search"),
    unserved("verbosity", "null", "say it in the prompt"),
    unserved("web_search_options", "null", "nothing is looked up"),
];

/// Bytes of memory that a body of JSON may take while it is read: its texts as they are parsed, copied into fields and handed on,
/// and the tree. A body of small values unfolds to many times its size.
pub fn parsed_size(bytes: &[u8]) -> usize {
    /// Texts beside the body itself.
    const COPIES: usize = 3;
    /// A value in its list, and what a list or an object has for itself: a leaf of a tree of eleven keys and values.
    const VALUE: usize = 2 * size_of::<Value>();
    const NESTED: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
    let (mut values, mut nested) = (0usize, 0usize);
    let (mut quoted, mut escaped) = (false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => values += 1,
            b'[' | b'{' if !quoted => nested += 1,
            _ => {}
        }
    }
    bytes.len() * COPIES + values * VALUE + nested * NESTED
}

/// The JSON object of a body.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid(format!("the body is no valid JSON: {error}")).coded("invalid_json"))?;
    match value {
        Value::Object(object) => Ok(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(ApiError::invalid("the body is JSON, but no object").coded("invalid_json"))
        }
    }
}

/// Takes the fields of `T` out of a body. `T` denies unknown fields of its inner objects itself.
pub fn take<T: DeserializeOwned + PartialSchema>(body: &mut Map<String, Value>) -> Result<T, ApiError> {
    let mut own = Map::new();
    for field in fields::<T>() {
        if let Some((key, value)) = body.remove_entry(&field) {
            own.insert(key, value);
        }
    }
    serde_path_to_error::deserialize(Value::Object(own)).map_err(|error| {
        let path = error.path().to_string();
        let message = error.inner().to_string();
        match path.as_str() {
            // Of the whole body: a field that is missing.
            "." => {
                let field = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
                let told = ApiError::invalid(format!("the request is incomplete: {message}"));
                field.map_or_else(|| told.clone(), |field| told.clone().of(field)).coded("missing_parameter")
            }
            _ => ApiError::parameter(path.clone(), format!("{path}: {message}")).coded("invalid_type"),
        }
    })
}

/// What is left when everything that is read was taken.
pub fn nothing_left(body: &Map<String, Value>, known: &[String]) -> Result<(), ApiError> {
    for (name, value) in body {
        if let Some(unserved) = UNSERVED.iter().find(|unserved| unserved.name == name) {
            let harmless = serde_json::from_str(unserved.harmless).unwrap_or(Value::Null);
            if value.is_null() || *value == harmless {
                continue;
            }
            let message = format!("`{name}` is not supported by this server: {}", unserved.why);
            return Err(ApiError::invalid(message).of(name).coded("unsupported_parameter"));
        }
        let similar = known
            .iter()
            .map(|known| (strsim::jaro_winkler(known, name), known))
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let hint = similar.map_or_else(String::new, |(_, known)| format!("; did you mean `{known}`?"));
        let message = format!("there is no parameter `{name}`{hint}");
        return Err(ApiError::invalid(message).of(name).coded("unknown_parameter"));
    }
    Ok(())
}

/// The names of a type's fields, as its schema has them.
pub fn fields<T: PartialSchema>() -> Vec<String> {
    match T::schema() {
        RefOr::T(Schema::Object(object)) => object.properties.keys().cloned().collect(),
        RefOr::T(_) | RefOr::Ref(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::parsed_size;

    #[test]
    fn small_values_take_many_times_their_size() {
        let sized = |body: &str| parsed_size(body.as_bytes()) / body.len();
        assert_eq!(sized(&format!("{{\"prompt\": \"{}\"}}", "[{,".repeat(10_000))), 3);
        assert!(sized(&"[".repeat(1000)) > 500);
        assert!(sized(&format!("[{}1]", "1,".repeat(1000))) > 20);
        assert_eq!(sized(&format!("\"{}\"", r#"\"[\\"#.repeat(1000))), 3);
    }
}
