//! The whole generated module of a family: config, load functions, one submodule per backend, and the registry entry.

use std::{collections::BTreeMap, path::PathBuf};

use mgraph_dsl::ir::{BlockId, FieldKind, Function, LoadKind, OpKind, ParameterKind, Program};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::{
    backend::Backend,
    block,
    body::{Home, documentation, op_function},
    config::Configs,
    error::{Error, Result},
    hlo::Hlo,
    load::{borrowed_type, owned_type},
    mlx::Mlx,
    names, reach,
    scope::{Scope, Where},
};

/// How a module is embedded.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the source lies; the module then includes it from there. Without it the text itself is embedded.
    pub path: Option<PathBuf>,
}

/// The module of `program`: `Config`, `mlx`, `hlo`, and `FAMILY`.
///
/// # Errors
/// A program that no text gives: a defect of the checker.
pub fn emit(program: &Program, options: &Options) -> Result<TokenStream> {
    emit_pair(program, program, options)
}

/// As [`emit`], with the two backends taken from two programs: how a test shows that a drift between them is caught.
///
/// # Errors
/// As [`emit`].
pub fn emit_pair(mlx: &Program, hlo: &Program, options: &Options) -> Result<TokenStream> {
    let configs = Configs::of(mlx);
    let mlx_module = mlx_module(mlx, &configs)?;
    let hlo_module = hlo_module(hlo, &configs)?;
    // After what reads them.
    let load = load_functions(mlx, &configs)?;
    let (config, readers) = (configs.emit(), configs.readers());
    let family = family(mlx, options);
    Ok(quote! {
        use ::mgraph_runtime::{
            error::Result,
            family::Family,
            generated::{Resolved, #(#readers),*},
        };

        #config
        #load
        #mlx_module
        #hlo_module
        #family
    })
}

/// As `rustfmt` would have it, nearly.
///
/// # Errors
/// Tokens that are no Rust file: a defect of the emitter.
pub fn format(tokens: TokenStream) -> Result<String> {
    let file = syn::parse2(tokens).map_err(|e| Error::Syntax(e.to_string()))?;
    Ok(spaced(&prettyplease::unparse(&file)))
}

/// With an empty line between items, which the printer leaves out.
fn spaced(text: &str) -> String {
    const ITEMS: [&str; 9] = ["///", "#[", "pub ", "impl ", "fn ", "mod ", "struct ", "static ", "type "];
    let mut spaced = String::with_capacity(text.len() + text.len() / 16);
    let mut before = "";
    for line in text.lines() {
        let item = ITEMS.iter().any(|start| line.trim_start().starts_with(start));
        let ended = before.trim_start() == "}" || before.ends_with("};") || before.ends_with(';');
        if item && ended {
            spaced.push('\n');
        }
        spaced += line;
        spaced.push('\n');
        before = line;
    }
    spaced
}

fn family(program: &Program, options: &Options) -> TokenStream {
    let Program { name, digest, model_types, architectures, processor, .. } = program;
    let pictures = match processor {
        Some(processor) => {
            let kind = format_ident!("{}", format!("{:?}", processor.kind));
            quote!(Some(::mgraph_runtime::family::ProcessorKind::#kind))
        }
        None => quote!(None),
    };
    let mut fields = program.blocks.iter().flat_map(|block| &block.fields);
    let packed = fields.any(|field| matches!(field.kind, FieldKind::Matrix(_)));
    let source = program.sources.get(program.block(program.model).span.file);
    let file = &source.name;
    let text = match &options.path {
        Some(path) => {
            let path = path.display().to_string();
            quote!(include_str!(#path))
        }
        None => {
            let text = &source.text;
            quote!(#text)
        }
    };
    let doc = format!(" `family {name}`: {}", program.doc.lines().next().unwrap_or_default());
    quote! {
        #[doc = #doc]
        pub static FAMILY: Family = Family {
            name: #name,
            model_types: &[#(#model_types),*],
            architectures: &[#(#architectures),*],
            capabilities: ::mgraph_runtime::family::Capabilities {
                pictures: #pictures,
                backends: &[::mgraph_runtime::backend::Backend::Mlx, ::mgraph_runtime::backend::Backend::Iree],
                packed: #packed,
            },
            file: #file,
            source: #text,
            digest: #digest,
            mlx: mlx::load,
            hlo: hlo::build,
        };
    }
}

/// Ops over load values alone, the same for both backends. Those that only the config calls are evaluated with it.
fn load_functions(program: &Program, configs: &Configs) -> Result<TokenStream> {
    let mut functions = BTreeMap::new();
    // What is emitted may call more.
    while let Some(id) = configs.called().into_iter().find(|id| !functions.contains_key(id)) {
        let op = program.op(id);
        let OpKind::Load { parameters, dims, body } = &op.kind else {
            return Err(Error::Ir(format!("op `{}` is called with load values alone, and has tensors", op.name)));
        };
        let mut scope = Scope::new(program, configs, None, Where::Variables);
        let mut signature = Vec::new();
        for parameter in parameters {
            let (ident, ty) = (names::ident(&parameter.name), borrowed_type(&parameter.ty));
            scope.parameters.insert(parameter.name.clone(), ident.clone());
            signature.push(quote!(#ident: #ty));
        }
        let (lets, value) = match &body.kind {
            LoadKind::Block { lets, value } => scope.block_body(lets, value)?,
            _ => (TokenStream::new(), scope.owned(body)?),
        };
        let sizes = dims.iter().filter(|dim| scope.used.free.borrow().contains(&dim.name)).map(|dim| {
            let list = parameters.get(dim.parameter).map(|p| names::ident(&p.name));
            let ident = names::ident(&dim.name);
            quote!(let #ident = #list.len() as i64;)
        });
        let name = names::ident(&op.name);
        let doc = documentation(program, &format!("`op {}`", op.name), &op.doc, op.span);
        let result = owned_type(&body.ty);
        let function = quote! {
            #doc
            pub fn #name(#(#signature),*) -> Result<#result> {
                #(#sizes)*
                #lets
                Ok(#value)
            }
        };
        functions.insert(id, function);
    }
    let functions: TokenStream = functions.into_values().collect();
    Ok(quote! {
        /// Ops over load values.
        #[allow(non_snake_case, non_camel_case_types, unused_imports, dead_code, clippy::all)]
        mod load {
            use ::mgraph_runtime::{error::Result, generated::{exact, item, largest, remainder, shift_left}};
            use super::load;

            #functions
        }
    })
}

/// Blocks and the prelude of one backend.
fn structure(program: &Program, configs: &Configs, backend: &dyn Backend) -> Result<(TokenStream, TokenStream)> {
    let home = Home { program, configs, block: None };
    let mut blocks = TokenStream::new();
    for index in 0..program.blocks.len() {
        blocks.extend(block::emit(home, BlockId(index as u32), backend)?);
    }
    let mut ops = TokenStream::new();
    let reached = reach::ops(program, backend.twin());
    for op in reached.into_iter().map(|id| program.op(id)) {
        if let OpKind::Tensor { function, twins } = &op.kind {
            ops.extend(op_function(home, op, function, twins, backend)?);
        }
    }
    Ok((blocks, ops))
}

/// The graphs by name, `step` included: arms of a `match` that end in a list of results.
fn graphs(program: &Program, tensor: impl Fn(&proc_macro2::Ident) -> TokenStream) -> Result<TokenStream> {
    let model = program.block(program.model);
    let arity = |function: &Function| function.results.len();
    let idents = |function: &Function, skip: Option<&str>| -> Vec<proc_macro2::Ident> {
        function
            .parameters
            .iter()
            .filter(|p| matches!(p.kind, ParameterKind::Value(_)) && Some(&p.name[..]) != skip)
            .map(|p| names::ident(&p.name))
            .collect()
    };
    let results = |call: TokenStream, count: usize| match count {
        0 => quote! {
            #call?;
            Ok(Vec::new())
        },
        1 => quote! {
            let result = #call?;
            Ok(vec![result])
        },
        _ => {
            let parts = (0..count).map(|n| quote::format_ident!("result_{n}")).collect::<Vec<_>>();
            quote! {
                let (#(#parts),*) = #call?;
                Ok(vec![#(#parts),*])
            }
        }
    };
    let mut arms = TokenStream::new();
    for function in model.functions.iter().filter(|f| f.graph) {
        let name = &function.name;
        let method = names::method(name);
        let inputs = idents(function, None);
        let passed = inputs.iter().map(&tensor);
        let run = results(quote!(model.#method(cx, #(#passed),*)), arity(function));
        arms.extend(quote!(#name => { let [#(#inputs),*] = arguments(#name, inputs)?; #run }));
    }
    if let (Some(embed), Some(forward)) = (program.graph("embed"), program.graph("forward")) {
        let given = idents(embed, None);
        let rest = idents(forward, Some("x"));
        // One input may serve both.
        let inputs = given.iter().chain(rest.iter().filter(|r| !given.contains(r)));
        let embedded = given.iter().map(&tensor);
        let x = names::ident("x");
        let passed = forward.parameters.iter().map(|p| tensor(&names::ident(&p.name)));
        let run = results(quote!(model.forward(cx, #(#passed),*)), arity(forward));
        arms.extend(quote! {
            "step" => {
                let [#(#inputs),*] = arguments("step", inputs)?;
                let #x = &model.embed(cx, #(#embedded),*)?;
                #run
            }
        });
    }
    Ok(arms)
}

fn mlx_module(program: &Program, configs: &Configs) -> Result<TokenStream> {
    let (blocks, ops) = structure(program, configs, &Mlx)?;
    let graphs = graphs(program, |ident| quote!(#ident))?;
    Ok(quote! {
        /// Eager MLX.
        #[allow(non_snake_case, non_camel_case_types, unused_imports, unused_variables, dead_code, clippy::all)]
        pub mod mlx {
            use ::mgraph_runtime::{
                error::Result,
                generated::{
                    self, Cut, FieldPath, Resolved, arguments, dim, exact, item, largest, lead, present, remainder, shape,
                    shift_left, unknown_graph,
                },
                mlx::{Array, Core, Matrix, Module, Weights, kernels, ops},
                tensor::DType,
            };
            use super::{Config, load};

            type Call<'a> = generated::Call<'a, Config, Core>;

            #blocks

            /// The loaded family.
            struct Loaded {
                cfg: Config,
                model: Model,
            }

            /// Build the module over bound weights.
            pub fn load(resolved: &Resolved, reader: &mut Weights<'_>) -> Result<Box<dyn Module>> {
                let cfg = Config::new(resolved)?;
                let model = Model::load(&cfg, &FieldPath::root(), reader)?;
                Ok(Box::new(Loaded { cfg, model }))
            }

            impl Module for Loaded {
                fn graph(&self, core: &mut Core, name: &str, inputs: &[Array]) -> Result<Vec<Array>> {
                    let cx = &mut Call::new(&self.cfg, core);
                    let model = &self.model;
                    match name {
                        #graphs
                        _ => Err(unknown_graph(name)),
                    }
                }
            }

            /// One function per `op`.
            pub mod prelude {
                use super::*;

                #ops
            }
        }
    })
}

fn hlo_module(program: &Program, configs: &Configs) -> Result<TokenStream> {
    let (blocks, ops) = structure(program, configs, &Hlo)?;
    let graphs = graphs(program, |ident| quote!(*#ident))?;
    Ok(quote! {
        /// StableHLO.
        #[allow(non_snake_case, non_camel_case_types, unused_imports, unused_variables, dead_code, clippy::all)]
        pub mod hlo {
            use ::mgraph_runtime::{
                error::Result,
                generated::{
                    self, Cut, FieldPath, Resolved, arguments, dim, exact, item, largest, lead, present, remainder, shape, shift_left,
                    unknown_graph,
                },
                hlo::{Build, Compare, Matrix},
                tensor::DType,
            };
            use super::{Config, load};

            type Call<'a> = generated::Call<'a, Config, Build>;
            type V = ::mgraph_runtime::hlo::V;

            #blocks

            /// Emit one graph.
            pub fn build(resolved: &Resolved, build: &mut Build, graph: &str, inputs: &[V]) -> Result<Vec<V>> {
                let cfg = Config::new(resolved)?;
                let model = &Model::declare(&cfg, &FieldPath::root())?;
                let cx = &mut Call::new(&cfg, build);
                match graph {
                    #graphs
                    _ => Err(unknown_graph(graph)),
                }
            }

            /// One function per `op`.
            pub mod prelude {
                use super::*;

                #ops
            }
        }
    })
}
