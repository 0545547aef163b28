//! Python's way of writing values: `str`, `repr`, and the tests whose meaning differs from minijinja's.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::limits;

/// Deeper data is refused before it exhausts the stack; Python refuses it too.
const MAX_DEPTH: usize = 200;

/// `str(value)`; undefined is empty, as in Jinja.
///
/// Errors: data that is nested too deeply, or too long a text: a list may hold another many times over.
pub(super) fn str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        _ => {
            let mut out = String::new();
            repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

/// `repr(value)`. Values Python has no name for (macros, loops) keep minijinja's.
fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "the data is nested too deeply to be written"));
    }
    limits::fits(out.len())?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => out.push_str(&quoted(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (at, item) in value.try_iter()?.enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (at, key) in value.try_iter()?.enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key).unwrap_or_default(), depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// An integer as it is, a float as [`float`].
pub(super) fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => float(number),
        Ok(_) | Err(_) => value.to_string(),
    }
}

/// Python's `repr(float)`: the shortest digits that read back, in scientific form below 1e-4 and from 1e16 on.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        return format!("{number:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A string literal: single quotes unless only those occur inside, and escapes for what does not print.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if prints(c) => out.push(c),
            c => {
                let code = u32::from(c);
                // Writing to a string cannot fail.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// Python's `isprintable`, for the characters that text holds: no controls, no spaces but one, no format characters.
fn prints(c: char) -> bool {
    let format = matches!(
        c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' | '\u{f0000}'..
    );
    c == ' ' || !(c.is_control() || c.is_whitespace() || format)
}

/// `join(separator, attribute=None)` with items as `str` writes them.
pub(super) fn join(value: &Value, separator: Option<&str>, kwargs: Kwargs) -> Result<String, Error> {
    let attribute: Option<&str> = kwargs.get("attribute")?;
    let separator = match kwargs.get::<Option<&str>>("d")? {
        Some(named) => named,
        None => separator.unwrap_or_default(),
    };
    kwargs.assert_all_used()?;
    let (mut items, mut length) = (Vec::new(), 0);
    for item in value.try_iter()? {
        items.push(match attribute {
            Some(attribute) => str(&item.get_attr(attribute)?)?,
            None => str(&item)?,
        });
        length += items.last().map_or(0, String::len) + separator.len();
        limits::fits(length)?;
    }
    Ok(items.join(separator))
}

/// Has a length and can be indexed: in Python also strings, mappings, and Jinja's undefined.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
}

/// Can be looped over: in Python also strings, mappings, and Jinja's undefined.
pub(super) fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let value =
            Value::from_serialize(serde_json::json!([1, 1.0, true, null, "it's", "a\n\u{200b}é", {"k": [0.5]}]));
        assert_eq!(str(&value).expect("short"), "[1, 1.0, True, None, \"it's\", 'a\\n\\u200bé', {'k': [0.5]}]");
    }

    #[test]
    fn floats_print_as_in_python() {
        let cases =
            [(1e15, "1000000000000000.0"), (1e16, "1e+16"), (1.5e-5, "1.5e-05"), (1e-4, "0.0001"), (-0.0, "-0.0")];
        for (number, text) in cases {
            assert_eq!(float(number), text);
        }
    }
}
