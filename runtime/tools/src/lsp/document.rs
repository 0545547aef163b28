//! A text that is open in an editor: its changes, its positions, and what was last known about it.

use lsp_types::{Position, Range, TextDocumentContentChangeEvent, Uri};
use mgraph_dsl::{
    analysis::{Analysis, analyze, analyze_prelude},
    source::Span,
};

pub struct Document {
    pub uri: Uri,
    pub version: i32,
    text: String,
    lines: Lines,
    analysis: Option<Analysis>,
}

impl Document {
    pub fn new(uri: Uri, version: i32, text: String) -> Self {
        let lines = Lines::of(&text);
        Document { uri, version, text, lines, analysis: None }
    }

    pub fn change(&mut self, version: i32, changes: Vec<TextDocumentContentChangeEvent>) {
        self.version = version;
        for change in changes {
            match change.range {
                None => self.text = change.text,
                Some(range) => {
                    let (a, b) = (self.offset(range.start) as usize, self.offset(range.end) as usize);
                    self.text.replace_range(a.min(b)..a.max(b), &change.text);
                }
            }
            self.lines = Lines::of(&self.text);
        }
        self.analysis = None;
    }

    /// What is known about the present text.
    pub fn analysis(&mut self) -> &Analysis {
        let prelude = self.is_prelude();
        self.analysis.get_or_insert_with(|| {
            if prelude { analyze_prelude(&self.text) } else { analyze(name(&self.uri), &self.text) }
        })
    }

    /// What is known, if the present text has been read.
    pub fn known(&self) -> Option<&Analysis> {
        self.analysis.as_ref()
    }

    pub fn is_prelude(&self) -> bool {
        name(&self.uri) == super::prelude::NAME
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn offset(&self, position: Position) -> u32 {
        self.lines.offset(&self.text, position)
    }

    pub fn position(&self, offset: u32) -> Position {
        self.lines.position(&self.text, offset)
    }

    pub fn range(&self, span: Span) -> Range {
        self.lines.range(&self.text, span)
    }
}

/// The last part of the path.
fn name(uri: &Uri) -> &str {
    let path = uri.path().as_str();
    path.rsplit('/').next().unwrap_or(path)
}

/// Where the lines of a text begin.
#[derive(Debug)]
pub struct Lines(Vec<u32>);

impl Lines {
    pub fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let ends =
            bytes.iter().enumerate().filter(|&(i, b)| *b == b'\n' || *b == b'\r' && bytes.get(i + 1) != Some(&b'\n'));
        Lines([0].into_iter().chain(ends.map(|(i, _)| i as u32 + 1)).collect())
    }

    /// The byte offset of a position; one behind the end of its line, or of the text, is that end.
    pub fn offset(&self, text: &str, position: Position) -> u32 {
        let Some(&start) = self.0.get(position.line as usize) else { return text.len() as u32 };
        let end = self.0.get(position.line as usize + 1).map_or(text.len(), |&next| next as usize);
        let line = text[start as usize..end].trim_end_matches(['\r', '\n']);
        let mut units = 0;
        for (at, c) in line.char_indices() {
            if units >= position.character {
                return start + at as u32;
            }
            units += c.len_utf16() as u32;
        }
        start + line.len() as u32
    }

    /// The position of a byte offset, in UTF-16 units.
    pub fn position(&self, text: &str, offset: u32) -> Position {
        let mut offset = (offset as usize).min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.0.partition_point(|&start| start as usize <= offset).saturating_sub(1);
        let before = &text[self.0[line] as usize..offset];
        Position { line: line as u32, character: before.encode_utf16().count() as u32 }
    }

    pub fn range(&self, text: &str, span: Span) -> Range {
        Range { start: self.position(text, span.start), end: self.position(text, span.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, character: u32) -> Position {
        Position { line, character }
    }

    #[test]
    fn positions_count_in_utf16() {
        let text = "aé\r\n𝒳b\n\nlast";
        let lines = Lines::of(text);
        for (offset, position) in
            [(0, at(0, 0)), (3, at(0, 2)), (5, at(1, 0)), (9, at(1, 2)), (10, at(1, 3)), (11, at(2, 0)), (16, at(3, 4))]
        {
            assert_eq!(lines.position(text, offset), position, "{offset}");
            assert_eq!(lines.offset(text, position), offset, "{position:?}");
        }
        for (position, offset) in [(at(0, 99), 3), (at(99, 0), 16), (at(1, 1), 9)] {
            assert_eq!(lines.offset(text, position), offset, "{position:?}");
        }
    }

    #[test]
    fn changes_apply_in_order() {
        let uri: Uri = "file:///toy.mgraph".parse().unwrap();
        let mut document = Document::new(uri, 1, "one\ntwo\n".into());
        let change = |start, end, text: &str| TextDocumentContentChangeEvent {
            range: Some(Range { start, end }),
            range_length: None,
            text: text.into(),
        };
        document.change(
            2,
            vec![change(at(0, 3), at(1, 0), " "), change(at(0, 7), at(0, 4), "2"), change(at(9, 9), at(9, 9), "!")],
        );
        assert_eq!(document.text(), "one 2\n!");
        let whole = TextDocumentContentChangeEvent { range: None, range_length: None, text: "new".into() };
        document.change(3, vec![whole]);
        assert_eq!(document.text(), "new");
    }
}
