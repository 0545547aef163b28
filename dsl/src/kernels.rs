//! The kernels of the backends: what a `fused` clause may name beside another op, and what each takes. The checker holds
//! every clause against this table, the emitters write calls by it, and the runtime has a function for each row
//! (`mgraph_runtime::mlx::kernels`).

use crate::ir::{LoadType, TwinBackend};

/// A kernel of a backend's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    pub backend: TwinBackend,
    /// What a family calls it: `fast::rms_norm`.
    pub path: &'static str,
    /// In the order of the runtime's function.
    pub parameters: &'static [Parameter],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    /// May be left out; the runtime's parameter is an `Option`.
    pub optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tensor,
    Matrix,
    Int,
    Float,
    Bool,
}

impl Kind {
    /// The type of a load value; `None` for what is known in a call alone.
    #[must_use]
    pub fn load(self) -> Option<LoadType> {
        match self {
            Kind::Tensor | Kind::Matrix => None,
            Kind::Int => Some(LoadType::Int),
            Kind::Float => Some(LoadType::Float),
            Kind::Bool => Some(LoadType::Bool),
        }
    }

    /// As a sentence has it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Kind::Tensor => "a tensor",
            Kind::Matrix => "a `Q`",
            Kind::Int => "an `int`",
            Kind::Float => "a `float`",
            Kind::Bool => "a `bool`",
        }
    }
}

const fn takes(name: &'static str, kind: Kind) -> Parameter {
    Parameter { name, kind, optional: false }
}

const fn tensor(name: &'static str) -> Parameter {
    takes(name, Kind::Tensor)
}

const fn may(name: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Tensor, optional: true }
}

const fn mlx(path: &'static str, parameters: &'static [Parameter]) -> Kernel {
    Kernel { backend: TwinBackend::Mlx, path, parameters }
}

/// StableHLO has none: there an op stands in for an op.
pub const KERNELS: &[Kernel] = &[
    mlx("softmax", &[tensor("x"), takes("axis", Kind::Int), takes("precise", Kind::Bool)]),
    mlx("fast::rms_norm", &[tensor("x"), tensor("weight"), takes("eps", Kind::Float)]),
    mlx("fast::layer_norm", &[tensor("x"), tensor("weight"), tensor("bias"), takes("eps", Kind::Float)]),
    mlx(
        "fast::scaled_dot_product_attention",
        &[tensor("q"), tensor("k"), tensor("v"), takes("scale", Kind::Float), may("mask"), may("sinks")],
    ),
    mlx("dequantize", &[takes("w", Kind::Matrix)]),
    mlx("quantized_matmul", &[tensor("x"), takes("w", Kind::Matrix)]),
    mlx("gather_qmm", &[tensor("x"), takes("w", Kind::Matrix), tensor("chosen")]),
    mlx("gather_mm", &[tensor("x"), takes("w", Kind::Matrix), tensor("chosen")]),
];

/// The kernels of one backend.
pub fn of(backend: TwinBackend) -> impl Iterator<Item = &'static Kernel> + Clone {
    KERNELS.iter().filter(move |kernel| kernel.backend == backend)
}
