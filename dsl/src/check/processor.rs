//! The `processor` item: a row of a closed table, with the file that sets it up and the token that stands for a picture.

use super::{
    Checker,
    scope::{Checked, Reported},
};
use crate::{
    ast::{self, ExprKind},
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
};

/// Name of the argument, and what its string is.
const ARGUMENTS: [(&str, &str); 2] =
    [("settings", "the name of a file beside config.json"), ("image_token", "a key of config.json")];

impl<'a> Checker<'a> {
    /// `None` without one; `Err` where it is wrong, which is reported.
    pub fn processor(&mut self, items: &'a [ast::Item]) -> Checked<Option<Processor>> {
        let mut written = items.iter().filter_map(|i| if let ast::Item::Processor(p) = i { Some(p) } else { None });
        let Some(first) = written.next() else { return Ok(None) };
        for second in written {
            self.report(
                Diagnostic::new(Code::WrongProcessor, second.name.span, "a family has one processor")
                    .also(first.name.span, "first here"),
            );
        }
        let kind = ProcessorKind::named(&first.name.node);
        if kind.is_none() {
            let names = || ProcessorKind::ALL.into_iter().map(ProcessorKind::name);
            let message = format!("the runtime has no processor `{}`", first.name.node);
            let error = Diagnostic::new(Code::WrongProcessor, first.name.span, message).label("not known");
            let error = match suggest(&first.name.node, names()) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help(format!("it has {}", names().collect::<Vec<_>>().join(", "))),
            };
            self.report(error);
        }
        let values = self.processor_arguments(first);
        let (Some(kind), Ok([settings, image_token])) = (kind, values) else { return Err(Reported) };
        Ok(Some(Processor { kind, settings, image_token, span: first.name.span }))
    }

    fn processor_arguments(&mut self, processor: &ast::Processor) -> Checked<[String; 2]> {
        let mut values = [const { None }; 2];
        let mut failed = false;
        let mut wrong = |this: &mut Self, span, message: String, help: Option<String>| {
            failed = true;
            let error = Diagnostic::new(Code::WrongProcessor, span, message);
            this.report(match help {
                Some(help) => error.help(help),
                None => error,
            });
        };
        for argument in &processor.arguments {
            let Some(name) = &argument.name else {
                let message = "the arguments of a processor are named".to_string();
                let help = "write `settings = \"..\", image_token = \"..\"`".to_string();
                wrong(self, argument.value.span, message, Some(help));
                continue;
            };
            let Some(at) = ARGUMENTS.iter().position(|(known, _)| *known == name.node) else {
                let near = suggest(&name.node, ARGUMENTS.map(|(known, _)| known));
                let help = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "it takes `settings` and `image_token`".into(),
                };
                wrong(self, name.span, format!("a processor has no argument `{}`", name.node), Some(help));
                continue;
            };
            let ExprKind::Text(text) = &argument.value.kind else {
                let message = format!("`{}` is {}, written as a string", name.node, ARGUMENTS[at].1);
                wrong(self, argument.value.span, message, None);
                continue;
            };
            let plain = std::path::Path::new(text).file_name().is_some_and(|file| file == text.as_str());
            if text.is_empty() || (name.node == "settings" && !plain) {
                let message = format!("{text:?} is not {}", ARGUMENTS[at].1);
                wrong(self, argument.value.span, message, None);
            } else if values[at].is_some() {
                wrong(self, name.span, format!("`{}` is given twice", name.node), None);
            } else {
                values[at] = Some(text.clone());
            }
        }
        let given = |name: &str| processor.arguments.iter().any(|a| a.name.as_ref().is_some_and(|n| n.node == name));
        for (name, what) in ARGUMENTS {
            if !given(name) {
                let message = format!("the processor needs `{name}`, {what}");
                wrong(self, processor.name.span, message, None);
            }
        }
        match values {
            [Some(settings), Some(image_token)] if !failed => Ok([settings, image_token]),
            _ => Err(Reported),
        }
    }

    /// An input of `vision`: by name, dtype and rank one of the processor's outputs.
    pub fn check_processor_output(&mut self, kind: ProcessorKind, input: &ast::Parameter, ty: &TensorType) {
        let name = &input.name;
        let Some(output) = kind.outputs().iter().find(|o| o.name == name.node) else {
            let names = || kind.outputs().iter().map(|o| o.name);
            let message = format!("the processor `{}` gives no `{}`", kind.name(), name.node);
            let error = Diagnostic::new(Code::UnknownInput, name.span, message);
            let error = match suggest(&name.node, names()) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help(format!("it gives {}", names().collect::<Vec<_>>().join(", "))),
            };
            self.report(error);
            return;
        };
        if ty.dtype != output.dtype || ty.shape.pack || ty.shape.dims.len() != output.rank {
            let wanted = format!("{}[{}]", output.dtype.name(), vec!["_"; output.rank].join(", "));
            let message = format!(
                "the processor `{}` gives `{}` as {wanted}, this is {}",
                kind.name(),
                output.name,
                super::types::type_text(&Type::Tensor(ty.clone()))
            );
            self.report(
                Diagnostic::new(Code::UnknownInput, input.ty.span, message).help(format!("its axes: {}", output.axes)),
            );
        }
    }
}
