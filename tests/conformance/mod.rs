//! Conformance of every primitive and prelude op: what a test of any executor needs. Included by path.
//!
//! `primitives` and `composites` are the tables: an op's text, its operands, its bound with the reason. `cases` makes calls of
//! them, `numbers` the operands, `judge` compares.

pub mod cases;
pub mod composites;
pub mod judge;
pub mod numbers;
pub mod primitives;
pub mod row;
pub mod types;
