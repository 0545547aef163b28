//! What the fuzz targets share: texts to start from, a mutator that thinks in tokens, and a stack overflow that is
//! reported with its input like any other crash.

pub mod mutate;
pub mod stack;
pub mod texts;
