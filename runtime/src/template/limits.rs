//! How much a template may make: of text in all, of JSON, of white space at a time. Steps are bounded by its fuel.
//!
//! What is not bounded is text that a template doubles for itself without writing it (`x ~ x` in a loop): minijinja has no place
//! to look at it. `mlxcel serve` renders in a process of its own, whose memory is limited.

use std::io;

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, State, Value, filters};

/// Bytes of a rendered conversation, and of anything that a filter writes.
pub(super) const MAX_TEXT: usize = 16 << 20;

/// Columns of an indentation, or of a field of `format`.
const MAX_WIDTH: usize = 1000;

/// What is written as long as there is not too much of it.
#[derive(Default)]
pub(super) struct Bounded(Vec<u8>);

impl Bounded {
    pub fn into_text(self) -> String {
        // Templates write strings alone.
        String::from_utf8(self.0).unwrap_or_default()
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
            return Err(io::Error::other(too_long()));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn too_long() -> Error {
    refuse(format!("it makes more than {MAX_TEXT} bytes of text"))
}

pub(super) fn fits(length: usize) -> Result<(), Error> {
    if length > MAX_TEXT { Err(too_long()) } else { Ok(()) }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Refuses a width that only fills memory.
pub(super) fn width(width: usize) -> Result<usize, Error> {
    if width > MAX_WIDTH { Err(refuse(format!("a width of {width}; at most {MAX_WIDTH} is taken"))) } else { Ok(width) }
}

/// The widths in a format string, of either kind. One that comes with the arguments (`*`) is refused: Python's templates have none.
pub(super) fn widths(format: &str) -> Result<(), Error> {
    if format.contains('*') && format.contains('%') {
        return Err(refuse("format: widths are written as numbers".to_owned()));
    }
    for digits in format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        width(digits.parse().unwrap_or(usize::MAX))?;
    }
    Ok(())
}

/// `value | format(..)`.
pub(super) fn format(state: &State<'_, '_>, format: &Value, arguments: Rest<Value>) -> Result<Value, Error> {
    widths(format.as_str().unwrap_or_default())?;
    filters::format(state, format, arguments)
}

/// `value | indent(width=4, first=False, blank=False)`.
pub(super) fn indent(
    value: &str,
    columns: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let columns =
        width(columns.map_or_else(|| kwargs.get::<Option<usize>>("width"), |given| Ok(Some(given)))?.unwrap_or(4))?;
    let first = first.map_or_else(|| kwargs.get::<Option<bool>>("first"), |given| Ok(Some(given)))?.unwrap_or(false);
    let blank = blank.map_or_else(|| kwargs.get::<Option<bool>>("blank"), |given| Ok(Some(given)))?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let text = value.strip_suffix('\n').map_or(value, |text| text.strip_suffix('\r').unwrap_or(text));
    let space = " ".repeat(columns);
    let mut out = String::new();
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if (at > 0 || first) && (blank || !line.is_empty()) {
            out.push_str(&space);
        }
        out.push_str(line);
        fits(out.len())?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::widths;

    #[test]
    fn widths_that_only_fill_memory_are_refused() {
        for good in ["%5d", "{:>20}", "{0} of {1}", "100 %", "2 * 3", "%1000s"] {
            assert!(widths(good).is_ok(), "{good}");
        }
        for bad in ["%1001d", "{:>99999999999999999999}", "%*d", "%.5000f"] {
            assert!(widths(bad).is_err(), "{bad}");
        }
    }
}
