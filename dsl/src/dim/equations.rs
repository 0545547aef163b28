//! What is known about dims beyond their names: equations from `require` and from the conditions of enclosing `if`s.
//!
//! Each equation is solved for one atom when it is assumed, and that atom is replaced everywhere, in dims and in the
//! other equations. No search: two dims are equal when they are the same after replacement.

use std::{collections::BTreeMap, sync::Arc};

use super::{Atom, Dim};

#[derive(Debug, Clone, Default)]
pub struct Equations {
    /// No left side occurs in any right side. Shared, because every expression that is checked begins with the same ones.
    solved: Arc<BTreeMap<Atom, Dim>>,
}

impl Equations {
    /// `dim` with every solved atom replaced. A dim too large to replace in stays as it was.
    pub fn reduce(&self, dim: &Dim) -> Dim {
        if self.solved.is_empty() {
            return dim.clone();
        }
        if !dim.atoms().any(|atom| self.solved.contains_key(atom)) {
            return dim.clone();
        }
        dim.substitute(&|atom| self.solved.get(atom).cloned()).unwrap_or_else(|_| dim.clone())
    }

    pub fn equal(&self, a: &Dim, b: &Dim) -> bool {
        a == b || self.reduce(a) == self.reduce(b)
    }

    /// Believes `a == b`. An equation that no atom can be solved for (each stands twice, or below the bar) adds nothing.
    pub fn assume(&mut self, a: &Dim, b: &Dim) {
        let Ok(zero) = self.reduce(a).minus(&self.reduce(b)) else { return };
        let Some((atom, value)) = solve(&zero) else { return };
        let solved = Arc::make_mut(&mut self.solved);
        for other in solved.values_mut().filter(|other| other.atoms().any(|a| *a == atom)) {
            let replaced = other.substitute(&|x| (*x == atom).then(|| value.clone()));
            if let Ok(replaced) = replaced {
                *other = replaced;
            }
        }
        solved.insert(atom, value);
    }
}

/// Solves `zero == 0` for the atom that reads best on the left: one that stands alone, with factor 1, and is itself
/// an expression (`len(kinds)`) rather than a name.
fn solve(zero: &Dim) -> Option<(Atom, Dim)> {
    /// Alone in its term, with factor 1, an expression, and the text to make the choice fixed.
    type Rank = (bool, bool, bool, String);
    let mut best: Option<(Rank, Atom, Dim)> = None;
    for (monomial, ratio) in zero.terms() {
        for (atom, power) in monomial.powers() {
            let elsewhere = zero.terms().filter(|(m, _)| m.powers().any(|(a, _)| a == atom)).count() > 1;
            if power != 1 || elsewhere {
                continue;
            }
            let term = Dim::term(monomial.clone(), ratio);
            let alone = Dim::atom(atom.clone());
            let value = (|| term.minus(zero)?.times(&alone)?.over(&term))();
            let Ok(value) = value else { continue };
            let unit = ratio.numerator().abs() == 1 && ratio.denominator() == 1;
            let composite = !atom.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
            let rank = (monomial.powers().count() == 1, unit, composite, atom.text.clone());
            if best.as_ref().is_none_or(|(r, _, _)| *r < rank) {
                best = Some((rank, atom.clone(), value));
            }
        }
    }
    best.map(|(_, atom, value)| (atom, value))
}

#[cfg(test)]
mod tests {
    use crate::{
        dim::{Dim, Equations},
        testing::dim,
    };

    #[test]
    fn an_equation_is_used_both_ways() {
        let mut known = Equations::default();
        let twice = dim("W").times(&Dim::int(2)).unwrap();
        assert!(!known.equal(&twice, &dim("D")));
        known.assume(&twice, &dim("D"));
        assert!(known.equal(&twice, &dim("D")));
        assert!(known.equal(&dim("W"), &dim("D").over(&Dim::int(2)).unwrap()));
    }

    #[test]
    fn equations_chain() {
        let mut known = Equations::default();
        known.assume(&dim("len(axes)"), &dim("width").over(&Dim::int(2)).unwrap());
        known.assume(&dim("width"), &dim("out"));
        known.assume(&dim("out"), &dim("hidden"));
        let twice = dim("len(axes)").times(&Dim::int(2)).unwrap();
        assert!(known.equal(&twice, &dim("hidden")));
        assert!(!known.equal(&twice, &dim("heads")));
    }

    #[test]
    fn a_product_is_solved_for_one_factor() {
        let mut known = Equations::default();
        let product = dim("heads").times(&dim("width")).unwrap();
        known.assume(&product, &dim("hidden"));
        assert!(known.equal(&dim("hidden").over(&dim("heads")).unwrap(), &dim("width")));
    }
}
