//! The parity table for people: a line per row, flushed as it is known.

use std::io::{self, Write};

use crate::parity::{Basis, Outcome, Row, Ulps, Verdict, compare::Bound};

pub(super) struct Table {
    /// Of the column of names.
    stage: usize,
}

impl Table {
    pub(super) fn new<'a>(stages: impl Iterator<Item = &'a str>) -> Table {
        Table { stage: stages.map(str::len).max().unwrap_or(0).max(18) }
    }

    pub(super) fn head(&self, out: &mut impl Write) -> io::Result<()> {
        let up_to: Vec<String> = Ulps::UP_TO.iter().map(u64::to_string).collect();
        let ulps = format!("% in {}/+ ulp", up_to.join("/"));
        writeln!(
            out,
            "{:stage$}  verdict   {:>14} {:>8} {:>8} {:>8} {ulps:>22}  worst element, bits here and there; bound",
            "stage",
            "shape",
            "max_abs",
            "rms",
            "rtol",
            stage = self.stage
        )?;
        out.flush()
    }

    pub(super) fn row(&self, out: &mut impl Write, row: &Row) -> io::Result<()> {
        let verdict = match row.verdict() {
            Verdict::Within => "ok",
            Verdict::Diverged => "DIVERGED",
            Verdict::Unjudged => "-",
        };
        write!(out, "{:stage$}  {verdict:8}  ", row.stage, stage = self.stage)?;
        match &row.outcome {
            Outcome::Compared { shape, difference: d, bound, basis } => {
                let (shape, ulps) = (format!("{shape:?}"), d.ulps.as_ref().map_or_else(|| "-".into(), shares));
                write!(out, "{shape:>14} {:>8.1e} {:>8.1e} {:>8.1e} {ulps:>22}", d.max_abs, d.rms, d.max_rel)?;
                match d.worst.as_ref().filter(|_| d.max_abs > 0.0) {
                    Some(worst) => write!(out, "  {:?} {} {}", worst.index, worst.a_bits, worst.b_bits)?,
                    None => write!(out, "  none")?,
                }
                writeln!(out, "; {}", allowed(bound, basis))?;
                if let (Verdict::Diverged, Some(worst)) = (row.verdict(), &d.worst) {
                    writeln!(out, "  {} elements outside; there {:e}, reference {:e}", d.outside, worst.a, worst.b)?;
                }
            }
            Outcome::Mismatch(reason) => writeln!(out, "{reason}")?,
            Outcome::NotProbed => writeln!(out, "the family has no probe of this name")?,
        }
        if let (Verdict::Diverged, Some(source)) = (row.verdict(), &row.source) {
            writeln!(out, "  named at {source}")?;
        }
        if let Some(reason) = &row.kept {
            writeln!(out, "  not isolated from here: {reason}")?;
        }
        out.flush()
    }
}

/// Percentages by distance: 0 is none at all, and nothing else reads 0 or 100.
fn shares(ulps: &Ulps) -> String {
    let all = ulps.counts.iter().sum::<usize>().max(1);
    let percent = |count: &usize| match count * 100 / all {
        0 if *count > 0 => "<1".to_owned(),
        percent => percent.to_string(),
    };
    ulps.counts.iter().map(percent).collect::<Vec<_>>().join("/")
}

fn allowed(bound: &Bound, basis: &Basis) -> String {
    let named = [("max_abs", bound.max_abs), ("rtol", bound.rtol), ("rms", bound.rms)];
    let limits = named.iter().filter_map(|(name, limit)| Some(format!(" {name} {:.1e}", (*limit)?)));
    match basis {
        Basis::Exact | Basis::Absent => basis.to_string(),
        Basis::Noise | Basis::Contract(_) => limits.fold(basis.to_string(), |text, limit| text + &limit),
    }
}

#[cfg(test)]
mod tests {
    use super::shares;
    use crate::{parity::Ulps, tensor::DType};

    #[test]
    fn shares_of_a_histogram() {
        let of = |counts| shares(&Ulps { dtype: DType::F32, counts });
        assert_eq!(of([1000, 0, 0, 0, 0, 1]), "99/0/0/0/0/<1");
        assert_eq!(of([0; 6]), "0/0/0/0/0/0");
    }
}
