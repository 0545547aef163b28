//! The families of the tests (`families/`), and the mutants of one more (`mutations/`), for the certificate to catch.

#[path = "mutations/schemata.rs"]
mod schemata;
#[path = "mutations/sites.rs"]
mod sites;
#[path = "mutations/table.rs"]
mod table;

use std::{env, fs, path::PathBuf};

use quote::quote;

use crate::{
    schemata::{Mutant, schemata},
    sites::Site,
    table::Emitter,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    mgraph_codegen::build::families("families");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=mutations");
    let name = "mutations/mutants.mgraph";
    let schemata = schemata(name, &fs::read_to_string(name)?)?;
    let emitter = |emitter: &Emitter| match emitter {
        Emitter::Mlx => quote!(Emitter::Mlx),
        Emitter::Hlo => quote!(Emitter::Hlo),
    };
    let mutants = schemata.mutants.iter().map(|Mutant { number, of, emitter: by, functions }| {
        let by = emitter(by);
        quote!(Mutant { number: #number, of: #of, emitter: #by, functions: &[#(#functions),*] })
    });
    let sites = schemata.sites.iter().map(|Site { number, emitter: by, function, change, before, after }| {
        let by = emitter(by);
        quote!(Site { number: #number, emitter: #by, function: #function, change: #change, before: #before, after: #after })
    });
    let list = quote! {
        pub const MUTANTS: &[Mutant] = &[#(#mutants),*];
        pub const SITES: &[Site] = &[#(#sites),*];
    };
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("mutants.rs"), schemata.module)?;
    fs::write(out.join("mutants_list.rs"), mgraph_codegen::format(list)?)?;
    Ok(())
}
