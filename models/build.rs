//! Generates one module per `families/*.mgraph`, and the registry.

fn main() {
    mgraph_codegen::build::families("families");
}
