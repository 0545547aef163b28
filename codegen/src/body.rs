//! Functions: what both backends share of an op or a block's `fn`. Statements become statements in the same order, loops and
//! branches stay loops and branches, and names stay names.

mod region;
mod statement;
mod twin;

use std::collections::{BTreeSet, HashMap};

use mgraph_dsl::{
    ir::{
        Block, BlockId, DimSource, FieldKind, FloatSource, Function, LocalId, Op, Parameter, ParameterKind, Program,
        Twin, Type, ValueId,
    },
    windows,
};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote};

use self::region::Finish;
use crate::{
    backend::{Backend, Form, Operand},
    config::Configs,
    error::{Error, Result},
    load::borrowed_type,
    names::{self, Namespace},
    scope::{Scope, Where},
    uses::Uses,
};

/// Where the function stands.
#[derive(Clone, Copy)]
pub(crate) struct Home<'p> {
    pub program: &'p Program,
    pub configs: &'p Configs,
    /// `None` for an op.
    pub block: Option<&'p Block>,
}

/// One function as Rust, and which members of its block it reads.
pub(crate) struct Emitted {
    pub tokens: TokenStream,
    pub members: BTreeSet<String>,
}

pub(crate) fn block_function(home: Home<'_>, function: &Function, backend: &dyn Backend) -> Result<Emitted> {
    let what = match (&function.name[..], function.graph) {
        ("", _) => "`fn`".to_string(),
        (name, true) => format!("`graph {name}`"),
        (name, false) => format!("`fn {name}`"),
    };
    Body::new(home, function, backend, &format!("block `{}`", home.block.map_or("", |b| &b.name[..]))).emit(
        &names::method(&function.name),
        &what,
        &function.doc,
        &[],
    )
}

pub(crate) fn op_function(
    home: Home<'_>,
    op: &Op,
    function: &Function,
    twins: &[Twin],
    backend: &dyn Backend,
) -> Result<TokenStream> {
    let body = Body::new(home, function, backend, &format!("op `{}`", op.name));
    Ok(body.emit(&names::ident(&op.name), &format!("`op {}`", op.name), &op.doc, twins)?.tokens)
}

/// `///` lines: what the author wrote, then where it stands.
pub(crate) fn documentation(program: &Program, what: &str, doc: &str, span: mgraph_dsl::source::Span) -> TokenStream {
    let (line, _) = program.sources.line_column(span);
    let file = program.sources.get(span.file).name.rsplit('/').next().unwrap_or_default();
    let place = format!(" {what}, {file}:{line}");
    let lines = doc.lines().map(|line| format!(" {}", line.trim())).collect::<Vec<_>>();
    let gap = (!lines.is_empty()).then_some("");
    let lines = lines.iter().map(String::as_str).chain(gap).chain([place.as_str()]);
    quote!(#(#[doc = #lines])*)
}

struct Body<'p> {
    home: Home<'p>,
    function: &'p Function,
    backend: &'p dyn Backend,
    origin: String,
    scope: Scope<'p>,
    uses: Uses,
    names: Namespace,
    point: usize,
    depth: usize,
    temporaries: usize,
    /// The variables of loops over children, with the block each is.
    items: HashMap<LocalId, (Ident, BlockId)>,
}

impl<'p> Body<'p> {
    fn new(home: Home<'p>, function: &'p Function, backend: &'p dyn Backend, origin: &str) -> Body<'p> {
        let mut scope = Scope::new(home.program, home.configs, home.block, Where::Method);
        scope.dims = function.free.iter().map(|dim| names::ident(&dim.name)).collect();
        let mut names = Namespace::default();
        // A shape may name them anywhere.
        scope.dims.iter().for_each(|dim| names.extend(dim, usize::MAX));
        Body {
            home,
            function,
            backend,
            origin: origin.to_string(),
            scope,
            uses: Uses::of(function),
            names,
            point: 0,
            depth: 0,
            temporaries: 0,
            items: HashMap::new(),
        }
    }

    fn emit(mut self, name: &Ident, what: &str, doc: &str, twins: &[Twin]) -> Result<Emitted> {
        let doc = documentation(self.home.program, what, doc, self.function.span);
        let receiver = self.home.block.is_some().then(|| quote!(&self,));
        let parameters = self.function.parameters.iter().map(|p| self.parameter(p)).collect::<Result<Vec<_>>>()?;
        let results = self.result_type();
        let twins = twins
            .iter()
            .filter(|twin| twin.backend == self.backend.twin())
            .map(|twin| self.twin(twin))
            .collect::<Result<TokenStream>>()?;
        let body = self.region(&self.function.body, &Finish::Return)?;
        let cuts = self.cuts()?;
        let bindings = self.bindings()?;
        let tokens = quote! {
            #doc
            pub fn #name(#receiver cx: &mut Call<'_>, #(#parameters),*) -> Result<#results> {
                #cuts
                #bindings
                #twins
                #body
            }
        };
        Ok(Emitted { tokens, members: self.scope.used.members.take() })
    }

    /// Arguments over positions, cut to those that the state holds with which the body combines them.
    fn cuts(&self) -> Result<TokenStream> {
        let Home { program, block: Some(block), .. } = self.home else { return Ok(TokenStream::new()) };
        let Some(cut) = windows::cut(program, block, self.function) else { return Ok(TokenStream::new()) };
        let child = block.field(cut.child);
        let FieldKind::Child { block: holder, .. } = &child.kind else { return Ok(TokenStream::new()) };
        let child = names::ident(&child.name);
        let state = names::ident(&program.block(*holder).field(cut.state).name);
        let mut cuts = TokenStream::new();
        for (parameter, axis) in cut.parameters {
            let (operand, _) = self.value_parameter(parameter)?;
            let (place, passed) = (&operand.place, operand.pass());
            let part = self.backend.held_part(&quote!(self.#child.#state), &passed, axis);
            cuts.extend(quote!(let #place = #part;));
        }
        Ok(cuts)
    }

    fn parameter(&mut self, parameter: &Parameter) -> Result<TokenStream> {
        match &parameter.kind {
            ParameterKind::Load(ty) => {
                let ident = self.names.bind(&parameter.name, 0, usize::MAX);
                let ty = borrowed_type(ty);
                self.scope.parameters.insert(parameter.name.clone(), ident.clone());
                Ok(quote!(#ident: #ty))
            }
            ParameterKind::Value(value) => {
                // A dim may be read off it at the beginning, so it holds at least until then.
                let ident = self.names.bind(&parameter.name, 0, self.uses.last(*value).max(1));
                let (tensor, matrix) = (self.backend.tensor(), self.backend.matrix());
                let (ty, form) = match &self.function.value(*value).ty {
                    Type::Tensor(_) if self.backend.copies() => (tensor, Form::Reference),
                    Type::Tensor(_) => (quote!(&#tensor), Form::Reference),
                    Type::Matrix(_) => (quote!(&#matrix), Form::Reference),
                    Type::List { .. } => (quote!(&[#tensor]), Form::Slice),
                };
                self.hold(*value, quote!(#ident), form);
                Ok(quote!(#ident: #ty))
            }
        }
    }

    fn hold(&self, value: ValueId, place: TokenStream, form: Form) {
        let tensor = matches!(self.function.value(value).ty, Type::Tensor(_));
        let operand = Operand { place, form, copies: self.backend.copies() && tensor };
        self.scope.values.borrow_mut().insert(value, operand);
    }

    fn result_type(&self) -> TokenStream {
        let types = self.function.results.iter().map(|ty| match ty {
            Type::Tensor(_) => self.backend.tensor(),
            Type::Matrix(_) => self.backend.matrix(),
            Type::List { .. } => {
                let tensor = self.backend.tensor();
                quote!(Vec<#tensor>)
            }
        });
        match self.function.results.len() {
            1 => quote!(#(#types)*),
            _ => quote!((#(#types),*)),
        }
    }

    /// What the body turned out to use of config, `F`, free dims and leading dims.
    fn bindings(&self) -> Result<TokenStream> {
        let used = &self.scope.used;
        let mut bindings = TokenStream::new();
        if used.config.get() {
            bindings.extend(quote!(let cfg = cx.cfg;));
        }
        if used.float.get() {
            let dtype = match self.function.float {
                FloatSource::Family => quote!(cx.f()),
                FloatSource::Parameter(index) => match self.value_parameter(index)? {
                    (operand, true) => self.backend.dtype(&operand.pass()),
                    (_, false) => quote!(cx.f()),
                },
            };
            bindings.extend(quote!(let F = #dtype;));
        }
        let free = used.free.borrow();
        for dim in self.function.free.iter().filter(|dim| free.contains(&dim.name)) {
            let ident = names::ident(&dim.name);
            let size = match &dim.source {
                DimSource::Axis { parameter, axis } => {
                    let (operand, tensor) = self.value_parameter(*parameter)?;
                    let place = &operand.place;
                    if tensor {
                        self.backend.dim(&operand.pass(), *axis)
                    } else {
                        {
                            let axis = Literal::i32_unsuffixed(*axis);
                            quote!(dim(&#place.shape(), #axis)?)
                        }
                    }
                }
                DimSource::Length { parameter } => {
                    let list = self.list_parameter(*parameter)?;
                    quote!(#list.len() as i64)
                }
                DimSource::Positions => quote!(cx.positions()),
            };
            bindings.extend(quote!(let #ident = #size;));
        }
        if used.lead.get() {
            let pack = self.function.pack.as_ref();
            let pack = pack.ok_or_else(|| Error::Ir(format!("{} uses `..` that no parameter binds", self.origin)))?;
            let (operand, tensor) = self.value_parameter(pack.parameter)?;
            let (place, trailing) = (&operand.place, Literal::usize_unsuffixed(pack.trailing));
            let shape = if tensor { self.backend.shape(&operand.pass()) } else { quote!(&#place.shape()) };
            bindings.extend(quote!(let lead = lead(#shape, #trailing)?;));
        }
        Ok(bindings)
    }

    /// A list of load values or of tensors.
    fn list_parameter(&self, index: usize) -> Result<TokenStream> {
        match self.function.parameters.get(index) {
            Some(Parameter { kind: ParameterKind::Value(value), .. }) => Ok(self.scope.value(*value)?.place),
            Some(Parameter { kind: ParameterKind::Load(_), name }) => self.load_parameter(name),
            None => Err(Error::Ir(format!("{} has no parameter {index}", self.origin))),
        }
    }

    fn load_parameter(&self, name: &str) -> Result<TokenStream> {
        let ident = self.scope.parameters.get(name);
        let unknown = || Error::Ir(format!("{} has no load parameter `{name}`", self.origin));
        ident.map(ToTokens::to_token_stream).ok_or_else(unknown)
    }

    /// Parameter number `index`, and whether it is a tensor (else a matrix). Of a list, its first item.
    fn value_parameter(&self, index: usize) -> Result<(Operand, bool)> {
        match self.function.parameters.get(index).map(|p| &p.kind) {
            Some(ParameterKind::Value(value)) => {
                let operand = self.scope.value(*value)?;
                Ok(match &self.function.value(*value).ty {
                    Type::Tensor(_) => (operand, true),
                    Type::Matrix(_) => (operand, false),
                    Type::List { .. } => {
                        let (list, copies) = (operand.place, self.backend.copies());
                        let place = if copies { quote!(*item(#list, 0)?) } else { quote!(item(#list, 0)?) };
                        (Operand { place, form: Form::Reference, copies }, true)
                    }
                })
            }
            _ => Err(Error::Ir(format!("{} binds something from parameter {index}, which is no tensor", self.origin))),
        }
    }
}
