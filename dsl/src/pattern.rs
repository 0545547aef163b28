//! Patterns over names, as `ignore` and `contract` write them.

/// `*` in `pattern` is any run of characters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
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
        assert!(matches("*é", "aéé") && !matches("a*é", "aé."));
    }
}
