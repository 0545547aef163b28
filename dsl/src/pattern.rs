//! Patterns over names, as `ignore`, `contract` and `--stages` write them.

/// `*` in `pattern` is any run of characters. Each stretch between stars is taken where it first fits: a later place would
/// leave less for the rest.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let (between, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*') {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_is_any_run_of_characters() {
        assert!(matches("*", "layer.0.attn"));
        assert!(matches("layer.*.attn", "layer.12.attn"));
        assert!(!matches("layer.*.attn", "layer.12.mlp"));
        assert!(matches("norm", "norm") && !matches("norm", "norms"));
        assert!(matches("a*b*b", "abb") && !matches("a*b*b", "ab"));
        assert!(matches("*.k*.w", "a.k.b.k.w") && !matches("*.k*.w", "a.k.b.k.v"));
        // Every way to place the stars would be 10^12 ways.
        assert!(!matches(&"*a".repeat(24), &"ab".repeat(60)));
        assert!(matches("*é", "aéé") && !matches("a*é", "aé."));
    }
}
