//! Regions: statements in order, `let`s for what they define, and how the region ends.

use std::collections::BTreeSet;

use mgraph_dsl::ir::{Region, ValueId};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::Body;
use crate::{backend::Form, code::Expr, error::Result};

/// How a region ends.
pub(super) enum Finish<'a> {
    /// As the `Result` of the function.
    Return,
    /// As the value of a block.
    Value,
    /// As a turn of a loop: into the variables that it carries, and an item onto each list.
    Turn { variables: &'a [Ident], lists: &'a [(Ident, ValueId)] },
}

/// What a statement becomes.
pub(super) enum Step {
    /// An expression whose value (or tuple) is bound.
    Define(Vec<ValueId>, Expr),
    Done(TokenStream),
}

impl Body<'_> {
    pub(super) fn region(&mut self, region: &Region, finish: &Finish<'_>) -> Result<TokenStream> {
        let names = self.names.clone();
        self.depth += 1;
        let mut lines = TokenStream::new();
        let mut tail = None;
        let last = region.statements.len().wrapping_sub(1);
        for (index, statement) in region.statements.iter().enumerate() {
            self.point += 1;
            match self.statement(statement, Some((region, index)))? {
                Step::Define(outs, expr) if index == last && outs == region.results && !outs.is_empty() => {
                    tail = Some(expr);
                }
                // The only list of a comprehension.
                Step::Define(outs, expr)
                    if index == last
                        && let Finish::Turn { variables: [], lists: [(list, item)] } = finish
                        && outs == [*item] =>
                {
                    let value = expr.value();
                    self.point += 1;
                    self.depth -= 1;
                    self.names = names;
                    return Ok(quote!(#lines #list.push(#value);));
                }
                step => {
                    let bound = self.bind(step, 0)?;
                    lines.extend(bound);
                }
            }
        }
        self.point += 1;
        let end = match (tail, finish) {
            (Some(expr), Finish::Return) => expr.result(),
            (Some(expr), Finish::Value) => expr.value(),
            (Some(expr), Finish::Turn { variables, lists }) => {
                let value = expr.value();
                let (before, after) = self.pushes(lists, variables, &region.results, false)?;
                match variables {
                    [to] => quote!(#before #to = #value; #after),
                    to => quote!(#before (#(#to),*) = #value; #after),
                }
            }
            (None, finish) => self.finish(&region.results, finish)?,
        };
        self.depth -= 1;
        self.names = names;
        Ok(quote!(#lines #end))
    }

    /// One item for each list: before the carried variables are assigned, or after that where it is what one becomes.
    fn pushes(
        &self,
        lists: &[(Ident, ValueId)],
        variables: &[Ident],
        results: &[ValueId],
        moves: bool,
    ) -> Result<(TokenStream, TokenStream)> {
        let (mut before, mut after) = (TokenStream::new(), TokenStream::new());
        for (at, (list, item)) in lists.iter().enumerate() {
            if let Some(variable) = results.iter().position(|result| result == item).and_then(|i| variables.get(i)) {
                let copy = if self.backend.copies() { quote!(#variable) } else { quote!(#variable.clone()) };
                after.extend(quote!(#list.push(#copy);));
            } else {
                let again = lists[at + 1..].iter().any(|(_, later)| later == item);
                let value = self.scope.value(*item)?.take(if moves && !again { self.depth } else { usize::MAX });
                before.extend(quote!(#list.push(#value);));
            }
        }
        Ok((before, after))
    }

    fn finish(&self, results: &[ValueId], finish: &Finish<'_>) -> Result<TokenStream> {
        let mut taken = BTreeSet::new();
        let values = results
            .iter()
            .map(|value| {
                // What is yielded twice can be moved once.
                let depth = if taken.insert(*value) { self.depth } else { usize::MAX };
                Ok(self.scope.value(*value)?.take(depth))
            })
            .collect::<Result<Vec<_>>>()?;
        let tuple = match &values[..] {
            [one] => one.clone(),
            several => quote!((#(#several),*)),
        };
        Ok(match finish {
            Finish::Value if results.is_empty() => TokenStream::new(),
            Finish::Return => quote!(Ok(#tuple)),
            Finish::Value => tuple,
            Finish::Turn { variables, lists } => {
                let (before, after) = self.pushes(lists, variables, results, true)?;
                let mut changed = Vec::new();
                for ((to, value), result) in variables.iter().zip(&values).zip(results) {
                    if *to != self.scope.value(*result)?.place.to_string() {
                        changed.push((to, value));
                    }
                }
                let assigned = match &changed[..] {
                    [] => TokenStream::new(),
                    [(to, value)] => quote!(#to = #value;),
                    several => {
                        let (to, value): (Vec<_>, Vec<_>) = several.iter().copied().unzip();
                        quote!((#(#to),*) = (#(#value),*);)
                    }
                };
                quote!(#before #assigned #after)
            }
        })
    }

    /// `let` for what a step defines. Values stay bound at least until `least`.
    pub(super) fn bind(&mut self, step: Step, least: usize) -> Result<TokenStream> {
        let (outs, expr) = match step {
            Step::Done(tokens) => return Ok(tokens),
            Step::Define(outs, expr) => (outs, expr),
        };
        let value = expr.value();
        let mut idents = Vec::new();
        for out in &outs {
            let name = self.function.value(*out).name.clone();
            let last = self.uses.last(*out).max(least);
            if last == 0 && outs.len() > 1 {
                idents.push(format_ident!("_"));
                continue;
            }
            let name = name.filter(|n| n != "_").unwrap_or_else(|| {
                self.temporaries += 1;
                format!("t{}", self.temporaries - 1)
            });
            let ident = self.names.bind(&name, self.point, last);
            self.hold(*out, quote!(#ident), Form::Owned(self.depth));
            idents.push(ident);
        }
        Ok(match &idents[..] {
            [] => quote!(#value;),
            [one] => quote!(let #one = #value;),
            several => quote!(let (#(#several),*) = #value;),
        })
    }
}
