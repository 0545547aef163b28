//! What stands between two tokens: blanks, line breaks, and comments.

/// A comment, and the line breaks before it.
#[derive(Debug, Clone, Copy)]
pub struct Comment<'t> {
    pub text: &'t str,
    pub breaks_before: usize,
    /// Whether its line goes on behind it.
    pub is_followed: bool,
    pub end: usize,
}

impl Comment<'_> {
    pub fn is_line(&self) -> bool {
        self.text.starts_with("//")
    }

    /// Whether code may go on behind it.
    pub fn is_inline(&self) -> bool {
        self.is_followed && !self.is_line() && !self.text.contains('\n')
    }
}

/// The comments in `text[start..end]`, which holds nothing else, and the line breaks behind the last.
pub fn between(text: &str, start: usize, end: usize) -> (Vec<Comment<'_>>, usize) {
    let mut comments: Vec<Comment<'_>> = Vec::new();
    let mut breaks = 0;
    let mut at = start;
    while at < end {
        let rest = &text[at..end];
        let length = match rest.bytes().next() {
            Some(b'\n') => {
                breaks += 1;
                1
            }
            Some(b'/') => comment_length(rest),
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        if rest.starts_with('/') {
            // A line break inside a comment on several lines is its own.
            let comment = Comment {
                text: rest[..length].trim_end(),
                breaks_before: breaks,
                is_followed: false,
                end: at + length,
            };
            if let Some(last) = comments.last_mut() {
                last.is_followed = breaks == 0;
            }
            comments.push(comment);
            breaks = 0;
        }
        at += length;
    }
    if let Some(last) = comments.last_mut() {
        last.is_followed = breaks == 0 && end < text.len();
    }
    (comments, breaks)
}

/// The comments behind a token that ends at `start`, if its line ends with them.
pub fn behind(text: &str, start: usize) -> Vec<Comment<'_>> {
    let mut end = start;
    loop {
        end += text[end..].len() - text[end..].trim_start_matches([' ', '\t', '\r']).len();
        let rest = &text[end..];
        if rest.starts_with("//") || rest.starts_with("/*") {
            let length = comment_length(rest);
            if rest[..length].contains('\n') {
                return Vec::new();
            }
            end += length;
        } else if rest.is_empty() || rest.starts_with('\n') {
            return between(text, start, end).0;
        } else {
            return Vec::new();
        }
    }
}

/// Block comments nest.
fn comment_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    let mut depth = 0;
    let mut at = 0;
    while let Some(offset) = text[at..].find(['*', '/']) {
        at += offset;
        let here = &text[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}
