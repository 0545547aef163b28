//! What is wrong with a constant whatever the checkpoint says: expressions that can only fail, requirements that never hold,
//! defaults outside their type.

use super::{
    Checker,
    scope::{Checked, Lowering},
};
use crate::{
    ast,
    config::{Mismatch, misfit},
    diagnostic::{Code, Diagnostic},
    ir::*,
    load::constant,
    source::Span,
};

impl Lowering<'_, '_> {
    /// `value`, unless it is known to have none.
    pub fn computable(&mut self, value: Load) -> Checked<Load> {
        let Err(error) = constant(&value) else { return Ok(value) };
        let mut diagnostic = Diagnostic::new(Code::NeverComputed, error.span, error.kind.to_string());
        if let Some(help) = error.kind.help() {
            diagnostic = diagnostic.help(help);
        }
        Err(self.error(diagnostic))
    }

    /// A `require` that no checkpoint fulfils.
    pub fn can_hold(&mut self, condition: &Load) -> Checked<()> {
        match constant(condition) {
            Ok(Some(value)) if value.as_bool() == Some(false) => {
                let message = "this never holds, so no checkpoint could be opened";
                self.fail(Code::RequireFailed, condition.span, message)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The constants that a default may come to, against the type of its field. `what` is the default, for people.
    pub fn fits(&mut self, ty: &FieldType, value: &Load, what: &str) -> Checked<()> {
        let Some((span, mismatch)) = outside(ty, value) else { return Ok(()) };
        let Mismatch { found, expected, near, item } = mismatch;
        let item = item.map_or(String::new(), |item| format!(", item {item},"));
        let message = format!("{what}{item} is {found}; expected {expected}");
        let mut error = Diagnostic::new(Code::TypeMismatch, span, message);
        if let Some(near) = near {
            error = error.help(format!("did you mean {near}?"));
        }
        Err(self.error(error))
    }
}

/// The first constant that `value` may come to and `ty` does not take.
fn outside(ty: &FieldType, value: &Load) -> Option<(Span, Mismatch)> {
    match (&value.kind, ty) {
        (LoadKind::If(_, then, otherwise), _) => outside(ty, then).or_else(|| outside(ty, otherwise)),
        (LoadKind::Block { value, .. }, _) => outside(ty, value),
        (LoadKind::List(items), FieldType::List(ty)) => items.iter().find_map(|item| outside(ty, item)),
        (LoadKind::Comprehension { item, .. }, FieldType::List(ty)) => outside(ty, item),
        _ => Some((value.span, misfit(ty, constant(value).ok()??)?)),
    }
}

impl Checker<'_> {
    /// `"a.b"`: steps with something between the dots.
    pub fn dotted(&mut self, path: &ast::Text, what: &str) -> Checked<()> {
        if path.node.split('.').all(|step| !step.is_empty()) {
            return Ok(());
        }
        let message = match path.node.as_str() {
            "" => format!("{what} is empty"),
            path => format!("{what} has nothing on one side of a dot: {path:?}"),
        };
        Err(self.report(Diagnostic::new(Code::UnexpectedToken, path.span, message)))
    }

    /// Each of the alternatives once: the second is never reached.
    pub fn distinct(&mut self, alternatives: &[ast::Text], what: &str) -> Checked<()> {
        for (i, second) in alternatives.iter().enumerate() {
            if let Some(first) = alternatives[..i].iter().find(|first| first.node == second.node) {
                let message = format!("{what} {:?} stands here twice", second.node);
                let error = Diagnostic::new(Code::DuplicateName, second.span, message);
                return Err(self.report(error.also(first.span, "first here")));
            }
        }
        Ok(())
    }

    /// The keys of a field or a section.
    pub fn keys(&mut self, keys: &[ast::Text]) -> Checked<Vec<String>> {
        for key in keys {
            self.dotted(key, "a key")?;
        }
        self.distinct(keys, "the key")?;
        Ok(keys.iter().map(|key| key.node.clone()).collect())
    }

    /// The `model_type`s and `architectures` that a family serves.
    pub fn served(&mut self, header: &ast::Header) {
        let lists = [(&header.model_types, "`model_type`"), (&header.architectures, "`architectures`")];
        for (names, key) in lists {
            if let Some(empty) = names.iter().find(|name| name.node.is_empty()) {
                let message = format!("a family serves checkpoints by their {key}, and this one is empty");
                self.report(Diagnostic::new(Code::UnexpectedToken, empty.span, message));
            }
            // Reported; nothing depends on it.
            let _ = self.distinct(names, &format!("the {key}"));
        }
    }

    /// The parts and places of a stored name: paths that lead somewhere, each once.
    pub fn stored_paths(&mut self, source: &ast::StoredAs) -> Checked<()> {
        let mut seen: Vec<Vec<String>> = Vec::new();
        for place in &source.places {
            let mut texts: Vec<String> = Vec::new();
            for (i, part) in place.iter().enumerate() {
                let path = &part.path;
                if !path.node.is_empty() {
                    self.dotted(path, "a stored path")?;
                }
                let rows = |part: &ast::PlacePart| {
                    part.rows.as_ref().map(|(low, high)| {
                        let [low, high] = [low, high].map(|end| self.sources.text(end.span).to_string());
                        format!("{low}..{high}")
                    })
                };
                let own = rows(part);
                let again = place[..i].iter().find(|first| {
                    let before = rows(first);
                    first.path.node == path.node && (before.is_none() || own.is_none() || before == own)
                });
                if let Some(first) = again {
                    let message = format!("{:?} is put together with itself", path.node);
                    let error = Diagnostic::new(Code::DoublyClaimed, path.span, message);
                    return Err(self.report(error.also(first.path.span, "first here")));
                }
                texts.push(format!("{}[{}]", path.node, own.unwrap_or_default()));
            }
            if let (true, Some(part)) = (seen.contains(&texts), place.first()) {
                let message = "this place stands here twice";
                return Err(self.report(Diagnostic::new(Code::DoublyClaimed, part.path.span, message)));
            }
            seen.push(texts);
        }
        Ok(())
    }
}
