//! Server-sent events as the HTML standard has clients read them (9.2.6), without the type, the id and the time to wait.

/// The data of each event.
pub fn data(stream: &str) -> Vec<String> {
    let text = stream.strip_prefix('\u{feff}').unwrap_or(stream);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    // What no empty line ends is no event.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        match field {
            "" if line.is_empty() => {
                if !lines.is_empty() {
                    events.push(lines.join("\n"));
                }
                lines.clear();
            }
            "data" => lines.push(value.strip_prefix(' ').unwrap_or(value)),
            _ => {}
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::data;

    #[test]
    fn events_are_read_as_the_standard_reads_them() {
        let cases: [(&str, &[&str]); 6] = [
            ("data: a\n\n", &["a"]),
            ("data: a\r\ndata:b\r\rdata\n\n", &["a\nb", ""]),
            (": alive\n\ndata:  a\n\n", &[" a"]),
            ("event: e\nid: 1\ndata: a:b\nother\n\n", &["a:b"]),
            ("data: never ended", &[]),
            ("data: ended by one line\n", &[]),
        ];
        for (stream, expected) in cases {
            assert_eq!(data(stream), expected, "{stream:?}");
        }
    }
}
