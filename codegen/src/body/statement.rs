//! Statements, one each.

use mgraph_dsl::ir::{
    Argument, BlockId, Carried, Collected, FieldId, FieldKind, LocalId, LoopOver, Over, Prim, Receiver, Region,
    Statement, Type, ValueId,
};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

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

impl Body<'_> {
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
            Statement::Probe { out, value, name, .. } => {
                let (pattern, holes) = self.scope.pattern(name)?;
                let value = self.kept(*value)?;
                let probed = self.backend.probe(&pattern, &holes, &value);
                if within.is_some() && self.uses.count(*out) == 0 {
                    let probed = probed.value();
                    return Ok(Step::Done(quote!(#probed;)));
                }
                Ok(Step::Define(vec![*out], probed))
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
            Statement::List { out, items } => {
                let items = items.iter().map(|item| self.kept(*item)).collect::<Result<Vec<_>>>()?;
                Ok(Step::Define(vec![*out], Expr::plain(quote!(vec![#(#items),*]))))
            }
            Statement::For { outs, over, index, carried, collected, body } => {
                self.repeat(outs, over, *index, (carried, collected), body)
            }
        }
    }

    /// A value to keep, moved where this is its last use.
    fn kept(&self, value: ValueId) -> Result<TokenStream> {
        let moved = self.uses.last(value) == self.point && self.uses.count(value) == 1;
        Ok(self.scope.value(value)?.take(if moved { self.depth } else { usize::MAX }))
    }

    /// A loop: its carried variables and its lists first, which then are its results.
    fn repeat(
        &mut self,
        outs: &[ValueId],
        over: &LoopOver,
        index: Option<LocalId>,
        (carried, collected): (&[Carried], &[Collected]),
        body: &Region,
    ) -> Result<Step> {
        let mut variables = Vec::new();
        let mut lines = TokenStream::new();
        let mut initials = Vec::new();
        for one in carried {
            let initial = self.scope.value(one.initial)?;
            let moved = self.uses.last(one.initial) == self.point
                && carried.iter().filter(|c| c.initial == one.initial).count() == 1;
            initials.push(initial.take(if moved { self.depth } else { usize::MAX }));
        }
        let names_before = self.names.clone();
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
        let mut lists = Vec::new();
        for Collected { item, out } in collected {
            let name = self.function.value(*out).name.clone().unwrap_or_else(|| "list".into());
            let ident = self.names.bind(&name, self.point, self.uses.last(*item));
            lines.extend(quote!(let mut #ident = Vec::new();));
            lists.push((ident, *item));
        }
        let (head, before) = self.head(over, index)?;
        let mut body = self.region(body, &Finish::Turn { variables: &variables, lists: &lists })?;
        if let LoopOver::Children { .. } = over {
            body.extend(self.backend.turn(&variables));
        }
        self.names = names_before;
        for (out, ident) in outs.iter().zip(&variables) {
            self.hold(*out, quote!(#ident), Form::Owned(self.depth));
            self.names.extend(ident, self.uses.last(*out));
        }
        for (Collected { out, .. }, (ident, _)) in collected.iter().zip(&lists) {
            self.hold(*out, quote!(#ident), Form::Owned(self.depth));
            self.names.extend(ident, self.uses.last(*out));
        }
        if let LoopOver::Range { variable, .. } | LoopOver::List { variable, .. } = over {
            self.scope.release(*variable);
        }
        index.iter().for_each(|index| self.scope.release(*index));
        lines.extend(quote!(#head { #before #body }));
        Ok(Step::Done(lines))
    }

    /// `for .. in ..`, and the statements its body begins with.
    fn head(&mut self, over: &LoopOver, index: Option<LocalId>) -> Result<(TokenStream, TokenStream)> {
        let item = match over {
            LoopOver::Range { variable, .. } | LoopOver::List { variable, .. } => self.home.program.local(*variable),
            LoopOver::Children { item, .. } => self.home.program.local(*item),
            LoopOver::Values { item, .. } => self.function.value(*item).name.as_deref().unwrap_or("_"),
        };
        let mut variable = |name: &str| match name {
            // Nothing can name it; the place of a turn may be counted from it.
            "_" if index.is_none() => format_ident!("_"),
            "_" => self.names.bind("i", self.point, usize::MAX),
            name => self.names.bind(name, self.point, usize::MAX),
        };
        let ident = variable(item);
        let index = index.map(|index| (index, variable(self.home.program.local(index))));
        let items = match over {
            LoopOver::Range { variable, low, high } => {
                return self.scope.loop_head(index, (*variable, ident), &Over::Range(low.clone(), high.clone()));
            }
            LoopOver::List { variable, list } => {
                return self.scope.loop_head(index, (*variable, ident), &Over::List(list.clone()));
            }
            LoopOver::Children { item, array } => {
                let (place, reference, block) = self.place_of(array)?;
                self.items.insert(*item, (ident.clone(), block));
                if reference { place } else { quote!(&#place) }
            }
            LoopOver::Values { item, list } => {
                let list = self.scope.value(*list)?.place;
                self.hold(*item, quote!(#ident), Form::Reference);
                if self.backend.copies() { quote!(#list.iter().copied()) } else { quote!(#list.iter()) }
            }
        };
        let head = match index {
            Some((index, position)) => {
                self.scope.bind_local(index, position.clone(), false);
                quote!(for (#position, #ident) in (0i64..).zip(#items))
            }
            None => quote!(for #ident in #items),
        };
        Ok((head, TokenStream::new()))
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
        Ok(self.place_of(receiver)?.0)
    }

    /// A child or an array of children: its place, whether that is a reference, and the block it is.
    fn place_of(&self, receiver: &Receiver) -> Result<(TokenStream, bool, BlockId)> {
        let (mut tokens, mut block, path) = match receiver {
            Receiver::Field(path) => {
                let outside = || Error::Ir(format!("{} calls a field outside a block", self.origin));
                (quote!(self), self.home.block.ok_or_else(outside)?, path)
            }
            Receiver::Item { item, path } => {
                let unknown = || Error::Ir(format!("{} calls the item of a loop it is not in", self.origin));
                let (ident, block) = self.items.get(item).ok_or_else(unknown)?;
                (quote!(#ident), self.home.program.block(*block), path)
            }
        };
        let mut found = match receiver {
            Receiver::Item { item, .. } => self.items.get(item).map(|(_, block)| *block),
            Receiver::Field(_) => None,
        };
        let mut reference = false;
        for id in path {
            let field = block.field(*id);
            let (ident, name) = (names::ident(&field.name), &field.name);
            reference = field.condition.is_some();
            tokens = if reference { quote!(present(&#tokens.#ident, #name)?) } else { quote!(#tokens.#ident) };
            let (FieldKind::Child { block: child, .. } | FieldKind::Children { block: child, .. }) = &field.kind else {
                return Err(Error::Ir(format!("{} calls `{name}`, which is no block", self.origin)));
            };
            block = self.home.program.block(*child);
            found = Some(*child);
        }
        let found = found.ok_or_else(|| Error::Ir(format!("{} calls no field", self.origin)))?;
        Ok((tokens, reference, found))
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
