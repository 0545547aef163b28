//! All mutants in one module: every function that a mutation changes keeps its body and gets the others beside it, and
//! `crate::switch` says at run time which one holds. So a hundred mutants cost one compilation (mutant schemata; Untch,
//! Offutt and Harrold, 1993).
//!
//! Beside the mutations of the table, every call of an op in the emitted Rust is a site, where each small change that
//! makes sense for it is made (`sites.rs`).

use std::collections::BTreeMap;

use mgraph_codegen::{Options, emit, format};
use mgraph_dsl::{
    compile, prelude_sources,
    source::{PRELUDE, Sources},
};
use quote::quote;
use syn::{
    Block, File, ImplItemFn, ItemFn, ItemImpl, ItemMod, Signature, Type, parse_quote,
    visit_mut::{self, VisitMut},
};

use crate::{
    sites::{self, Site},
    table::{Change, Emitter, MUTATIONS},
};

type Fault = Box<dyn std::error::Error>;

/// One emitter with one mutation of the table.
pub struct Mutant {
    pub number: u32,
    /// Index into `MUTATIONS`.
    pub of: usize,
    pub emitter: Emitter,
    /// The functions that it changes, as in `prelude::silu`.
    pub functions: Vec<String>,
}

pub struct Schemata {
    pub module: String,
    pub mutants: Vec<Mutant>,
    pub sites: Vec<Site>,
}

/// Of a family, given its name and text.
pub fn schemata(name: &str, text: &str) -> Result<Schemata, Fault> {
    let prelude = prelude_sources().get(PRELUDE).text.clone();
    let faithful = bodies(&mut module(name, text, &prelude)?);
    let mut next = 1;
    let mut number = || {
        next += 1;
        next - 1
    };
    let mut mutants: Vec<Mutant> = Vec::new();
    let mut others: BTreeMap<String, Vec<(u32, Block)>> = BTreeMap::new();
    for (of, mutation) in MUTATIONS.iter().enumerate() {
        let told = |what: &str| format!("mutation `{}`: {what}", mutation.name);
        let changed: Vec<(Emitter, String, Block)> = match &mutation.change {
            Change::Source { from, to } | Change::Twin { from, to } => {
                let (mut text, mut prelude) = (text.to_owned(), prelude.clone());
                let place = match (text.matches(from).count(), prelude.matches(from).count()) {
                    (1, 0) => &mut text,
                    (0, 1) => &mut prelude,
                    (here, there) => return Err(told(&format!("its text stands {here} + {there} times")).into()),
                };
                *place = place.replace(from, to);
                let mutated = module(name, &text, &prelude).map_err(|e| told(&e.to_string()))?;
                let mut changed = Vec::new();
                for (path, new) in bodies(&mut { mutated }) {
                    let Some(old) = faithful.get(&path) else { return Err(told(&format!("{path} is new")).into()) };
                    if old.signature != new.signature {
                        return Err(told(&format!("{path} has another signature")).into());
                    }
                    if old.body != new.body {
                        let (emitter, function) =
                            emitter(&path).ok_or_else(|| told(&format!("{path} is of no emitter")))?;
                        changed.push((emitter, function.to_owned(), new.body));
                    }
                }
                changed
            }
            Change::Emission { function, mlx, hlo } => {
                let each = [(Emitter::Mlx, mlx), (Emitter::Hlo, hlo)];
                let each = each.into_iter().filter_map(|(emitter, change)| Some((emitter, change.as_ref()?)));
                let each = each.map(|(emitter, (from, to))| {
                    let body = &faithful.get(&path(emitter, function)).ok_or_else(|| told("no such function"))?.body;
                    let body = replaced(body, from, to).map_err(|e| told(&e.to_string()))?;
                    Ok::<_, String>((emitter, (*function).to_owned(), body))
                });
                each.collect::<Result<_, _>>()?
            }
        };
        for emitter in [Emitter::Mlx, Emitter::Hlo] {
            let changed: Vec<_> = changed.iter().filter(|(of, _, _)| *of == emitter).collect();
            if changed.is_empty() {
                match &mutation.change {
                    Change::Source { .. } => return Err(told("an emitter writes the same").into()),
                    Change::Twin { .. } | Change::Emission { .. } => continue,
                }
            }
            let number = number();
            for (_, function, body) in &changed {
                others.entry(path(emitter, function)).or_default().push((number, body.clone()));
            }
            let functions = changed.into_iter().map(|(_, function, _)| function.clone()).collect();
            mutants.push(Mutant { number, of, emitter, functions });
        }
    }

    let mut file = module(name, text, &prelude)?;
    let mut sites = Vec::new();
    Functions::walk(&mut file, |path, _, body| {
        let Some((emitter, function)) = emitter(path) else { return };
        sites::insert(emitter, function, body, &mut number, &mut sites);
        if let Some(others) = others.get(path) {
            let numbers = others.iter().map(|(number, _)| number);
            let arms = others.iter().map(|(number, body)| quote!(#number => #body));
            *body = parse_quote!({ match crate::switch::at(&[#(#numbers),*]) { #(#arms)* _ => #body } });
        }
    });
    Ok(Schemata { module: format(quote!(#file))?, mutants, sites })
}

fn module(name: &str, text: &str, prelude: &str) -> Result<File, Fault> {
    let mut sources = Sources::default();
    sources.add("prelude.mgraph", prelude);
    let family = sources.add(name, text);
    let program = compile(sources, family)?;
    Ok(syn::parse2(emit(&program, &Options::default())?)?)
}

/// `hlo::prelude::silu` as emitter and `prelude::silu`; what only loads a model is not mutated.
fn emitter(path: &str) -> Option<(Emitter, &str)> {
    let (module, function) = path.split_once("::")?;
    let emitter = match module {
        "mlx" => Emitter::Mlx,
        "hlo" => Emitter::Hlo,
        _ => return None,
    };
    let whole = ["load", "build", "declare", "graph"];
    (!whole.contains(&function.rsplit("::").next().unwrap_or(function))).then_some((emitter, function))
}

fn path(emitter: Emitter, function: &str) -> String {
    match emitter {
        Emitter::Mlx => format!("mlx::{function}"),
        Emitter::Hlo => format!("hlo::{function}"),
    }
}

struct Function {
    signature: Signature,
    body: Block,
}

fn bodies(file: &mut File) -> BTreeMap<String, Function> {
    let mut found = BTreeMap::new();
    Functions::walk(file, |path, signature, body| {
        found.insert(path.to_owned(), Function { signature: signature.clone(), body: body.clone() });
    });
    found
}

/// The first place in a body where `from` stands, read as tokens.
fn replaced(body: &Block, from: &str, to: &str) -> Result<Block, Fault> {
    // Of `quote` and of a text, `?;` has other spaces.
    let tokens =
        |text: &str| Ok::<_, Fault>(text.parse::<proc_macro2::TokenStream>()?.to_string().replace("?;", "? ;"));
    let (body, from, to) = (quote!(#body).to_string(), tokens(from)?, tokens(to)?);
    if !body.contains(&from) {
        return Err(format!("{from} does not stand in {body}").into());
    }
    Ok(syn::parse_str(&body.replacen(&from, &to, 1))?)
}

/// Every function of a file, with its path.
struct Functions<F> {
    path: Vec<String>,
    each: F,
}

impl<F: FnMut(&str, &Signature, &mut Block)> Functions<F> {
    fn walk(file: &mut File, each: F) {
        Functions { path: Vec::new(), each }.visit_file_mut(file);
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.path.push(name);
        visit(self);
        self.path.pop();
    }

    fn function(&mut self, signature: &Signature, body: &mut Block) {
        self.path.push(signature.ident.to_string());
        (self.each)(&self.path.join("::"), signature, body);
        self.path.pop();
    }
}

impl<F: FnMut(&str, &Signature, &mut Block)> VisitMut for Functions<F> {
    fn visit_item_mod_mut(&mut self, item: &mut ItemMod) {
        self.within(item.ident.to_string(), |this| visit_mut::visit_item_mod_mut(this, item));
    }

    fn visit_item_impl_mut(&mut self, item: &mut ItemImpl) {
        let name = match &*item.self_ty {
            Type::Path(ty) => ty.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default(),
            _ => String::new(),
        };
        self.within(name, |this| visit_mut::visit_item_impl_mut(this, item));
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut ImplItemFn) {
        self.function(&item.sig, &mut item.block);
    }

    fn visit_item_fn_mut(&mut self, item: &mut ItemFn) {
        self.function(&item.sig, &mut item.block);
    }
}
