//! A probe name occurs once in a call, as far as names can tell.

use crate::{diagnostic::Diagnostic, ir::Program};

pub(crate) fn repeated(_program: &Program) -> Vec<Diagnostic> {
    Vec::new()
}
