//! `{% generation %}` marks what the assistant wrote, for training; it renders its body in a scope of its own, which is
//! what `{% with %}` does. The tags are renamed before compiling, markers and positions kept, outside of comments,
//! strings and raw blocks.

/// The template with `generation` tags as `with` tags.
pub(super) fn as_scopes(source: &str) -> String {
    // Jinja reads all newlines as one kind.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match rest.as_bytes().get(1) {
            Some(b'#') => rest.find("#}").map_or(rest.len(), |end| end + 2),
            Some(b'{') => code(rest, "}}"),
            Some(b'%') => {
                let length = code(rest, "%}");
                let tag = &rest[..length];
                match word(tag) {
                    "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
                    "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
                    "raw" => {
                        let end = length + raw(&rest[length..]);
                        out.push_str(&rest[..end]);
                        rest = &rest[end..];
                        continue;
                    }
                    _ => out.push_str(tag),
                }
                rest = &rest[length..];
                continue;
            }
            _ => 1,
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

/// The length of a tag or expression: up to `end`, if that is not inside a string.
fn code(text: &str, end: &str) -> usize {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut at = 2;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(end.as_bytes()) => return at + end.len(),
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// The length of a raw block's body with its end tag.
fn raw(body: &str) -> usize {
    let mut at = 0;
    while let Some(open) = body[at..].find("{%") {
        at += open;
        let length = code(&body[at..], "%}");
        if word(&body[at..at + length]) == "endraw" {
            return at + length;
        }
        at += 2;
    }
    body.len()
}

/// The first word of a tag.
fn word(tag: &str) -> &str {
    let inner = tag[2..].trim_start_matches(['-', '+']).trim_start();
    inner.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::as_scopes;

    #[test]
    fn only_tags_are_renamed() {
        let renamed = as_scopes("{%- generation -%}{{ '{% generation %}' }}{% endgeneration %}{# {% generation %} #}");
        assert_eq!(renamed, "{%- with -%}{{ '{% generation %}' }}{% endwith %}{# {% generation %} #}");
        let raw = "{% raw %}{% generation %}{% endraw %}";
        assert_eq!(as_scopes(raw), raw);
    }

    #[test]
    fn unfinished_text_is_kept_as_it_is() {
        for text in ["{", "{%", "{% generatio", "{{ 'a", "{% raw %}{%", "é{#é", "{%é"] {
            assert_eq!(as_scopes(text), text);
        }
    }
}
