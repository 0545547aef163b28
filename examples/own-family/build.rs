//! Generates one module per `families/*.mgraph`, and their registry.

fn main() {
    mgraph_codegen::build::families("families");
}
