//! Dims of generated programs: polynomials over free dims, printed as the language writes them.

use std::{collections::BTreeMap, fmt};

/// A free dim: A, B, ..
pub type Name = char;

/// Terms by their names in order; a number has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dim(BTreeMap<Vec<Name>, usize>);

impl Dim {
    pub fn name(name: Name) -> Dim {
        Dim([(vec![name], 1)].into())
    }

    pub fn number(n: usize) -> Dim {
        Dim([(vec![], n)].into())
    }

    pub fn plus(&self, other: &Dim) -> Dim {
        let mut terms = self.0.clone();
        for (names, n) in &other.0 {
            *terms.entry(names.clone()).or_default() += n;
        }
        Dim(terms)
    }

    pub fn times(&self, other: &Dim) -> Dim {
        let mut terms = BTreeMap::new();
        for (a, n) in &self.0 {
            for (b, m) in &other.0 {
                let mut names = [a.as_slice(), b].concat();
                names.sort_unstable();
                *terms.entry(names).or_default() += n * m;
            }
        }
        Dim(terms)
    }

    pub fn is_one(&self) -> bool {
        *self == Dim::number(1)
    }

    /// The number that this is, without any name.
    pub fn literal(&self) -> Option<usize> {
        match self.0.iter().next() {
            Some((names, n)) if self.0.len() == 1 && names.is_empty() => Some(*n),
            _ => None,
        }
    }

    /// The factors of a single term.
    pub fn factors(&self) -> Option<Vec<Dim>> {
        let (names, n) = self.0.iter().next().filter(|_| self.0.len() == 1)?;
        let number = (*n > 1).then(|| Dim::number(*n));
        Some(number.into_iter().chain(names.iter().map(|name| Dim::name(*name))).collect())
    }

    pub fn size(&self, of: &BTreeMap<Name, usize>) -> usize {
        self.0.iter().map(|(names, n)| n * names.iter().map(|name| of[name]).product::<usize>()).sum()
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (names, n)) in self.0.iter().rev().enumerate() {
            let plus = if at == 0 { "" } else { " + " };
            let names: Vec<String> = names.iter().map(Name::to_string).collect();
            match (n, names.is_empty()) {
                (n, true) => write!(f, "{plus}{n}")?,
                (1, false) => write!(f, "{plus}{}", names.join(" * "))?,
                (n, false) => write!(f, "{plus}{n} * {}", names.join(" * "))?,
            }
        }
        Ok(())
    }
}

pub fn written(dims: &[Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}
