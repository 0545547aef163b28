//! Why a call has no result.

use crate::{
    load::LoadError,
    source::{Sources, Span},
};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Fault {
    pub span: Span,
    /// `llama.mgraph:63:12`
    pub place: String,
    pub message: String,
}

impl Fault {
    pub fn new(sources: &Sources, span: Span, message: impl Into<String>) -> Fault {
        let (line, column) = sources.line_column(span);
        let place = format!("{}:{line}:{column}", sources.get(span.file).name);
        Fault { span, place, message: message.into() }
    }

    pub(crate) fn load(sources: &Sources, error: &LoadError) -> Fault {
        Fault::new(sources, error.span, error.to_string())
    }
}
