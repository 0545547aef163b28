//! Methods of Python's `str` and `list` that templates call. `minijinja-contrib` has most; here are those it lacks and
//! those where Python counts characters, or answers differently for an empty string.

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::{limits, python};

pub(super) fn call(state: &State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string(value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq if method == "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let position = value.try_iter()?.position(|item| item == *wanted);
            Some(position.map(Value::from).ok_or_else(|| invalid("list.index: no such item"))?)
        }
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn string(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let characters = |bytes: usize| text[..bytes].chars().count() as i64;
    // True only of a string that has characters, as in Python.
    let every = |holds: fn(char) -> bool| !text.is_empty() && text.chars().all(holds);
    if method == "format" {
        limits::widths(text)?;
    }
    let result = match method {
        "find" | "rfind" | "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let found = if method.starts_with('r') { text.rfind(wanted) } else { text.find(wanted) };
            match found {
                Some(bytes) => characters(bytes).into(),
                None if method.ends_with("find") => (-1).into(),
                None => return Err(invalid("str.index: no such substring")),
            }
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(separator) {
                Some((before, after)) => three([before, separator, after]),
                None => three([text, "", ""]),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(separator) {
                Some((before, after)) => three([before, separator, after]),
                None => three(["", "", text]),
            }
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            let most = most.and_then(|most| usize::try_from(most).ok());
            rsplit(text, separator, most).into()
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            lines(text, keep_ends.unwrap_or(false)).into()
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            python::join(items, Some(text), Kwargs::from_iter([] as [(&str, Value); 0]))?.into()
        }
        "title" => {
            let () = from_args(args)?;
            title(text).into()
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swap =
                |c: char| if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() };
            text.chars().map(swap).collect::<String>().into()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let missing = limits::width(width)?.saturating_sub(text.chars().count());
            format!("{sign}{}{digits}", "0".repeat(missing)).into()
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            padded(text, method, limits::width(width)?, fill.unwrap_or(' ')).into()
        }
        "isdigit" | "isnumeric" | "isdecimal" => every(char::is_numeric).into(),
        "isalpha" => every(char::is_alphabetic).into(),
        "isalnum" => every(char::is_alphanumeric).into(),
        "isspace" => every(char::is_whitespace).into(),
        "isupper" => (text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)).into(),
        "islower" => (text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)).into(),
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn three(parts: [&str; 3]) -> Value {
    parts.into_iter().map(Value::from).collect()
}

fn padded(text: &str, method: &str, width: usize, fill: char) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        // CPython's rule for the odd one out.
        _ => missing / 2 + (missing & width & 1),
    };
    let fill = |count: usize| fill.to_string().repeat(count);
    format!("{}{text}{}", fill(left), fill(missing - left))
}

fn rsplit(text: &str, separator: Option<&str>, most: Option<usize>) -> Vec<String> {
    let most = most.unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = Vec::new();
    match separator {
        Some(separator) => parts.extend(text.rsplitn(most.saturating_add(1), separator)),
        None => {
            let mut rest = text.trim_end();
            while !rest.is_empty() && parts.len() < most {
                let Some((at, space)) = rest.char_indices().rfind(|(_, c)| c.is_whitespace()) else { break };
                parts.push(&rest[at + space.len_utf8()..]);
                rest = rest[..at].trim_end();
            }
            if !rest.is_empty() {
                parts.push(rest);
            }
        }
    }
    parts.iter().rev().map(|part| (*part).to_owned()).collect()
}

/// Python ends a line at more than `\n`.
fn lines(text: &str, keep_ends: bool) -> Vec<String> {
    let ends = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some((at, end)) = rest.char_indices().find(|(_, c)| ends(*c)) {
        let length = if rest[at..].starts_with("\r\n") { 2 } else { end.len_utf8() };
        lines.push(rest[..if keep_ends { at + length } else { at }].to_owned());
        rest = &rest[at + length..];
    }
    if !rest.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

/// Every letter that does not follow one is upper case, the others lower case.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphabetic();
    }
    out
}
