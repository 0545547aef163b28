//! The families of `families/*.mgraph`, generated when this crate is built.

include!(concat!(env!("OUT_DIR"), "/families.rs"));
