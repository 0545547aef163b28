//! The contract with the runtime: which graphs it calls, and what it can give them. Closed tables; `check::graphs` holds
//! families against them, the book prints them.

use crate::ir::DType;

/// What a graph gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// `F[B, S, _]`
    Embeddings,
    /// `F[B, R, _]`
    Logits,
    /// One tensor of floats.
    Features,
    /// Nothing: only state.
    Nothing,
}

#[derive(Debug, Clone, Copy)]
pub struct Graph {
    pub name: &'static str,
    /// A family cannot do without it.
    pub required: bool,
    /// Inputs that it must have. Others of [`INPUTS`] are welcome.
    pub needs: &'static [&'static str],
    pub gives: Gives,
    /// When the runtime calls it.
    pub called: &'static str,
}

/// An input that comes from the engine.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    pub name: &'static str,
    pub dtype: DType,
    pub rank: usize,
    /// The leading dims, where they are fixed by name.
    pub dims: &'static [&'static str],
    /// What it is.
    pub doc: &'static str,
}

pub const GRAPHS: &[Graph] = &[
    Graph { name: "embed", required: true, needs: &["tokens"], gives: Gives::Embeddings, called: "per chunk" },
    Graph {
        name: "vision",
        required: false,
        needs: &[],
        gives: Gives::Features,
        called: "per request with pictures, on what the processor made",
    },
    Graph {
        name: "merge",
        required: false,
        needs: &["x", "features", "feature_rows"],
        gives: Gives::Embeddings,
        called: "per chunk that contains pictures",
    },
    Graph {
        name: "attach",
        required: false,
        needs: &["features", "count"],
        gives: Gives::Nothing,
        called: "once per request with pictures, before the first `forward`",
    },
    Graph {
        name: "forward",
        required: true,
        needs: &["x", "positions", "wanted"],
        gives: Gives::Logits,
        called: "per chunk and per step",
    },
];

const fn input(
    name: &'static str,
    dtype: DType,
    rank: usize,
    dims: &'static [&'static str],
    doc: &'static str,
) -> Input {
    Input { name, dtype, rank, dims, doc }
}

pub const INPUTS: &[Input] = &[
    input("tokens", DType::I32, 2, &["B", "S"], "token ids"),
    input("positions", DType::I32, 2, &["B", "S"], "the position of each token in its request; consecutive in a row"),
    input(
        "wanted",
        DType::I32,
        2,
        &["B", "R"],
        "which tokens of the chunk need logits: one per row when serving, all of them for parity",
    ),
    input("x", DType::F, 3, &["B", "S"], "the result of `embed` or `merge`"),
    input(
        "feature_rows",
        DType::I32,
        2,
        &["B", "S"],
        "the row of `features` for each token, -1 for none; rows never named are padding of the processor",
    ),
    input(
        "spans",
        DType::I32,
        2,
        &["B", "S"],
        "which span (from 1) a token belongs to, 0 for none; a span is never cut between chunks",
    ),
    input(
        "axis_positions",
        DType::I32,
        3,
        &[],
        "`[A, B, S]`: rotary positions per axis, from the processor; a step continues after the largest",
    ),
    input(
        "tile_sight",
        DType::Bool,
        4,
        &["B", "S"],
        "`[B, S, pictures, tiles]`: which tiles a token may look at; a step repeats the last row",
    ),
    input("count", DType::I32, 1, &["B"], "how many feature rows of a request are real, the others are zero"),
];
