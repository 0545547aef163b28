//! Functions: what both backends share of an op or a block's `fn`. Statements become statements in the same order, loops and
//! branches stay loops and branches, and names stay names. A [`Backend`] says how values are held and what a primitive is.

use std::collections::{BTreeSet, HashMap};

use mgraph_dsl::ir::{
    Argument, Block, DType, DimSource, FieldId, FieldKind, FloatSource, Function, LocalId, LoopOver, Op, Over,
    Parameter, ParameterKind, PatternPart, Prim, Program, Receiver, Region, Statement, Twin, TwinArgument, TwinBackend,
    TwinTarget, Type, ValueId,
};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};

use crate::{
    code::{Expr, Level},
    config::Configs,
    dims::tensor,
    error::{Error, Result},
    load::{Scope, Where, borrowed_type},
    names::{self, Namespace},
    uses::Uses,
};

/// What differs between MLX and StableHLO below the structure of the text.
pub(crate) trait Backend {
    fn twin(&self) -> TwinBackend;
    /// The type of a tensor that a function returns.
    fn tensor(&self) -> TokenStream;
    fn matrix(&self) -> TokenStream;
    /// Tensors are `Copy` handles; otherwise they are passed by reference.
    fn copies(&self) -> bool;
    /// One primitive; `arguments` are ready to be passed.
    fn prim(&self, scope: &Scope<'_>, op: &Prim, arguments: &[TokenStream], out: &Type) -> Result<Expr>;
    fn dim(&self, tensor: &TokenStream, axis: i32) -> TokenStream;
    /// Its `Vec<i64>` or slice.
    fn shape(&self, tensor: &TokenStream) -> TokenStream;
    fn dtype(&self, tensor: &TokenStream) -> TokenStream;
    fn probe(&self, pattern: &str, holes: &[TokenStream], value: &TokenStream) -> TokenStream;
    /// How a weight held in the field `place` of the block enters a function; `None` where the field is the weight.
    fn weight(&self, place: &TokenStream, matrix: bool) -> Option<Expr>;
    fn state_read(&self, place: &TokenStream) -> Expr;
    fn state_write(&self, place: &TokenStream, value: &TokenStream) -> TokenStream;
    /// `state = update(state, x, positions)` in one piece, where the backend gains by it.
    fn state_update(&self, place: &TokenStream, x: &TokenStream, positions: &TokenStream, axis: i32) -> Option<Expr>;
    /// What ends a turn of a loop over children, given the variables it carries.
    fn turn(&self, carried: &[Ident]) -> TokenStream;
    /// The kernels that may be named in `fused`.
    fn kernels(&self) -> &'static [Kernel];
}

/// A kernel of the runtime: the name a family uses, and its parameters in order.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub path: &'static str,
    pub parameters: &'static [&'static str],
    /// May be left out; the Rust parameter is an `Option`.
    pub optional: &'static [&'static str],
}

/// Where a tensor or matrix is.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub place: TokenStream,
    form: Form,
    copies: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A variable of the region at this depth.
    Owned(usize),
    /// A field of `self`.
    Field,
    /// A reference, such as a parameter.
    Reference,
}

impl Operand {
    /// As an argument.
    pub fn pass(&self) -> TokenStream {
        let place = &self.place;
        match self.form {
            _ if self.copies => quote!(#place),
            Form::Owned(_) | Form::Field => quote!(&#place),
            Form::Reference => quote!(#place),
        }
    }

    /// As a value to keep; a variable of `depth` may be moved out.
    fn take(&self, depth: usize) -> TokenStream {
        let place = &self.place;
        if self.copies || self.form == Form::Owned(depth) { quote!(#place) } else { quote!(#place.clone()) }
    }
}

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

/// How a region ends.
enum Finish<'a> {
    /// As the `Result` of the function.
    Return,
    /// As the value of a block.
    Value,
    /// Into the variables that a loop carries.
    Assign(&'a [Ident]),
}

/// What a statement becomes.
enum Step {
    /// An expression whose value (or tuple) is bound.
    Define(Vec<ValueId>, Expr),
    Done(TokenStream),
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
    /// The variables of loops over children, with the array each runs over.
    items: HashMap<LocalId, (Ident, FieldId)>,
}

impl<'p> Body<'p> {
    fn new(home: Home<'p>, function: &'p Function, backend: &'p dyn Backend, origin: &str) -> Body<'p> {
        Body {
            home,
            function,
            backend,
            origin: origin.to_string(),
            scope: Scope::new(home.program, home.configs, home.block, Where::Method),
            uses: Uses::of(function),
            names: Namespace::default(),
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
        let bindings = self.bindings()?;
        let tokens = quote! {
            #doc
            pub fn #name(#receiver cx: &mut Call<'_>, #(#parameters),*) -> Result<#results> {
                #bindings
                #twins
                #body
            }
        };
        Ok(Emitted { tokens, members: self.scope.used.members.take() })
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
                let matrix = matches!(self.function.value(*value).ty, Type::Matrix(_));
                let copies = self.backend.copies() && !matrix;
                let ty = if matrix { self.backend.matrix() } else { self.backend.tensor() };
                self.hold(*value, quote!(#ident), Form::Reference);
                Ok(if copies { quote!(#ident: #ty) } else { quote!(#ident: &#ty) })
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
                    let list = self.function.parameters.get(*parameter).map(|p| names::ident(&p.name));
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

    /// Parameter number `index`, and whether it is a tensor (else a matrix).
    fn value_parameter(&self, index: usize) -> Result<(Operand, bool)> {
        match self.function.parameters.get(index).map(|p| &p.kind) {
            Some(ParameterKind::Value(value)) => {
                Ok((self.scope.value(*value)?, matches!(self.function.value(*value).ty, Type::Tensor(_))))
            }
            _ => Err(Error::Ir(format!("{} binds something from parameter {index}, which is no tensor", self.origin))),
        }
    }

    fn twin(&mut self, twin: &Twin) -> Result<TokenStream> {
        let names = self.names.clone();
        let when = match &twin.when {
            Some(load) => {
                let condition = self.scope.scalar(load)?.at(Level::And);
                quote!(&& #condition)
            }
            None => TokenStream::new(),
        };
        let (setup, call) = match &twin.target {
            TwinTarget::Op(id) => {
                let op = names::ident(&self.home.program.op(*id).name);
                let arguments = self.function.parameters.iter().map(|p| match &p.kind {
                    ParameterKind::Value(value) => Ok(self.scope.value(*value)?.pass()),
                    ParameterKind::Load(_) => Ok(names::ident(&p.name).to_token_stream()),
                });
                let arguments = arguments.collect::<Result<Vec<_>>>()?;
                (TokenStream::new(), quote!(prelude::#op(cx, #(#arguments),*)))
            }
            TwinTarget::Kernel { path, setup, arguments } => {
                let mut lines = TokenStream::new();
                for statement in setup {
                    let step = self.statement(statement, None)?;
                    lines.extend(self.bind(step, usize::MAX)?);
                }
                (lines, self.kernel(path, arguments)?)
            }
        };
        self.names = names;
        Ok(quote!(if cx.fused() #when { #setup return #call; }))
    }

    fn kernel(&self, path: &str, arguments: &[(Option<String>, TwinArgument)]) -> Result<TokenStream> {
        let known = self.backend.kernels();
        let Some(kernel) = known.iter().find(|k| k.path == path) else {
            let known = known.iter().map(|k| format!("`{}`", k.path)).collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownKernel {
                op: self.origin.clone(),
                backend: match self.backend.twin() {
                    TwinBackend::Mlx => "mlx",
                    TwinBackend::Hlo => "hlo",
                },
                kernel: path.to_string(),
                known: if known.is_empty() { "none".to_string() } else { known },
            });
        };
        let wrong = |found: String| Error::KernelArguments {
            op: self.origin.clone(),
            kernel: path.to_string(),
            found,
            expected: kernel.parameters.iter().chain(kernel.optional).copied().collect::<Vec<_>>().join(", "),
        };
        let all: Vec<&str> = kernel.parameters.iter().chain(kernel.optional).copied().collect();
        let mut slots: Vec<Option<TokenStream>> = vec![None; all.len()];
        for (position, (name, argument)) in arguments.iter().enumerate() {
            let slot = match name {
                Some(name) => all.iter().position(|p| p == name).ok_or_else(|| wrong(format!("`{name}`")))?,
                None => position,
            };
            let value = match argument {
                TwinArgument::Value(value) => self.scope.value(*value)?.pass(),
                TwinArgument::Load(load) => self.scope.argument(load)?,
            };
            match slots.get_mut(slot) {
                Some(free @ None) => *free = Some(value),
                Some(Some(_)) => return Err(wrong(format!("`{}` twice", all[slot]))),
                None => return Err(wrong(format!("{} arguments", arguments.len()))),
            }
        }
        let mut passed = Vec::new();
        for (index, slot) in slots.into_iter().enumerate() {
            let optional = index >= kernel.parameters.len();
            passed.push(match (slot, optional) {
                (Some(value), false) => value,
                (Some(value), true) => quote!(Some(#value)),
                (None, true) => quote!(None),
                (None, false) => return Err(wrong(format!("no `{}`", all[index]))),
            });
        }
        let name = names::ident(path.rsplit("::").next().unwrap_or(path));
        Ok(quote!(kernels::#name(#(#passed),*)))
    }

    // ---- regions and statements ---------------------------------------------------------------------------------

    fn region(&mut self, region: &Region, finish: &Finish<'_>) -> Result<TokenStream> {
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
            (Some(expr), Finish::Assign(to)) => {
                let value = expr.value();
                match to {
                    [to] => quote!(#to = #value;),
                    to => quote!((#(#to),*) = #value;),
                }
            }
            (None, finish) => self.finish(&region.results, finish)?,
        };
        self.depth -= 1;
        self.names = names;
        Ok(quote!(#lines #end))
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
            Finish::Assign(to) => {
                let mut changed = Vec::new();
                for ((to, value), result) in to.iter().zip(&values).zip(results) {
                    if *to != self.scope.value(*result)?.place.to_string() {
                        changed.push((to, value));
                    }
                }
                match &changed[..] {
                    [] => TokenStream::new(),
                    [(to, value)] => quote!(#to = #value;),
                    several => {
                        let (to, value): (Vec<_>, Vec<_>) = several.iter().copied().unzip();
                        quote!((#(#to),*) = (#(#value),*);)
                    }
                }
            }
        })
    }

    /// `let` for what a step defines. Values stay bound at least until `least`.
    fn bind(&mut self, step: Step, least: usize) -> Result<TokenStream> {
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

    fn pass(&self, values: &[ValueId]) -> Result<Vec<TokenStream>> {
        values.iter().map(|value| Ok(self.scope.value(*value)?.pass())).collect()
    }

    /// `within`: the region and index, for what looks at its neighbours.
    fn statement(&mut self, statement: &Statement, within: Option<(&Region, usize)>) -> Result<Step> {
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
            Statement::For { outs, over, index, carried, body } => {
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
                        self.scope.loop_head(*index, *variable, &over)?
                    }
                    LoopOver::List { variable, list } => {
                        self.scope.loop_head(*index, *variable, &Over::List(list.clone()))?
                    }
                    LoopOver::Children { item, field } => {
                        let (place, conditional, name) = self.field(*field)?;
                        let singular = name.strip_suffix('s').unwrap_or("child").to_string();
                        let ident = self.names.bind(&singular, self.point, usize::MAX);
                        self.items.insert(*item, (ident.clone(), *field));
                        let items = if conditional { quote!(present(&#place, #name)?) } else { quote!(&#place) };
                        match index {
                            Some(index) => {
                                let position = self.scope.loop_variable();
                                self.scope.bind_local(*index, position.clone(), false);
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
        }
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

/// The dtype of a tensor in Rust; marks `F` as used.
pub(crate) fn dtype(scope: &Scope<'_>, dtype: DType) -> TokenStream {
    let variant = match dtype {
        DType::F => {
            scope.used.float.set(true);
            return quote!(F);
        }
        DType::F64 => quote!(F64),
        DType::F32 => quote!(F32),
        DType::F16 => quote!(F16),
        DType::BF16 => quote!(BF16),
        DType::I32 => quote!(I32),
        DType::U32 => quote!(U32),
        DType::U8 => quote!(U8),
        DType::Bool => quote!(Bool),
    };
    quote!(DType::#variant)
}

pub(crate) fn out_dtype(scope: &Scope<'_>, out: &Type) -> Result<TokenStream> {
    Ok(dtype(scope, tensor(out)?.dtype))
}
