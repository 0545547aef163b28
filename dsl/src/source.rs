//! Source texts and places in them. Everything that can be wrong points here.

/// A place in one of the texts of a compilation: bytes `start..end` of file `file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub file: FileId,
    pub start: u32,
    pub end: u32,
}

/// Index into [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u16);

/// The prelude is always the first file.
pub const PRELUDE: FileId = FileId(0);

#[derive(Debug, Clone)]
pub struct Source {
    /// As shown to people: a path relative to where the build runs, or `prelude.mgraph`.
    pub name: String,
    pub text: String,
}

#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        self.files.push(Source { name: name.into(), text: text.into() });
        FileId((self.files.len() - 1) as u16)
    }

    pub fn get(&self, id: FileId) -> &Source {
        &self.files[id.0 as usize]
    }

    pub fn text(&self, span: Span) -> &str {
        &self.get(span.file).text[span.start as usize..span.end as usize]
    }

    /// One-based line and column (in characters) of the start of `span`.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let before = &self.get(span.file).text[..span.start as usize];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        (line, column)
    }
}

impl Span {
    pub fn to(self, end: Span) -> Span {
        Span { end: end.end, ..self }
    }
}
