//! Signatures of rows, read: `x: D[A, 1], w: Q[2 * N, K]`.

use std::collections::BTreeMap;

use mgraph_dsl::ir::DType;

use super::numbers::is_float;

pub type Sizes = BTreeMap<String, usize>;

#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: String,
    /// `None` of a matrix.
    pub dtype: Option<DType>,
    pub dims: Vec<String>,
}

pub const ALL: [DType; 8] =
    [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::U8, DType::Bool];

pub fn named(word: &str) -> DType {
    ALL.into_iter().find(|dtype| dtype.name() == word).unwrap_or_else(|| panic!("no dtype `{word}`"))
}

/// `D` stands for `dtype`.
pub fn with(text: &str, dtype: DType) -> String {
    let mut out = String::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let alone = !before.is_alphanumeric() && before != '_';
        match (c, alone, rest.peek()) {
            ('D', true, Some('[' | '(')) => out.push_str(dtype.name()),
            _ => out.push(c),
        }
        before = c;
    }
    out
}

/// What `F` is in a run that a row has in `dtype`.
pub fn family(signature: &str, dtype: DType) -> DType {
    if signature.contains("F[") && is_float(dtype) { dtype } else { DType::F32 }
}

pub fn parameters(takes: &str, family: DType) -> Vec<Parameter> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in takes.chars() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        match (c, depth, parts.last_mut()) {
            (',', 0, _) => parts.push(String::new()),
            (c, _, Some(part)) => part.push(c),
            (_, _, None) => {}
        }
    }
    let dtype = |word: &str| match word {
        "Q" => None,
        "F" => Some(family),
        word => Some(named(word)),
    };
    let read = |part: &String| {
        let (name, ty) = part.trim().split_once(": ").unwrap_or_else(|| panic!("`{part}` is no parameter"));
        let (word, dims) = ty.trim_end_matches(']').split_once('[').expect("a shape");
        let dims = dims.split(", ").filter(|dim| !dim.is_empty()).map(str::to_owned).collect();
        Parameter { name: name.into(), dtype: dtype(word), dims }
    };
    parts.iter().map(read).collect()
}

/// Names of sizes in dims, in order of appearance.
pub fn names(parameters: &[Parameter]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for dim in parameters.iter().flat_map(|p| &p.dims) {
        for word in dim.split(' ').filter(|word| word.starts_with(char::is_alphabetic)) {
            if !found.iter().any(|f| f == word) {
                found.push(word.into());
            }
        }
    }
    found
}

/// `2 * W + 1`, from left to right.
pub fn size(dim: &str, sizes: &Sizes) -> usize {
    let one = |word: &str| word.parse().unwrap_or_else(|_| sizes[word]);
    let words: Vec<&str> = dim.split(' ').collect();
    words[1..].chunks(2).fold(one(words[0]), |left, pair| match pair[0] {
        "*" => left * one(pair[1]),
        "/" => left / one(pair[1]),
        "+" => left + one(pair[1]),
        other => panic!("`{other}` in a dim"),
    })
}
