//! The model families, generated from `families/*.mgraph` when this crate is built, and their registry. Nothing here is
//! written by hand: to add a family, add its file.

include!(concat!(env!("OUT_DIR"), "/families.rs"));
