//! One row of the tables.

use mgraph_dsl::ir::DType;

use super::numbers::Draw;

/// An op on given operands, and how far executors may be from what it means.
#[derive(Debug, Clone)]
pub struct Row {
    /// The language's word or operator.
    pub op: &'static str,
    /// Parameters as in an op's signature. `D` is each of `dtypes` in turn; dims are names of sizes.
    pub takes: &'static str,
    pub gives: &'static str,
    pub body: &'static str,
    pub dtypes: &'static [DType],
    /// Sizes that a name has in every call; other names take awkward ones, 1 and 0 in turn.
    pub sizes: &'static [(&'static str, &'static [usize])],
    /// How operands are drawn, by parameter; [`Draw::Any`] where none is named.
    pub draws: &'static [(&'static str, Draw)],
    pub within: Within,
    pub why: &'static str,
    /// What the language leaves open; such operands are not judged.
    pub open: &'static [Open],
    /// Each element of the result is made of one of every operand, so edge values can meet each other.
    pub elementwise: bool,
    pub refused: &'static [Refused],
    /// Numbers below the least normal one are kept.
    pub keeps: bool,
}

/// How far a result may be from the f64 run of the reference interpreter.
#[derive(Debug, Clone, Copy)]
pub struct Within {
    pub interpreter: f64,
    pub mlx: f64,
    pub iree: f64,
    pub of: Of,
    /// Where MLX's counts something else.
    pub mlx_of: Option<Of>,
}

/// What the number of a bound counts. Integers and bools are always exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Of {
    /// Nothing: the nearest number of the dtype, zeros with their sign.
    Exact,
    /// The same, but for the sign of a zero.
    Number,
    /// Units in the last place of each element.
    Ulp,
    /// Distances of 1 from the next number, times the same op on the magnitudes of its operands: the sum of absolute terms.
    Sum,
    /// The same, times this text instead of the op's own.
    Text(&'static str),
    /// The same, times the largest element of the result.
    Largest,
}

/// Operands for which the language says nothing, and the sentence of the book that says so.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    pub when: fn(DType, &[f64]) -> bool,
    pub sentence: &'static str,
}

/// What an executor does not compute.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    pub executor: Executor,
    pub dtypes: &'static [DType],
    /// A part of what it says; `None` where a session says it before there are ops.
    pub says: Option<&'static str>,
    pub why: &'static str,
}

/// `session.rs` of the backend refuses such families.
const NARROW_SUMS: Refused = Refused {
    executor: Executor::Mlx,
    dtypes: &[DType::F16, DType::BF16],
    says: None,
    why: "refused by MLX, whose processor kernels sum in the narrow dtype",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Executor {
    Interpreter,
    Mlx,
    Iree,
}

impl Within {
    pub const fn mlx_of(mut self, of: Of) -> Within {
        self.mlx_of = Some(of);
        self
    }

    pub fn of(&self, executor: Executor) -> Of {
        if executor == Executor::Mlx { self.mlx_of.unwrap_or(self.of) } else { self.of }
    }

    pub fn bound(&self, executor: Executor) -> f64 {
        match executor {
            Executor::Interpreter => self.interpreter,
            Executor::Mlx => self.mlx,
            Executor::Iree => self.iree,
        }
    }
}

pub const EXACT: Within = within(Of::Exact, 0.0, 0.0, 0.0);

pub const fn within(of: Of, interpreter: f64, mlx: f64, iree: f64) -> Within {
    Within { interpreter, mlx, iree, of, mlx_of: None }
}

pub const fn row(op: &'static str, takes: &'static str, gives: &'static str, body: &'static str) -> Row {
    Row {
        op,
        takes,
        gives,
        body,
        dtypes: &[DType::F32],
        sizes: &[],
        draws: &[],
        within: EXACT,
        why: "",
        open: &[],
        elementwise: false,
        refused: &[],
        keeps: false,
    }
}

impl Row {
    pub const fn of(mut self, dtypes: &'static [DType]) -> Row {
        self.dtypes = dtypes;
        self
    }
    pub const fn sized(mut self, sizes: &'static [(&'static str, &'static [usize])]) -> Row {
        self.sizes = sizes;
        self
    }
    pub const fn drawn(mut self, draws: &'static [(&'static str, Draw)]) -> Row {
        self.draws = draws;
        self
    }
    pub const fn within(mut self, within: Within, why: &'static str) -> Row {
        self.within = within;
        self.why = why;
        self
    }
    pub const fn exact(self, why: &'static str) -> Row {
        self.within(EXACT, why)
    }
    /// Elements go from one place to another.
    pub const fn moved(mut self) -> Row {
        self.keeps = true;
        self.exact("elements are moved, not computed")
    }
    pub const fn open(mut self, open: &'static [Open]) -> Row {
        self.open = open;
        self
    }
    pub const fn elementwise(mut self) -> Row {
        self.elementwise = true;
        self
    }
    /// Sums of narrow floats.
    pub const fn sums(self) -> Row {
        self.refused(&[NARROW_SUMS])
    }
    pub const fn refused(mut self, refused: &'static [Refused]) -> Row {
        self.refused = refused;
        self
    }
    pub fn refusal(&self, executor: Executor, dtype: DType) -> Option<&'static Refused> {
        self.refused.iter().find(|refused| refused.executor == executor && refused.dtypes.contains(&dtype))
    }
    pub fn draw(&self, parameter: &str) -> Draw {
        self.draws.iter().find(|(name, _)| *name == parameter).map_or(Draw::Any, |(_, draw)| *draw)
    }
}
