//! Diagnostics as an editor takes them: the sentence and what to do, the label and other places as related information.

use lsp_types::{
    Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, Location, NumberOrString, PublishDiagnosticsParams,
    Range,
};

use super::{document::Document, names};

pub fn diagnostics(document: &mut Document) -> PublishDiagnosticsParams {
    let said = document.analysis().diagnostics.clone();
    let (uri, version) = (document.uri.clone(), document.version);
    let related = |location, message: &str| DiagnosticRelatedInformation { location, message: message.into() };
    let diagnostics = said.iter().map(|said| {
        let place = names::location(document, said.span);
        // A family cannot break the prelude; if it seems so, the message stands at its top.
        let here = place.as_ref().filter(|place| place.uri == uri).map_or_else(Range::default, |place| place.range);
        let elsewhere = place.filter(|place| place.uri != uri).map(|place| related(place, "here"));
        let label = (!said.label.is_empty()).then(|| related(Location { uri: uri.clone(), range: here }, &said.label));
        let others =
            said.related.iter().filter_map(|(span, text)| Some(related(names::location(document, *span)?, text)));
        let help = said.help.as_ref().map_or_else(String::new, |help| format!("\nhelp: {help}"));
        Diagnostic {
            range: here,
            severity: Some(DiagnosticSeverity::ERROR),
            code: Some(NumberOrString::String(said.code.to_string())),
            source: Some("mgraph".into()),
            message: format!("{}{help}", said.message),
            related_information: Some(label.into_iter().chain(elsewhere).chain(others).collect()),
            ..Diagnostic::default()
        }
    });
    let diagnostics = diagnostics.collect();
    PublishDiagnosticsParams { uri, diagnostics, version: Some(version) }
}
