//! How small a dim can be, as far as the signs of its terms tell.

use super::{Atom, Dim, Ratio};

impl Dim {
    /// Whether the dim is `bound` or more, whatever its atoms are. `count` says which atoms are 1 or more; nothing is
    /// known of the others. A dim is an integer, so that one above 1/2 is 1 or more.
    pub fn at_least(&self, bound: i64, count: &dyn Fn(&Atom) -> bool) -> bool {
        let mut sum = Ratio::ZERO;
        let mut above = false;
        for (monomial, ratio) in self.terms() {
            let counted = ratio.numerator() > 0 && monomial.powers().all(|(atom, _)| count(atom));
            let constant = monomial.powers().next().is_none();
            if !constant && !counted {
                return false;
            }
            // `a * b` is 1 or more, `a / b` only above 0.
            if monomial.powers().any(|(_, power)| power < 0) {
                above = true;
                continue;
            }
            let Some(more) = sum.plus(ratio) else { return false };
            sum = more;
        }
        let whole = sum.numerator().div_euclid(sum.denominator());
        let least =
            if above || whole * sum.denominator() != sum.numerator() { whole.checked_add(1) } else { Some(whole) };
        least.is_some_and(|least| least >= bound)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        dim::{Atom, Dim},
        testing::dim,
    };

    #[test]
    fn sums_of_sizes_have_a_least_value() {
        let (a, b) = (dim("a"), dim("b"));
        let anything = |_: &Atom| true;
        let cases = [
            (a.clone(), 1),
            (a.plus(&b).unwrap(), 2),
            (a.plus(&Dim::int(-1)).unwrap(), 0),
            (a.over(&b).unwrap(), 1),
            (a.over(&Dim::int(2)).unwrap(), 1),
            (a.times(&b).unwrap().plus(&a.over(&b).unwrap()).unwrap(), 2),
            (Dim::int(-3), -3),
        ];
        for (dim, least) in cases {
            assert!(dim.at_least(least, &anything), "{dim} >= {least}");
            assert!(!dim.at_least(least + 1, &anything), "{dim} >= {}", least + 1);
        }
        assert!(!a.minus(&b).unwrap().at_least(-100, &anything));
        assert!(!a.at_least(0, &|_| false));
    }
}
