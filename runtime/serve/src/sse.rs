//! Server-sent events: a line `data:` with JSON, and an empty line. JSON of serde has no line breaks outside of strings, and
//! none inside them either, so one line holds any value.

use axum::body::Bytes;
use serde::Serialize;

/// What ends a stream that is complete.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A comment, for proxies that end silent connections.
pub const ALIVE: &[u8] = b": alive\n\n";

pub fn event(value: &impl Serialize) -> Bytes {
    let mut line = b"data: ".to_vec();
    if let Err(error) = serde_json::to_writer(&mut line, value) {
        // Not of our types: they have no maps with keys that are no strings.
        tracing::error!("an event was not written: {error}");
        return Bytes::from_static(ALIVE);
    }
    line.extend_from_slice(b"\n\n");
    line.into()
}

#[cfg(test)]
mod tests {
    use super::event;

    #[test]
    fn one_event_is_one_line_whatever_it_says() {
        let text = "a\r\n\u{2028}data: [DONE]\n\n\0";
        let written = event(&text);
        let (line, end) = written.split_at(written.len() - 2);
        assert_eq!(end, b"\n\n");
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
        let json = line.strip_prefix(b"data: ").expect("the field");
        assert_eq!(serde_json::from_slice::<String>(json).expect("JSON"), text);
    }
}
