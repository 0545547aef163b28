//! Loops of the load stage: comprehensions, and the heads of loops over numbers and lists.

use mgraph_dsl::ir::{Each, Load, LoadType, LocalId, Over};
use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::{
    code::{Code, Level},
    error::{Error, Result},
    scope::Scope,
};

impl Scope<'_> {
    pub(super) fn comprehension(&self, item: &Load, each: &[Each]) -> Result<Code> {
        let mut heads = Vec::new();
        let mut locals = Vec::new();
        for Each { index, item, over } in each {
            let (_, variable) = (locals.push(*item), self.variable(*item));
            let index = index.map(|index| {
                locals.push(index);
                self.bind_local(*item, variable.clone(), false);
                (index, self.variable(index))
            });
            heads.push(self.loop_head(index, (*item, variable), over)?);
        }
        let value = self.owned(item)?;
        locals.into_iter().for_each(|local| self.release(local));
        let mut body = quote!(items.push(#value););
        for (head, before) in heads.iter().rev() {
            body = quote!(#head { #before #body });
        }
        Ok(Code::new(Level::Block, quote!({ let mut items = Vec::new(); #body items })))
    }

    /// `for .. in ..`, and the statements its body begins with.
    pub fn loop_head(
        &self,
        index: Option<(LocalId, Ident)>,
        (item, variable): (LocalId, Ident),
        over: &Over,
    ) -> Result<(TokenStream, TokenStream)> {
        // The bounds do not see the variables.
        self.release(item);
        let head = match over {
            Over::Range(low, high) => {
                let (low, high) = (self.scalar(low)?, self.scalar(high)?);
                let (low_end, high) = (low.at(Level::Or), high.at(Level::Or));
                self.bind_local(item, variable.clone(), false);
                let before = match index {
                    Some((index, position)) => {
                        let low = low.at(Level::Product);
                        self.bind_local(index, position.clone(), false);
                        quote!(let #position = #variable - #low;)
                    }
                    None => TokenStream::new(),
                };
                (quote!(for #variable in #low_end..#high), before)
            }
            Over::List(list) => {
                let items = match &list.ty {
                    LoadType::List(inner) => match **inner {
                        LoadType::Int | LoadType::Float | LoadType::Bool => quote!(.copied()),
                        LoadType::Text => quote!(.map(String::as_str)),
                        LoadType::List(_) => TokenStream::new(),
                    },
                    _ => return Err(Error::Ir("a loop over something that is no list".into())),
                };
                let reference = items.is_empty() || items.to_string().contains("String");
                let list = self.scalar(list)?.at(Level::Atom);
                self.bind_local(item, variable.clone(), reference);
                match index {
                    Some((index, position)) => {
                        self.bind_local(index, position.clone(), false);
                        (quote!(for (#position, #variable) in (0i64..).zip(#list.iter()#items)), TokenStream::new())
                    }
                    None => (quote!(for #variable in #list.iter()#items), TokenStream::new()),
                }
            }
        };
        Ok(head)
    }
}
