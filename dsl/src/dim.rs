//! Dims: polynomials over named sizes, with rational coefficients and whole powers that may be negative, so that
//! `hidden / heads * heads` is `hidden`. Two dims are equal when their normal forms are.

mod equations;
mod sign;

use std::{cmp::Ordering, collections::BTreeMap, fmt, hash};

pub use equations::Equations;

use crate::ir::Load;

/// A size that has a name: a config field, a load parameter, a free dim, or any other load integer, known by its text.
#[derive(Debug, Clone)]
pub struct Atom {
    pub text: String,
    /// How to compute it.
    pub load: Box<Load>,
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for Atom {}
impl hash::Hash for Atom {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}
impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// No size is a higher power of another.
const MAX_POWER: i32 = 64;
/// Letters in the text of a dim.
const MAX_TEXT: usize = 10_000;

/// A fraction in lowest terms, denominator positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    numerator: i64,
    denominator: i64,
}

impl Ratio {
    pub const ZERO: Ratio = Ratio { numerator: 0, denominator: 1 };

    /// `None` for a zero denominator or where 64 bits do not hold the result, as all arithmetic here.
    pub fn new(numerator: i64, denominator: i64) -> Option<Ratio> {
        fn gcd(a: i64, b: i64) -> i64 {
            if b == 0 { a } else { gcd(b, a % b) }
        }
        if denominator == 0 || numerator == i64::MIN || denominator == i64::MIN {
            return None;
        }
        let g = gcd(numerator.abs(), denominator.abs()).max(1) * denominator.signum();
        Some(Ratio { numerator: numerator / g, denominator: denominator / g })
    }

    pub fn numerator(self) -> i64 {
        self.numerator
    }

    pub fn denominator(self) -> i64 {
        self.denominator
    }

    fn plus(self, o: Ratio) -> Option<Ratio> {
        let left = self.numerator.checked_mul(o.denominator)?;
        let right = o.numerator.checked_mul(self.denominator)?;
        Ratio::new(left.checked_add(right)?, self.denominator.checked_mul(o.denominator)?)
    }

    fn times(self, o: Ratio) -> Option<Ratio> {
        Ratio::new(self.numerator.checked_mul(o.numerator)?, self.denominator.checked_mul(o.denominator)?)
    }
}

/// A product of atoms with whole powers; none is zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Monomial(BTreeMap<Atom, i32>);

impl Monomial {
    pub fn powers(&self) -> impl Iterator<Item = (&Atom, i32)> {
        self.0.iter().map(|(a, p)| (a, *p))
    }

    /// `None` where a power grows beyond all sense.
    fn times(&self, other: &Monomial, sign: i32) -> Option<Monomial> {
        let mut product = self.0.clone();
        for (atom, power) in &other.0 {
            let entry = product.entry(atom.clone()).or_insert(0);
            *entry += sign * power;
            match *entry {
                0 => drop(product.remove(atom)),
                power if power.abs() > MAX_POWER => return None,
                _ => {}
            }
        }
        Some(Monomial(product))
    }
}

/// A sum of terms; none is zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Dim {
    terms: BTreeMap<Monomial, Ratio>,
}

/// Why a dim could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimError {
    /// Division by a sum of several terms.
    DivisionBySum,
    DivisionByZero,
    /// A coefficient left 64 bits, or the terms became too many.
    Overflow,
}

impl Dim {
    pub fn int(n: i64) -> Dim {
        let ratio = Ratio { numerator: n, denominator: 1 };
        Dim { terms: if n == 0 { BTreeMap::new() } else { [(Monomial::default(), ratio)].into() } }
    }

    pub fn atom(atom: Atom) -> Dim {
        let one = Ratio { numerator: 1, denominator: 1 };
        Dim { terms: [(Monomial([(atom, 1)].into()), one)].into() }
    }

    pub fn term(monomial: Monomial, ratio: Ratio) -> Dim {
        Dim { terms: if ratio == Ratio::ZERO { BTreeMap::new() } else { [(monomial, ratio)].into() } }
    }

    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Result<Dim, DimError> {
        dims.into_iter().try_fold(Dim::int(1), |product, dim| product.times(dim))
    }

    /// Literally 1: such an axis broadcasts.
    pub fn is_one(&self) -> bool {
        self.as_int() == Some(1)
    }

    /// The literal integer this dim is, if it is one. Only a dim for which this is `Some(1)` broadcasts.
    pub fn as_int(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => {
                let (monomial, ratio) = self.terms.first_key_value()?;
                (monomial.0.is_empty() && ratio.denominator == 1).then_some(ratio.numerator)
            }
            _ => None,
        }
    }

    /// The atom this dim is, if it stands alone.
    pub fn as_atom(&self) -> Option<&Atom> {
        let (monomial, ratio) = self.terms.first_key_value()?;
        let (atom, power) = monomial.0.first_key_value()?;
        let alone = self.terms.len() == 1 && monomial.0.len() == 1 && *power == 1;
        (alone && *ratio == Ratio { numerator: 1, denominator: 1 }).then_some(atom)
    }

    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, Ratio)> {
        self.terms.iter().map(|(m, r)| (m, *r))
    }

    pub fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.terms.keys().flat_map(|m| m.0.keys())
    }

    fn collect(terms: impl IntoIterator<Item = (Option<Monomial>, Option<Ratio>)>) -> Result<Dim, DimError> {
        let mut sum = BTreeMap::new();
        for (monomial, ratio) in terms {
            let (monomial, ratio) = monomial.zip(ratio).ok_or(DimError::Overflow)?;
            let entry = sum.entry(monomial).or_insert(Ratio::ZERO);
            *entry = entry.plus(ratio).ok_or(DimError::Overflow)?;
        }
        sum.retain(|_, r| *r != Ratio::ZERO);
        Ok(Dim { terms: sum })
    }

    pub fn plus(&self, other: &Dim) -> Result<Dim, DimError> {
        let both = self.terms.iter().chain(&other.terms);
        Dim::collect(both.map(|(m, r)| (Some(m.clone()), Some(*r))))
    }

    pub fn minus(&self, other: &Dim) -> Result<Dim, DimError> {
        self.plus(&other.times(&Dim::int(-1))?)
    }

    pub fn times(&self, other: &Dim) -> Result<Dim, DimError> {
        // A shape has a handful of terms; products of products would grow without end.
        if self.terms.len() * other.terms.len() > 1024 {
            return Err(DimError::Overflow);
        }
        Dim::collect(
            self.terms.iter().flat_map(|(m, r)| other.terms.iter().map(move |(n, s)| (m.times(n, 1), r.times(*s)))),
        )
    }

    pub fn over(&self, other: &Dim) -> Result<Dim, DimError> {
        let (below, ratio) = match other.terms.len() {
            0 => return Err(DimError::DivisionByZero),
            1 => other.terms.first_key_value().ok_or(DimError::DivisionByZero)?,
            _ => return Err(DimError::DivisionBySum),
        };
        let inverse = Ratio::new(ratio.denominator, ratio.numerator).ok_or(DimError::Overflow)?;
        Dim::collect(self.terms.iter().map(|(m, r)| (m.times(below, -1), r.times(inverse))))
    }

    /// The dim, unless its text is beyond what anyone reads: an expression in an expression, over many calls, doubles each time.
    pub fn bounded(self) -> Result<Dim, DimError> {
        let length: usize = self.atoms().map(|atom| atom.text.len() + 1).sum();
        if length <= MAX_TEXT { Ok(self) } else { Err(DimError::Overflow) }
    }

    /// Replace atoms. An atom with a negative power may only become a single term.
    pub fn substitute(&self, with: &dyn Fn(&Atom) -> Option<Dim>) -> Result<Dim, DimError> {
        let mut sum = Dim::default();
        for (monomial, ratio) in &self.terms {
            let mut term = Dim { terms: [(Monomial::default(), *ratio)].into() };
            for (atom, power) in &monomial.0 {
                let factor = with(atom).unwrap_or_else(|| Dim::atom(atom.clone()));
                for _ in 0..power.unsigned_abs() {
                    term = if *power > 0 { term.times(&factor)? } else { term.over(&factor)? };
                }
            }
            sum = sum.plus(&term)?;
        }
        Ok(sum)
    }

    /// Numerator and denominator without negative powers or fractions: how generated code computes the dim, division last.
    pub fn as_fraction(&self) -> Result<(Dim, Dim), DimError> {
        let mut below = Monomial::default();
        let mut scale: i64 = 1;
        for (monomial, ratio) in &self.terms {
            for (atom, power) in &monomial.0 {
                if *power < 0 {
                    let entry = below.0.entry(atom.clone()).or_insert(0);
                    *entry = (*entry).max(-power);
                }
            }
            let step = Ratio::new(ratio.denominator, scale).ok_or(DimError::Overflow)?;
            scale = scale.checked_mul(step.numerator).ok_or(DimError::Overflow)?;
        }
        let denominator = Dim { terms: [(below, Ratio { numerator: scale, denominator: 1 })].into() };
        Ok((self.times(&denominator)?, denominator))
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        for (i, (monomial, ratio)) in self.terms.iter().enumerate() {
            let negative = ratio.numerator < 0;
            match (i, negative) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let mut above: Vec<String> = Vec::new();
            let mut below: Vec<String> = Vec::new();
            for (atom, power) in &monomial.0 {
                let side = if *power > 0 { &mut above } else { &mut below };
                side.extend(std::iter::repeat_n(atom.text.clone(), power.unsigned_abs() as usize));
            }
            let number = ratio.numerator.abs();
            if number != 1 || above.is_empty() {
                above.insert(0, number.to_string());
            }
            if ratio.denominator != 1 {
                below.push(ratio.denominator.to_string());
            }
            f.write_str(&above.join(" * "))?;
            for divisor in below {
                write!(f, " / {divisor}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::dim;

    #[test]
    fn division_is_exact() {
        let (hidden, heads) = (dim("hidden"), dim("heads"));
        assert_eq!(hidden.over(&heads).unwrap().times(&heads).unwrap(), hidden);
        let half = hidden.over(&Dim::int(2)).unwrap();
        assert_eq!(half.plus(&half).unwrap(), hidden);
        assert!(hidden.over(&hidden).unwrap().is_one());
    }

    #[test]
    fn sums_and_products_have_one_form() {
        let (a, b) = (dim("a"), dim("b"));
        let sum = a.plus(&b).unwrap();
        let square = sum.times(&sum).unwrap();
        assert_eq!(square.to_string(), "2 * a * b + a * a + b * b");
        assert_eq!(sum.minus(&b).unwrap(), a);
        assert_eq!(a.minus(&a).unwrap().as_int(), Some(0));
    }

    #[test]
    fn only_one_term_stands_below_the_bar() {
        let (a, b) = (dim("a"), dim("b"));
        let sum = a.plus(&Dim::int(1)).unwrap();
        assert_eq!(b.over(&sum), Err(DimError::DivisionBySum));
        assert_eq!(b.over(&Dim::int(0)), Err(DimError::DivisionByZero));
    }

    #[test]
    fn a_fraction_divides_last() {
        let codes = dim("K").times(&dim("bits")).unwrap().over(&Dim::int(32)).unwrap();
        let (above, below) = codes.as_fraction().unwrap();
        assert_eq!((above.to_string(), below.to_string()), ("K * bits".into(), "32".into()));
    }

    #[test]
    fn products_of_products_do_not_grow_without_end() {
        let mut grows = dim("a").plus(&dim("b")).unwrap();
        let end = (0..40).find_map(|i| {
            let wider = grows.plus(&dim(&format!("c{i}"))).ok()?;
            match grows.times(&wider) {
                Ok(product) => {
                    grows = product;
                    None
                }
                Err(error) => Some(error),
            }
        });
        assert_eq!(end, Some(DimError::Overflow));
    }

    #[test]
    fn substitution_keeps_the_normal_form() {
        let sum = dim("N").times(&dim("W")).unwrap();
        let replaced = sum.substitute(&|atom| (atom.text == "W").then(|| dim("D").over(&Dim::int(2)).unwrap()));
        assert_eq!(replaced.unwrap().to_string(), "D * N / 2");
    }
}
