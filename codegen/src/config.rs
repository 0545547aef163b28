//! `struct Config`: the settings of the family that code reads, taken from the resolved config. What may be absent is an
//! `Option`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use mgraph_dsl::ir::{FieldType, LoadType, OpId, Program, Scalar, Setting};
use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::{
    code::{Code, Level},
    error::{Error, Result},
    load::owned_type,
    names,
};

#[derive(Debug)]
struct Known {
    ty: LoadType,
    conditional: bool,
}

/// Every value of the config by its path, in file order; and what the code emitted so far reads of the load stage.
#[derive(Debug, Default)]
pub(crate) struct Configs {
    order: Vec<Vec<String>>,
    known: BTreeMap<Vec<String>, Known>,
    read: RefCell<BTreeSet<Vec<String>>>,
    called: RefCell<BTreeSet<OpId>>,
}

impl Configs {
    pub fn of(program: &Program) -> Configs {
        let mut configs = Configs::default();
        configs.collect(&program.config, false);
        configs
    }

    fn collect(&mut self, settings: &[Setting], within: bool) {
        for setting in settings {
            match setting {
                Setting::Section(section) => self.collect(&section.settings, within || section.condition.is_some()),
                Setting::Field(field) => {
                    self.add(&field.path, load_type(&field.ty), within || field.condition.is_some())
                }
                Setting::Limit { path, value } => self.add(path, value.ty.clone(), within),
                Setting::Let { path, value, condition } => {
                    self.add(path, value.ty.clone(), within || condition.is_some());
                }
                Setting::Require(_) => {}
            }
        }
    }

    fn add(&mut self, path: &[String], ty: LoadType, conditional: bool) {
        // Two settings of one path exclude each other, so each is conditional.
        let again = self.known.contains_key(path);
        if !again {
            self.order.push(path.to_vec());
        }
        self.known.insert(path.to_vec(), Known { ty, conditional: conditional || again });
    }

    /// The place of a value, given `cfg: &Config`.
    pub fn access(&self, path: &[String]) -> Result<Code> {
        let dotted = path.join(".");
        let known = self.known.get(path).ok_or_else(|| Error::Ir(format!("`{dotted}` is no config value")))?;
        self.read.borrow_mut().insert(path.to_vec());
        let steps = path.iter().map(|step| names::ident(step));
        let place = quote!(cfg #(.#steps)*);
        Ok(if known.conditional {
            Code::new(Level::Prefix, quote!(*present(&#place, #dotted)?))
        } else {
            Code::atom(place)
        })
    }

    /// The functions of the runtime that [`Configs::emit`] calls.
    pub fn readers(&self) -> Vec<Ident> {
        let paths = self.read.borrow();
        let read = |reader: &(&str, bool)| {
            paths.iter().filter_map(|path| self.known.get(path)).any(|known| known.conditional == reader.1)
        };
        let readers = [("optional", true), ("required", false)].into_iter().filter(read);
        readers.map(|(name, _)| names::ident(name)).collect()
    }

    /// Code calls this op over load values.
    pub fn call(&self, op: OpId) {
        self.called.borrow_mut().insert(op);
    }

    pub fn called(&self) -> Vec<OpId> {
        self.called.borrow().iter().copied().collect()
    }

    /// `struct Config`, one struct per section, and how they are read: only what [`Configs::access`] was asked for.
    pub fn emit(&self) -> TokenStream {
        let mut sections: Vec<&str> = Vec::new();
        for path in self.order.iter().filter(|path| self.read.borrow().contains(*path)) {
            if let [section, _] = &path[..]
                && !sections.contains(&section.as_str())
            {
                sections.push(section);
            }
        }
        let root = self.fields(None);
        let reads = self.reads(None);
        let section_idents: Vec<_> = sections.iter().map(|s| names::ident(s)).collect();
        let mut section_types: Vec<Ident> = Vec::new();
        for section in &sections {
            section_types.push(names::section(section, &section_types));
        }
        let section_fields = sections.iter().map(|s| self.fields(Some(s)));
        let section_reads = sections.iter().map(|s| self.reads(Some(s)));
        let docs = sections.iter().map(|s| format!(" `section {s}`"));
        quote! {
            /// What the code reads of `config.json`, defaults filled in.
            #[derive(Debug, Clone)]
            #[allow(non_snake_case)]
            pub struct Config {
                #root
                #(pub #section_idents: #section_types,)*
            }

            #(
                #[doc = #docs]
                #[derive(Debug, Clone)]
                #[allow(non_snake_case, non_camel_case_types)]
                pub struct #section_types { #section_fields }
            )*

            impl Config {
                pub fn new(resolved: &Resolved) -> Result<Config> {
                    Ok(Config {
                        #reads
                        #(#section_idents: #section_types { #section_reads },)*
                    })
                }
            }
        }
    }

    fn within<'a>(&'a self, section: Option<&'a str>) -> impl Iterator<Item = (&'a Vec<String>, &'a Known)> {
        self.order.iter().filter_map(move |path| {
            let here = match (&path[..], section) {
                ([_], None) => true,
                ([within, _], Some(section)) => within == section,
                _ => false,
            };
            let here = here && self.read.borrow().contains(path);
            if here { self.known.get(path).map(|known| (path, known)) } else { None }
        })
    }

    fn fields(&self, section: Option<&str>) -> TokenStream {
        self.within(section)
            .map(|(path, known)| {
                let name = names::ident(path.last().map_or("", String::as_str));
                let ty = owned_type(&known.ty);
                if known.conditional { quote!(pub #name: Option<#ty>,) } else { quote!(pub #name: #ty,) }
            })
            .collect()
    }

    fn reads(&self, section: Option<&str>) -> TokenStream {
        self.within(section)
            .map(|(path, known)| {
                let name = names::ident(path.last().map_or("", String::as_str));
                let read = if known.conditional { quote!(optional) } else { quote!(required) };
                quote!(#name: #read(resolved, &[#(#path),*])?,)
            })
            .collect()
    }
}

fn load_type(ty: &FieldType) -> LoadType {
    match ty {
        FieldType::Dim | FieldType::Int | FieldType::Index(_) => LoadType::Int,
        FieldType::Float => LoadType::Float,
        FieldType::Bool => LoadType::Bool,
        FieldType::Text => LoadType::Text,
        FieldType::OneOf(accepted) => match accepted.first() {
            Some(Scalar::Int(_)) => LoadType::Int,
            Some(Scalar::Float(_)) => LoadType::Float,
            Some(Scalar::Bool(_)) => LoadType::Bool,
            Some(Scalar::Text(_)) | None => LoadType::Text,
        },
        FieldType::List(inner) => LoadType::List(Box::new(load_type(inner))),
    }
}
