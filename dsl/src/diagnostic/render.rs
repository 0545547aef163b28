//! A diagnostic as text: with the source, carets and help through `miette`, or as one line.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceSpan};

use super::Diagnostic;
use crate::source::{FileId, Sources, Span};

const WIDTH: usize = 110;
/// A longer line (a whole family on one line, as macros have it) is no picture. `miette` panics at columns past 65535.
const MAX_LINE: usize = 2000;
/// So many pictures are looked at; more mistakes are listed, a line each.
const MAX_PICTURES: usize = 100;

/// All diagnostics, each with its lines of source, one after the other.
pub fn render(diagnostics: &[Diagnostic], sources: &Sources, color: bool) -> String {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(WIDTH);
    let mut out = String::new();
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        let mut one = String::new();
        let drawn = index < MAX_PICTURES
            && short_lines(diagnostic, sources)
            && handler.render_report(&mut one, &Report::new(diagnostic, sources)).is_ok();
        if !drawn {
            one = render_plain(diagnostic, sources) + "\n";
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out += &one;
    }
    out
}

/// Whether every line that a picture would show is short enough for one.
fn short_lines(diagnostic: &Diagnostic, sources: &Sources) -> bool {
    let spans = std::iter::once(diagnostic.span).chain(diagnostic.related.iter().map(|(span, _)| *span));
    spans.into_iter().all(|span| {
        let text = &sources.get(span.file).text;
        let span = clamp(span, text);
        let (start, end) = (span.start as usize, span.end as usize);
        let before = text[..start].rfind('\n').map_or(start, |at| start - at);
        let after = text[end..].find('\n').unwrap_or(text.len() - end);
        before + (end - start) + after <= MAX_LINE
    })
}

/// `file:line:column: error[mg0101]: sentence`
pub fn render_plain(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let source = sources.get(diagnostic.span.file);
    let (line, column) = sources.line_column(clamp(diagnostic.span, &source.text));
    format!("{}:{line}:{column}: error[{}]: {}", source.name, diagnostic.code, diagnostic.message)
}

/// One-based lines and columns (in characters) of the start and the end of `span`.
pub fn extent(span: Span, sources: &Sources) -> ((usize, usize), (usize, usize)) {
    let span = clamp(span, &sources.get(span.file).text);
    (sources.line_column(span), sources.line_column(Span { start: span.end, ..span }))
}

/// Rendering an error must not be one, so a span that a stage got wrong is moved into its text.
fn clamp(span: Span, text: &str) -> Span {
    let inside = |at: u32| text.floor_char_boundary((at as usize).min(text.len())) as u32;
    let start = inside(span.start);
    Span { start, end: inside(span.end).max(start), ..span }
}

#[derive(Debug)]
struct Report {
    code: String,
    message: String,
    help: Option<String>,
    source: NamedSource<String>,
    labels: Vec<LabeledSpan>,
    /// Related places in other files.
    elsewhere: Vec<Report>,
}

impl Report {
    fn new(diagnostic: &Diagnostic, sources: &Sources) -> Self {
        let file = diagnostic.span.file;
        let (here, elsewhere): (Vec<_>, Vec<_>) = diagnostic.related.iter().partition(|(span, _)| span.file == file);
        let label = (!diagnostic.label.is_empty()).then(|| diagnostic.label.clone());
        let mut labels = vec![LabeledSpan::new_primary_with_span(label, place(diagnostic.span, sources))];
        labels.extend(
            here.iter().map(|(span, text)| LabeledSpan::new_with_span(Some(text.clone()), place(*span, sources))),
        );
        Report {
            code: diagnostic.code.to_string(),
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
            source: named(file, sources),
            labels,
            elsewhere: elsewhere
                .iter()
                .map(|(span, text)| Report {
                    code: String::new(),
                    message: text.clone(),
                    help: None,
                    source: named(span.file, sources),
                    labels: vec![LabeledSpan::new_primary_with_span(None, place(*span, sources))],
                    elsewhere: Vec::new(),
                })
                .collect(),
        }
    }
}

fn named(file: FileId, sources: &Sources) -> NamedSource<String> {
    let source = sources.get(file);
    NamedSource::new(&source.name, source.text.clone())
}

fn place(span: Span, sources: &Sources) -> SourceSpan {
    let span = clamp(span, &sources.get(span.file).text);
    (span.start as usize..span.end as usize).into()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Report {}

impl miette::Diagnostic for Report {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        (!self.code.is_empty()).then(|| Box::new(&self.code) as Box<dyn fmt::Display>)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn miette::Diagnostic> + 'a>> {
        (!self.elsewhere.is_empty()).then(|| {
            Box::new(self.elsewhere.iter().map(|report| report as &dyn miette::Diagnostic))
                as Box<dyn Iterator<Item = _>>
        })
    }
}
