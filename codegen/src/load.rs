//! Load-stage expressions as Rust over `i64`, `f64`, `bool`, text and lists. Integer division is exact or an error, through a
//! helper of the runtime; everything else is the plain Rust operator or `std` function.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
};

use mgraph_dsl::ir::{
    Block, Each, FieldId, Load, LoadBinary, LoadFunction, LoadKind, LoadType, LoadUnary, LocalId, MatrixAttribute,
    Over, Program, ValueId,
};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::{
    body::Operand,
    code::{Code, Level},
    config::Configs,
    error::{Error, Result},
    names,
};

/// How names are reached from where the expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// In a load function or constructor: parameters and members are variables.
    Variables,
    /// In a method of the block: its parameters and members are fields of `self`.
    Method,
}

/// What an expression used of the names a function binds at its beginning.
#[derive(Debug, Default)]
pub(crate) struct Used {
    pub config: Cell<bool>,
    pub float: Cell<bool>,
    pub lead: Cell<bool>,
    pub free: RefCell<BTreeSet<String>>,
    pub members: RefCell<BTreeSet<String>>,
}

/// A load local: its variable, and whether that is a reference already.
#[derive(Debug, Clone)]
struct Local {
    ident: Ident,
    reference: bool,
}

pub(crate) struct Scope<'p> {
    pub program: &'p Program,
    pub configs: &'p Configs,
    pub block: Option<&'p Block>,
    pub place: Where,
    /// Load parameters of the function itself, which are variables wherever it is.
    pub parameters: HashMap<String, Ident>,
    pub used: Used,
    locals: RefCell<HashMap<LocalId, Local>>,
    /// The variable or field that holds a tensor or matrix.
    pub values: RefCell<HashMap<ValueId, Operand>>,
    depth: Cell<usize>,
}

impl<'p> Scope<'p> {
    pub fn new(program: &'p Program, configs: &'p Configs, block: Option<&'p Block>, place: Where) -> Scope<'p> {
        Scope {
            program,
            configs,
            block,
            place,
            parameters: HashMap::new(),
            used: Used::default(),
            locals: RefCell::default(),
            values: RefCell::default(),
            depth: Cell::new(0),
        }
    }

    pub fn bind_local(&self, local: LocalId, ident: Ident, reference: bool) {
        self.locals.borrow_mut().insert(local, Local { ident, reference });
    }

    /// A variable for a loop of this depth that has no name of its own.
    pub fn loop_variable(&self) -> Ident {
        const LETTERS: [&str; 6] = ["i", "j", "k", "l", "m", "n"];
        let depth = self.depth.get();
        let taken = |name: &str| {
            self.parameters.contains_key(name)
                || self.locals.borrow().values().any(|l| l.ident == name)
                || self.place == Where::Variables && self.has_member(name)
        };
        let free = LETTERS.iter().skip(depth).find(|letter| !taken(letter));
        free.map_or_else(|| format_ident!("i_{}", self.locals.borrow().len()), |letter| format_ident!("{letter}"))
    }

    fn has_member(&self, name: &str) -> bool {
        self.block
            .is_some_and(|b| b.parameters.iter().any(|p| p.name == name) || b.fields.iter().any(|f| f.name == name))
    }

    pub fn value(&self, value: ValueId) -> Result<Operand> {
        let values = self.values.borrow();
        values.get(&value).cloned().ok_or_else(|| Error::Ir(format!("value {} is used before it is made", value.0)))
    }

    /// A parameter, member or config value as a place: what a field access or variable denotes.
    fn place(&self, load: &Load) -> Result<Option<(Code, bool)>> {
        Ok(Some(match &load.kind {
            LoadKind::Config(path) => {
                self.used.config.set(true);
                (self.configs.access(path)?, false)
            }
            LoadKind::Parameter(name) => match self.parameters.get(name) {
                Some(ident) => (Code::atom(quote!(#ident)), true),
                None => (self.member_named(name, false), self.place == Where::Variables),
            },
            LoadKind::Member(field) => (self.member(*field)?, false),
            LoadKind::Local(local) => {
                let locals = self.locals.borrow();
                let Some(Local { ident, reference }) = locals.get(local) else {
                    return Err(Error::Ir(format!("load local {} is used before it is made", local.0)));
                };
                (Code::atom(quote!(#ident)), *reference)
            }
            LoadKind::Index(list, index) => {
                let (list, index) = (self.borrowed(list)?, self.scalar(index)?.tokens);
                (Code::new(Level::Prefix, quote!(*item(#list, #index)?)), false)
            }
            _ => return Ok(None),
        }))
    }

    fn member(&self, id: FieldId) -> Result<Code> {
        let block = self.block.ok_or_else(|| Error::Ir("a member outside a block".into()))?;
        let field = block.field(id);
        Ok(self.member_named(&field.name, field.condition.is_some()))
    }

    fn member_named(&self, name: &str, conditional: bool) -> Code {
        let ident = names::ident(name);
        self.used.members.borrow_mut().insert(name.to_string());
        let place = match self.place {
            Where::Method => quote!(self.#ident),
            Where::Variables => quote!(#ident),
        };
        if conditional { Code::new(Level::Prefix, quote!(*present(&#place, #name)?)) } else { Code::atom(place) }
    }

    /// A number, truth value, or the place of a text or list.
    pub fn scalar(&self, load: &Load) -> Result<Code> {
        if let Some((code, _)) = self.place(load)? {
            return Ok(code);
        }
        Ok(match &load.kind {
            LoadKind::Int(value) => Code::int(*value),
            LoadKind::Float(value) => Code::float(*value),
            LoadKind::Bool(value) => Code::atom(quote!(#value)),
            LoadKind::Text(value) => Code::atom(quote!(#value)),
            LoadKind::Pi => Code::atom(quote!(std::f64::consts::PI)),
            LoadKind::Free(name) => {
                self.used.free.borrow_mut().insert(name.clone());
                let ident = names::ident(name);
                Code::atom(quote!(#ident))
            }
            LoadKind::Dim(dim) => self.dim(dim)?,
            LoadKind::Size(value) => {
                let value = self.value(*value)?.pass();
                Code::atom(quote!(cx.size(#value)))
            }
            LoadKind::Matrix(value, attribute) => {
                let value = self.value(*value)?.place;
                Code::atom(match attribute {
                    MatrixAttribute::Packed => quote!(#value.packed()),
                    MatrixAttribute::Bits => quote!(#value.bits()),
                    MatrixAttribute::Group => quote!(#value.group()),
                })
            }
            LoadKind::Unary(op, x) => {
                let x = self.scalar(x)?;
                match op {
                    LoadUnary::Negate => {
                        let x = x.at(Level::Prefix);
                        Code::new(Level::Prefix, quote!(-#x))
                    }
                    LoadUnary::Not => {
                        let x = x.at(Level::Prefix);
                        Code::new(Level::Prefix, quote!(!#x))
                    }
                    LoadUnary::ToFloat => to_float(&x),
                }
            }
            LoadKind::Binary(op, x, y) => self.binary(*op, x, y)?,
            LoadKind::Call(function, arguments) => self.call(*function, arguments)?,
            LoadKind::Op(op, arguments) => {
                self.configs.call(*op);
                let name = names::ident(&self.program.op(*op).name);
                let arguments = self.arguments(arguments)?;
                Code::atom(quote!(load::#name(#(#arguments),*)?))
            }
            LoadKind::If(condition, then, otherwise) => {
                let condition = self.scalar(condition)?.tokens;
                let then = self.owned(then)?;
                let otherwise = match &bare(otherwise).kind {
                    LoadKind::If(..) => self.scalar(bare(otherwise))?.tokens,
                    _ => {
                        let otherwise = self.owned(otherwise)?;
                        quote!({ #otherwise })
                    }
                };
                Code::new(Level::Block, quote!(if #condition { #then } else #otherwise))
            }
            LoadKind::List(items) => {
                let items = items.iter().map(|item| self.owned(item)).collect::<Result<Vec<_>>>()?;
                Code::atom(quote!([#(#items),*]))
            }
            LoadKind::Comprehension { item, each } => self.comprehension(item, each)?,
            LoadKind::Block { lets, value } if lets.is_empty() => self.scalar(value)?,
            LoadKind::Block { lets, value } => {
                let (lets, value) = self.block_body(lets, value)?;
                Code::new(Level::Block, quote!({ #lets #value }))
            }
            LoadKind::Config(_)
            | LoadKind::Parameter(_)
            | LoadKind::Member(_)
            | LoadKind::Local(_)
            | LoadKind::Index(..) => return Err(Error::Ir("a place that is none".into())),
        })
    }

    /// `let`s, and the value.
    pub fn block_body(&self, lets: &[(LocalId, Load)], value: &Load) -> Result<(TokenStream, TokenStream)> {
        let mut statements = TokenStream::new();
        for (local, load) in lets {
            let ident = format_ident!("v{}", local.0);
            let load = self.owned(load)?;
            statements.extend(quote!(let #ident = #load;));
            self.bind_local(*local, ident, false);
        }
        Ok((statements, self.owned(value)?))
    }

    /// As an argument of a Rust function: numbers by value, text as `&str`, lists as slices.
    pub fn argument(&self, load: &Load) -> Result<TokenStream> {
        match load.ty {
            LoadType::Int | LoadType::Float | LoadType::Bool => Ok(self.scalar(load)?.tokens),
            LoadType::Text | LoadType::List(_) => self.borrowed(load),
        }
    }

    pub fn arguments(&self, loads: &[Load]) -> Result<Vec<TokenStream>> {
        loads.iter().map(|load| self.argument(load)).collect()
    }

    pub fn borrowed(&self, load: &Load) -> Result<TokenStream> {
        if let Some((code, reference)) = self.place(load)? {
            let place = code.at(Level::Prefix);
            return Ok(if reference { place } else { quote!(&#place) });
        }
        if let LoadKind::Text(text) = &load.kind {
            return Ok(quote!(#text));
        }
        let value = self.scalar(load)?.at(Level::Prefix);
        Ok(quote!(&#value))
    }

    pub fn owned(&self, load: &Load) -> Result<TokenStream> {
        let fresh = self.place(load)?.is_none() && !matches!(load.kind, LoadKind::Text(_) | LoadKind::List(_));
        match &load.ty {
            LoadType::Int | LoadType::Float | LoadType::Bool => Ok(self.scalar(load)?.tokens),
            LoadType::Text | LoadType::List(_) if fresh => Ok(self.scalar(load)?.tokens),
            LoadType::Text => {
                let text = self.scalar(load)?.at(Level::Atom);
                Ok(quote!(#text.to_string()))
            }
            LoadType::List(_) => {
                let list = self.scalar(load)?.at(Level::Atom);
                Ok(quote!(#list.to_vec()))
            }
        }
    }

    fn binary(&self, op: LoadBinary, x: &Load, y: &Load) -> Result<Code> {
        let compared = matches!(x.ty, LoadType::Text | LoadType::List(_));
        if op == LoadBinary::In {
            let (list, x) = (self.borrowed(y)?, self.argument(x)?);
            let list = Code::new(Level::Prefix, list).at(Level::Atom);
            return Ok(Code::atom(quote!(#list.iter().any(|known| *known == #x))));
        }
        if compared && !matches!(x.kind, LoadKind::Text(_)) && !matches!(y.kind, LoadKind::Text(_)) {
            let (x, y) = (self.borrowed(x)?, self.borrowed(y)?);
            let sign = if op == LoadBinary::NotEqual { quote!(!=) } else { quote!(==) };
            return Ok(Code::new(Level::Compare, quote!(#x #sign #y)));
        }
        let integers = x.ty == LoadType::Int;
        let (x, y) = (self.scalar(x)?, self.scalar(y)?);
        let (a, b) = (&x.tokens, &y.tokens);
        let (level, sign) = match op {
            LoadBinary::Divide if integers => return Ok(Code::atom(quote!(exact(#a, #b)?))),
            LoadBinary::Remainder if integers => return Ok(Code::atom(quote!(remainder(#a, #b)?))),
            LoadBinary::ShiftLeft => return Ok(Code::atom(quote!(shift_left(#a, #b)?))),
            LoadBinary::Add => (Level::Sum, quote!(+)),
            LoadBinary::Subtract => (Level::Sum, quote!(-)),
            LoadBinary::Multiply => (Level::Product, quote!(*)),
            LoadBinary::Divide => (Level::Product, quote!(/)),
            LoadBinary::Remainder => (Level::Product, quote!(%)),
            LoadBinary::Equal => (Level::Compare, quote!(==)),
            LoadBinary::NotEqual => (Level::Compare, quote!(!=)),
            LoadBinary::Less => (Level::Compare, quote!(<)),
            LoadBinary::LessEqual => (Level::Compare, quote!(<=)),
            LoadBinary::Greater => (Level::Compare, quote!(>)),
            LoadBinary::GreaterEqual => (Level::Compare, quote!(>=)),
            LoadBinary::And => (Level::And, quote!(&&)),
            LoadBinary::Or => (Level::Or, quote!(||)),
            LoadBinary::In => return Err(Error::Ir("`in` without a list".into())),
        };
        Ok(Code::binary(level, &x, sign, &y))
    }

    fn call(&self, function: LoadFunction, arguments: &[Load]) -> Result<Code> {
        let kind = match arguments.first().map(|a| &a.ty) {
            Some(LoadType::Int) => quote!(i64),
            _ => quote!(f64),
        };
        let plain = |path: TokenStream| -> Result<Code> {
            let arguments = self.arguments(arguments)?;
            Ok(Code::atom(quote!(#path(#(#arguments),*))))
        };
        let fold = |path: TokenStream| -> Result<Code> {
            let mut arguments = self.arguments(arguments)?.into_iter();
            let first = arguments.next().unwrap_or_default();
            Ok(Code::atom(arguments.fold(first, |so_far, next| quote!(#path(#so_far, #next)))))
        };
        match function {
            LoadFunction::Pow => plain(quote!(f64::powf)),
            LoadFunction::Sqrt => plain(quote!(f64::sqrt)),
            LoadFunction::Exp => plain(quote!(f64::exp)),
            LoadFunction::Ln => plain(quote!(f64::ln)),
            LoadFunction::Sin => plain(quote!(f64::sin)),
            LoadFunction::Cos => plain(quote!(f64::cos)),
            LoadFunction::Abs => plain(quote!(#kind::abs)),
            LoadFunction::Min => fold(quote!(#kind::min)),
            LoadFunction::Max => fold(quote!(#kind::max)),
            LoadFunction::Floor => plain(quote!(f64::floor)),
            LoadFunction::Ceil => plain(quote!(f64::ceil)),
            LoadFunction::Clamp => {
                let arguments = self.arguments(arguments)?;
                let [x, low, high] = &arguments[..] else {
                    return Err(Error::Ir("`clamp` takes three numbers".into()));
                };
                Ok(Code::atom(quote!(#kind::min(#kind::max(#x, #low), #high))))
            }
            LoadFunction::Int => {
                let floor = plain(quote!(f64::floor))?.tokens;
                Ok(Code::new(Level::Cast, quote!(#floor as i64)))
            }
            LoadFunction::Float => {
                let x = arguments.first().ok_or_else(|| Error::Ir("`float` takes a number".into()))?;
                let code = self.scalar(x)?;
                Ok(if x.ty == LoadType::Int { to_float(&code) } else { code })
            }
            LoadFunction::Len => {
                let list = self.list_place(arguments)?;
                Ok(Code::new(Level::Cast, quote!(#list.len() as i64)))
            }
            LoadFunction::Sum => {
                let list = self.list_place(arguments)?;
                let kind = element(arguments);
                Ok(Code::atom(quote!(#list.iter().sum::<#kind>())))
            }
            LoadFunction::Maximum => plain(quote!(largest)).map(|code| {
                let tokens = code.tokens;
                Code::atom(quote!(#tokens?))
            }),
        }
    }

    fn list_place(&self, arguments: &[Load]) -> Result<TokenStream> {
        let list = arguments.first().ok_or_else(|| Error::Ir("a list function without a list".into()))?;
        Ok(self.scalar(list)?.at(Level::Atom))
    }

    fn comprehension(&self, item: &Load, each: &[Each]) -> Result<Code> {
        let mut heads = Vec::new();
        for Each { index, item, over } in each {
            heads.push(self.loop_head(*index, *item, over)?);
            self.depth.set(self.depth.get() + 1);
        }
        let value = self.owned(item)?;
        self.depth.set(self.depth.get() - each.len());
        let mut body = quote!(items.push(#value););
        for (head, before) in heads.iter().rev() {
            body = quote!(#head { #before #body });
        }
        Ok(Code::new(Level::Block, quote!({ let mut items = Vec::new(); #body items })))
    }

    /// `for .. in ..`, and the statements its body begins with.
    pub fn loop_head(&self, index: Option<LocalId>, item: LocalId, over: &Over) -> Result<(TokenStream, TokenStream)> {
        let variable = self.loop_variable();
        let head = match over {
            Over::Range(low, high) => {
                let (low, high) = (self.scalar(low)?, self.scalar(high)?);
                let (low_end, high) = (low.at(Level::Or), high.at(Level::Or));
                self.bind_local(item, variable.clone(), false);
                let before = match index {
                    Some(index) => {
                        let position = self.loop_variable();
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
                    Some(index) => {
                        let position = self.loop_variable();
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

/// Without blocks that bind nothing.
fn bare(load: &Load) -> &Load {
    match &load.kind {
        LoadKind::Block { lets, value } if lets.is_empty() => bare(value),
        _ => load,
    }
}

fn to_float(x: &Code) -> Code {
    let inner = x.tokens.to_string();
    if x.level == Level::Atom && inner.parse::<i64>().is_ok() {
        return Code::float(inner.parse::<i64>().unwrap_or_default() as f64);
    }
    let x = x.at(Level::Cast);
    Code::new(Level::Cast, quote!(#x as f64))
}

fn element(arguments: &[Load]) -> TokenStream {
    match arguments.first().map(|a| &a.ty) {
        Some(LoadType::List(inner)) if **inner == LoadType::Int => quote!(i64),
        _ => quote!(f64),
    }
}

/// The Rust type of a load value that is kept.
pub(crate) fn owned_type(ty: &LoadType) -> TokenStream {
    match ty {
        LoadType::Int => quote!(i64),
        LoadType::Float => quote!(f64),
        LoadType::Bool => quote!(bool),
        LoadType::Text => quote!(String),
        LoadType::List(inner) => {
            let inner = owned_type(inner);
            quote!(Vec<#inner>)
        }
    }
}

/// The Rust type of a load value that is passed.
pub(crate) fn borrowed_type(ty: &LoadType) -> TokenStream {
    match ty {
        LoadType::Int | LoadType::Float | LoadType::Bool => owned_type(ty),
        LoadType::Text => quote!(&str),
        LoadType::List(inner) => {
            let inner = owned_type(inner);
            quote!(&[#inner])
        }
    }
}
