//! The reference interpreter: evaluates the IR over tensors in f32 or f64, in pure Rust, as a third opinion beside the
//! backends. It also checks what the checker proved: every value's shape and dtype is compared with its declaration.
//!
//! The walk (`walk`) knows no tensor: it runs over any [`Domain`], and the op trace is another one.

mod domain;
mod fault;
mod frame;
mod numeric;
mod ops;
mod prepare;
mod session;
mod tensor;
mod twin;
mod walk;
mod weights;

pub use domain::{Application, Cut, Domain, Matrix, Number, Primitive, Store, Typed};
pub use fault::Fault;
pub use numeric::{Feed, Precision};
pub use session::{Interpreter, Outcome, ReadWeight, derived_weight, run_op, stored_weight};
pub use tensor::{Data, Tensor};
pub use walk::{Operand, Walk, Walked};

#[cfg(test)]
mod tests;
