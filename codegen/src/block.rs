//! Blocks: a struct that holds what a block's functions read, how it is made, and its functions. The MLX struct holds the
//! weights themselves; the StableHLO struct holds the paths under which they become arguments.

use std::collections::BTreeSet;

use mgraph_dsl::ir::{Block, BlockId, Field, FieldKind, Load, Region, Statement, TwinBackend};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::{
    backend::Backend,
    body::{Home, block_function, documentation},
    error::Result,
    load::{borrowed_type, owned_type},
    names,
    scope::{Scope, Where},
};

/// The Rust type of a block.
fn type_name(home: Home<'_>, id: BlockId) -> Ident {
    if id == home.program.model { format_ident!("Model") } else { names::block(&home.program.block(id).name) }
}

pub(crate) fn emit(home: Home<'_>, id: BlockId, backend: &dyn Backend) -> Result<TokenStream> {
    let block = home.program.block(id);
    let home = Home { block: Some(block), ..home };
    let mut functions = TokenStream::new();
    let mut members = BTreeSet::new();
    let mut weights = BTreeSet::new();
    for function in &block.functions {
        let emitted = block_function(home, function, backend)?;
        functions.extend(emitted.tokens);
        members.extend(emitted.members);
        weights_read(block, &function.body, &mut weights);
    }
    let name = type_name(home, id);
    let what = if id == home.program.model { "`model`".to_string() } else { format!("`block {}`", block.name) };
    let doc = documentation(home.program, &what, &block.doc, block.span);
    let mut held = TokenStream::new();
    let mut made = Vec::new();
    let mut lines = TokenStream::new();

    for parameter in block.parameters.iter().filter(|p| members.contains(&p.name)) {
        let (ident, ty) = (names::ident(&parameter.name), owned_type(&parameter.ty));
        held.extend(quote!(#ident: #ty,));
        let owned = borrowed_type(&parameter.ty).to_string() != ty.to_string();
        made.push(if owned { quote!(#ident: #ident.to_owned()) } else { quote!(#ident) });
    }

    let maker =
        Maker { home, block, backend, scope: Scope::new(home.program, home.configs, Some(block), Where::Variables) };
    for field in &block.fields {
        let needed = match &field.kind {
            FieldKind::Let(_) => members.contains(&field.name) || maker.read_by_fields(field),
            // What only a derived weight reads is read when that is computed, and takes no memory afterwards.
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Derived { .. } => weights.contains(&field.name),
            FieldKind::Child { .. } | FieldKind::Children { .. } | FieldKind::State(_) => true,
        };
        if !needed {
            continue;
        }
        let ident = names::ident(&field.name);
        let (ty, value) = maker.field(field)?;
        // A path is there whether the field is or not.
        let path = ty.to_string() == "FieldPath";
        match &field.condition {
            Some(condition) if !path => {
                let condition = maker.scope.scalar(condition)?.tokens;
                held.extend(quote!(#ident: Option<#ty>,));
                lines.extend(quote!(let #ident = if #condition { Some(#value) } else { None };));
            }
            Some(_) | None => {
                held.extend(quote!(#ident: #ty,));
                lines.extend(quote!(let #ident = #value;));
            }
        }
        made.push(quote!(#ident));
    }

    let parameters = block.parameters.iter().map(|p| {
        let (ident, ty) = (names::ident(&p.name), borrowed_type(&p.ty));
        quote!(#ident: #ty)
    });
    let head = match backend.twin() {
        TwinBackend::Mlx => {
            quote!(pub fn load(cfg: &Config, at: &FieldPath, reader: &mut Weights<'_>, #(#parameters),*) -> Result<Self>)
        }
        TwinBackend::Hlo => quote!(pub fn declare(cfg: &Config, at: &FieldPath, #(#parameters),*) -> Result<Self>),
    };
    Ok(quote! {
        #doc
        pub struct #name { #held }

        impl #name {
            #head {
                #lines
                Ok(Self { #(#made),* })
            }

            #functions
        }
    })
}

/// The names of the weights that a function reads.
fn weights_read(block: &Block, region: &Region, found: &mut BTreeSet<String>) {
    region.for_each(&mut |statement| {
        if let Statement::Weight { field, .. } = statement {
            found.insert(block.field(*field).name.clone());
        }
    });
}

/// How the fields of a block come to be.
struct Maker<'p> {
    home: Home<'p>,
    block: &'p Block,
    backend: &'p dyn Backend,
    scope: Scope<'p>,
}

impl Maker<'_> {
    /// The type of a field, and the expression that makes it.
    fn field(&self, field: &Field) -> Result<(TokenStream, TokenStream)> {
        let name = &field.name;
        let mlx = self.backend.twin() == TwinBackend::Mlx;
        Ok(match &field.kind {
            FieldKind::Let(load) => (owned_type(&load.ty), self.scope.owned(load)?),
            FieldKind::Tensor(_) | FieldKind::Derived { .. } if mlx => {
                (quote!(Array), quote!(reader.tensor(&at.field(#name))?))
            }
            FieldKind::Matrix(_) if mlx => (quote!(Matrix), quote!(reader.matrix(&at.field(#name))?)),
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Derived { .. } | FieldKind::State(_) => {
                (quote!(FieldPath), quote!(at.field(#name)))
            }
            FieldKind::Child { block, arguments } => {
                let ty = type_name(self.home, *block);
                let made = self.child(&ty, quote!(&at.field(#name)), arguments)?;
                (quote!(#ty), quote!(#made?))
            }
            FieldKind::Children { block, arguments, variable, low, high } => {
                let ty = type_name(self.home, *block);
                let (low, high) = (self.scope.scalar(low)?.tokens, self.scope.scalar(high)?.tokens);
                let index = self.scope.variable(*variable);
                self.scope.bind_local(*variable, index.clone(), false);
                let made = self.child(&ty, quote!(&at.item(#name, #index)), arguments)?;
                self.scope.release(*variable);
                (quote!(Vec<#ty>), quote!((#low..#high).map(|#index| #made).collect::<Result<Vec<_>>>()?))
            }
        })
    }

    fn child(&self, ty: &Ident, at: TokenStream, arguments: &[Load]) -> Result<TokenStream> {
        let arguments = self.scope.arguments(arguments)?;
        Ok(match self.backend.twin() {
            TwinBackend::Mlx => quote!(#ty::load(cfg, #at, reader, #(#arguments),*)),
            TwinBackend::Hlo => quote!(#ty::declare(cfg, #at, #(#arguments),*)),
        })
    }

    /// Whether another field is made from this `let`.
    fn read_by_fields(&self, field: &Field) -> bool {
        let scope = Scope::new(self.home.program, self.home.configs, Some(self.block), Where::Variables);
        let reads = |load: &Load| {
            // Only the names it reads matter, so an expression that cannot be written here is no fault.
            let _ = scope.owned(load);
        };
        for other in &self.block.fields {
            other.condition.iter().for_each(reads);
            match &other.kind {
                FieldKind::Let(load) => reads(load),
                FieldKind::Child { arguments, .. } => arguments.iter().for_each(reads),
                FieldKind::Children { arguments, variable, low, high, .. } => {
                    scope.bind_local(*variable, format_ident!("i"), false);
                    [low, high].into_iter().chain(arguments).for_each(reads);
                }
                FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Derived { .. } | FieldKind::State(_) => {}
            }
        }
        scope.used.members.take().contains(&field.name)
    }
}
