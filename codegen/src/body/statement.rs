//! Statements, one each.

use mgraph_dsl::ir::{
    Argument, Block, Carried, FieldId, FieldKind, LocalId, LoopOver, Over, PatternPart, Prim, Receiver, Region,
    Statement, Type, ValueId,
};
use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Body,
    region::{Finish, Step},
};
use crate::{
    backend::Form,
    code::Expr,
    error::{Error, Result},
    names,
    uses::Uses,
};

impl<'p> Body<'p> {
    fn pass(&self, values: &[ValueId]) -> Result<Vec<TokenStream>> {
        values.iter().map(|value| Ok(self.scope.value(*value)?.pass())).collect()
    }

    /// `within`: the region and index, for what looks at its neighbours.
    pub(super) fn statement(&mut self, statement: &Statement, within: Option<(&Region, usize)>) -> Result<Step> {
        match statement {
            Statement::Prim { out, .. } if within.is_some() && self.uses.count(*out) == 0 => {
                Ok(Step::Done(TokenStream::new()))
            }
            Statement::Prim { out, op, arguments, .. } => {
                if let (Prim::Update { axis }, Some((region, index))) = (op, within)
                    && let Some(field) = updated_in_place(region, index, &self.uses)
                    && let [_, x, positions] = &self.pass_known(arguments)[..]
                    && let Some(expr) = self.backend.state_update(&self.field(field)?.0, x, positions, *axis)
                {
                    return Ok(Step::Define(vec![*out], expr));
                }
                let arguments = self.pass(arguments)?;
                let expr = self.backend.prim(&self.scope, op, &arguments, &self.function.value(*out).ty)?;
                Ok(Step::Define(vec![*out], expr))
            }
            Statement::Let { local, name, value } => {
                let load = self.scope.owned(value)?;
                let ident = self.names.bind(name, self.point, usize::MAX);
                self.scope.bind_local(*local, ident.clone(), false);
                Ok(Step::Done(quote!(let #ident = #load;)))
            }
            Statement::Weight { out, field } => {
                let (place, conditional, name) = self.field(*field)?;
                let matrix = matches!(self.function.value(*out).ty, Type::Matrix(_));
                match self.backend.weight(&place, matrix) {
                    Some(expr) => Ok(Step::Define(vec![*out], expr)),
                    None if conditional => {
                        let ident = self.names.bind(&name, self.point, self.uses.last(*out));
                        self.hold(*out, quote!(#ident), Form::Reference);
                        Ok(Step::Done(quote!(let #ident = present(&#place, #name)?;)))
                    }
                    None => {
                        self.hold(*out, place, Form::Field);
                        Ok(Step::Done(TokenStream::new()))
                    }
                }
            }
            Statement::StateRead { out, field } => {
                let skipped = within.is_some_and(|(region, index)| {
                    (index..region.statements.len()).any(|later| {
                        matches!(&region.statements[later], Statement::Prim { arguments, .. } if arguments.first() == Some(out))
                            && updated_in_place(region, later, &self.uses).is_some()
                    })
                });
                let place = self.field(*field)?.0;
                if skipped && self.backend.state_update(&place, &TokenStream::new(), &TokenStream::new(), 0).is_some() {
                    return Ok(Step::Done(TokenStream::new()));
                }
                Ok(Step::Define(vec![*out], self.backend.state_read(&place)))
            }
            Statement::StateWrite { field, value } => {
                let place = self.field(*field)?.0;
                let done = within.is_some_and(|(region, index)| {
                    index > 0
                        && updated_in_place(region, index - 1, &self.uses) == Some(*field)
                        && self.backend.state_update(&place, &TokenStream::new(), &TokenStream::new(), 0).is_some()
                });
                if done {
                    return Ok(Step::Done(TokenStream::new()));
                }
                let value = self.scope.value(*value)?.pass();
                Ok(Step::Done(self.backend.state_write(&place, &value)))
            }
            Statement::CallOp { outs, op, arguments, .. } => {
                let name = names::ident(&self.home.program.op(*op).name);
                let arguments = self.arguments(arguments)?;
                Ok(Step::Define(outs.clone(), Expr::fallible(quote!(prelude::#name(cx, #(#arguments),*)))))
            }
            Statement::CallBlock { outs, receiver, block, function, arguments, .. } => {
                let name = names::method(&self.home.program.block(*block).function(*function).name);
                let receiver = self.receiver(receiver)?;
                let arguments = self.arguments(arguments)?;
                Ok(Step::Define(outs.clone(), Expr::fallible(quote!(#receiver.#name(cx, #(#arguments),*)))))
            }
            Statement::Probe { value, name, .. } => {
                let mut pattern = String::new();
                let mut holes = Vec::new();
                for part in name {
                    match part {
                        PatternPart::Text(text) => pattern += &text.replace('{', "{{").replace('}', "}}"),
                        PatternPart::Hole(load) => {
                            pattern += "{}";
                            holes.push(self.scope.scalar(load)?.tokens);
                        }
                    }
                }
                let value = self.scope.value(*value)?.pass();
                Ok(Step::Done(self.backend.probe(&pattern, &holes, &value)))
            }
            Statement::If { outs, condition, then, otherwise } => {
                let condition = self.scope.scalar(condition)?.tokens;
                let then = self.region(then, &Finish::Value)?;
                let otherwise = self.region(otherwise, &Finish::Value)?;
                let branch = if otherwise.is_empty() {
                    quote!(if #condition { #then })
                } else {
                    quote!(if #condition { #then } else { #otherwise })
                };
                if outs.is_empty() {
                    return Ok(Step::Done(branch));
                }
                Ok(Step::Define(outs.clone(), Expr::plain(branch)))
            }
            Statement::For { outs, over, index, carried, body } => self.repeat(outs, over, *index, carried, body),
        }
    }

    /// A loop: its carried variables first, which then are its results.
    fn repeat(
        &mut self,
        outs: &[ValueId],
        over: &LoopOver,
        index: Option<LocalId>,
        carried: &[Carried],
        body: &Region,
    ) -> Result<Step> {
        let mut variables = Vec::new();
        let mut lines = TokenStream::new();
        let names_before = self.names.clone();
        let mut initials = Vec::new();
        for one in carried {
            let initial = self.scope.value(one.initial)?;
            let moved = self.uses.last(one.initial) == self.point
                && carried.iter().filter(|c| c.initial == one.initial).count() == 1;
            initials.push(initial.take(if moved { self.depth } else { usize::MAX }));
        }
        for one in carried {
            let name = self.function.value(one.inner).name.clone().unwrap_or_else(|| "carried".into());
            let ident = self.names.bind(&name, self.point, self.uses.last(one.inner));
            self.hold(one.inner, quote!(#ident), Form::Owned(self.depth));
            variables.push(ident);
        }
        // All at once: one may be named as the initial value of the next is.
        match (&variables[..], &initials[..]) {
            ([], _) => {}
            ([variable], [initial]) => lines.extend(quote!(let mut #variable = #initial;)),
            _ => lines.extend(quote!(let (#(mut #variables),*) = (#(#initials),*);)),
        }
        let (head, before) = match over {
            LoopOver::Range { variable, low, high } => {
                let over = Over::Range(low.clone(), high.clone());
                self.scope.loop_head(index, *variable, &over)?
            }
            LoopOver::List { variable, list } => self.scope.loop_head(index, *variable, &Over::List(list.clone()))?,
            LoopOver::Children { item, field } => {
                let (place, conditional, name) = self.field(*field)?;
                let singular = name.strip_suffix('s').unwrap_or("child").to_string();
                let ident = self.names.bind(&singular, self.point, usize::MAX);
                self.items.insert(*item, (ident.clone(), *field));
                let items = if conditional { quote!(present(&#place, #name)?) } else { quote!(&#place) };
                match index {
                    Some(index) => {
                        let position = self.scope.loop_variable();
                        self.scope.bind_local(index, position.clone(), false);
                        (quote!(for (#position, #ident) in (0i64..).zip(#items)), TokenStream::new())
                    }
                    None => (quote!(for #ident in #items), TokenStream::new()),
                }
            }
        };
        let mut body = self.region(body, &Finish::Assign(&variables))?;
        if let LoopOver::Children { .. } = over {
            body.extend(self.backend.turn(&variables));
        }
        self.names = names_before;
        for (out, ident) in outs.iter().zip(&variables) {
            self.hold(*out, quote!(#ident), Form::Owned(self.depth));
            self.names.extend(ident, self.uses.last(*out));
        }
        lines.extend(quote!(#head { #before #body }));
        Ok(Step::Done(lines))
    }

    /// As [`Body::pass`], with nothing for what a state update never reads.
    fn pass_known(&self, values: &[ValueId]) -> Vec<TokenStream> {
        values.iter().map(|value| self.scope.value(*value).map(|o| o.pass()).unwrap_or_default()).collect()
    }

    fn arguments(&self, arguments: &[Argument]) -> Result<Vec<TokenStream>> {
        arguments
            .iter()
            .map(|argument| match argument {
                Argument::Value(value) => Ok(self.scope.value(*value)?.pass()),
                Argument::Load(load) => self.scope.argument(load),
            })
            .collect()
    }

    /// A field of the enclosing block: its place, whether it may be absent, its name.
    fn field(&self, id: FieldId) -> Result<(TokenStream, bool, String)> {
        let block =
            self.home.block.ok_or_else(|| Error::Ir(format!("{} reads a field outside a block", self.origin)))?;
        let field = block.field(id);
        let ident = names::ident(&field.name);
        Ok((quote!(self.#ident), field.condition.is_some(), field.name.clone()))
    }

    fn receiver(&self, receiver: &Receiver) -> Result<TokenStream> {
        let home =
            self.home.block.ok_or_else(|| Error::Ir(format!("{} calls a field outside a block", self.origin)))?;
        let child = |block: &'p Block, id: FieldId| match &block.field(id).kind {
            FieldKind::Child { block, .. } | FieldKind::Children { block, .. } => Ok(self.home.program.block(*block)),
            _ => Err(Error::Ir(format!("{} calls `{}`, which is no block", self.origin, block.field(id).name))),
        };
        let (mut tokens, mut block, path) = match receiver {
            Receiver::Field(path) => (quote!(self), home, path),
            Receiver::Item { item, path } => {
                let unknown = || Error::Ir(format!("{} calls the item of a loop it is not in", self.origin));
                let (ident, array) = self.items.get(item).ok_or_else(unknown)?;
                (quote!(#ident), child(home, *array)?, path)
            }
        };
        for id in path {
            let field = block.field(*id);
            let (ident, name) = (names::ident(&field.name), &field.name);
            tokens = if field.condition.is_some() {
                quote!(present(&#tokens.#ident, #name)?)
            } else {
                quote!(#tokens.#ident)
            };
            block = child(block, *id)?;
        }
        Ok(tokens)
    }
}

/// The state that the statement at `index` updates in place: it is read for this `update` alone, and assigned its result next.
fn updated_in_place(region: &Region, index: usize, uses: &Uses) -> Option<FieldId> {
    let Statement::Prim { out, op: Prim::Update { .. }, arguments, .. } = region.statements.get(index)? else {
        return None;
    };
    let Statement::StateWrite { field, value } = region.statements.get(index + 1)? else { return None };
    let state = arguments.first()?;
    if value != out || uses.count(*state) != 1 {
        return None;
    }
    let before = &region.statements[..index];
    let read = before
        .iter()
        .rposition(|s| matches!(s, Statement::StateRead { out, field: f } if out == state && f == field))?;
    let rewritten = before[read..].iter().any(|s| matches!(s, Statement::StateWrite { field: f, .. } if f == field));
    (!rewritten).then_some(*field)
}
