//! That the certificate can fail: every mutation of either emitter (`mutations/table.rs`), every small change of any call in
//! what they write, and every small change of the StableHLO itself is caught, while all of it unmutated agrees with the IR.
//! The book lists them; `MGRAPH_BLESS=1` writes the list again.

use std::collections::BTreeMap;

use mgraph_runtime::error::Result;
use mgraph_tests::certificate::{Case, Difference, Emitted, difference};

use crate::{
    mutations::{MUTANTS, SITES},
    page::Row,
    subject::{Models, Subject, subjects},
    table::{Change, Emitter, MUTATIONS},
};

#[path = "mutations/page.rs"]
mod page;
#[path = "mutations/subject.rs"]
mod subject;
#[path = "mutations/switch.rs"]
mod switch;
#[path = "mutations/table.rs"]
mod table;
#[path = "mutations/text.rs"]
mod text;

/// The family with every mutant in it; see `mutations/schemata.rs`.
#[allow(dead_code, unused_parens, clippy::all)]
mod mutants {
    include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
}

/// What `build.rs` put into it.
mod mutations {
    use crate::table::Emitter;

    /// One emitter with one mutation of the table.
    pub struct Mutant {
        pub number: u32,
        /// Index into `MUTATIONS`.
        pub of: usize,
        pub emitter: Emitter,
        pub functions: &'static [&'static str],
    }

    /// One small change at one call.
    pub struct Site {
        pub number: u32,
        pub emitter: Emitter,
        pub function: &'static str,
        pub change: &'static str,
        pub before: &'static str,
        pub after: &'static str,
    }

    include!(concat!(env!("OUT_DIR"), "/mutants_list.rs"));
}

/// What an emitter says in one case.
fn says(emitter: Emitter, case: &Case<'_>) -> Result<Vec<String>> {
    case.of_backend(match emitter {
        Emitter::Hlo => Emitted::Hlo(mutants::FAMILY.hlo),
        Emitter::Mlx => Emitted::Mlx(mutants::FAMILY.mlx),
    })
}

/// Where a mutant was caught first, and by what.
struct Caught<'a> {
    subject: &'a Subject<'a>,
    by: By,
}

enum By {
    Line(Difference),
    /// Nothing could be emitted or read.
    Refusal(String),
}

/// The mutants of one emitter: in which calls each is reached.
struct Reached<'a> {
    emitter: Emitter,
    subjects: BTreeMap<u32, Vec<&'a Subject<'a>>>,
}

impl<'a> Reached<'a> {
    /// By what runs without a mutation, which must be what the IR says.
    fn of(emitter: Emitter, subjects: &'a [Subject<'a>]) -> Reached<'a> {
        let mut reached: BTreeMap<u32, Vec<&Subject<'_>>> = BTreeMap::new();
        for subject in subjects {
            let difference = difference(subject.ir(emitter), &says(emitter, &subject.case).unwrap()).unwrap();
            assert!(difference.is_none(), "{emitter:?} without a mutation, {}: {difference:?}", subject.name);
            for number in switch::take_reached() {
                reached.entry(number).or_default().push(subject);
            }
        }
        Reached { emitter, subjects: reached }
    }

    fn caught(&self, number: u32, name: &str) -> Result<Caught<'a>, String> {
        let Some(subjects) = self.subjects.get(&number) else { return Err(format!("no call reaches {name}")) };
        let caught = subjects.iter().find_map(|subject| {
            let by = match switch::with(number, || says(self.emitter, &subject.case)) {
                Ok(said) => By::Line(difference(subject.ir(self.emitter), &said).unwrap()?),
                Err(error) => By::Refusal(format!("{error:#}")),
            };
            Some(Caught { subject, by })
        });
        caught.ok_or_else(|| format!("{:?}: nobody caught {name}", self.emitter))
    }
}

const EMITTERS: [Emitter; 2] = [Emitter::Mlx, Emitter::Hlo];

/// Casts that MLX makes also where they are not written, between operands of two dtypes: the graph that it executes is the
/// same, so leaving them out is no mutation. Function, call, change.
const PROMOTED: [(&str, &str, &str); 4] = [
    ("prelude::layer_norm", "convert(weight, DType::F32)", "op left out"),
    ("prelude::layer_norm", "convert(bias, DType::F32)", "op left out"),
    ("prelude::rope_table", "convert(&t0, DType::F32)", "op left out"),
    ("prelude::expand", "convert(&t4, F)", "op left out"),
];

/// Changes that the book shows for each emitter, drawn with this seed.
const DRAWN: usize = 12;
const SEED: u64 = 4;

/// Knuth's MMIX generator.
fn draw(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % below
}

/// On one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_mutation_is_caught() {
    let models = Models::open();
    let subjects = subjects(&models);
    let mut rows = Vec::new();
    let mut counts = Vec::new();
    let mut faults = Vec::new();
    for emitter in EMITTERS {
        let reached = Reached::of(emitter, &subjects);
        for mutant in MUTANTS.iter().filter(|mutant| mutant.emitter == emitter) {
            let mutation = &MUTATIONS[mutant.of];
            let functions = mutant.functions.join(", ");
            let change = match mutation.change {
                Change::Source { from, to } | Change::Twin { from, to } => Some((from, to)),
                Change::Emission { mlx, hlo, .. } => match emitter {
                    Emitter::Mlx => mlx,
                    Emitter::Hlo => hlo,
                },
            };
            let name = match change {
                Some((from, "")) => format!("{}: without `{from}`", mutation.name),
                Some((from, to)) => format!("{}: `{}` -> `{}`", mutation.name, line(from), line(to)),
                None => mutation.name.into(),
            };
            match reached.caught(mutant.number, &name) {
                Ok(caught) => rows.push(Row { emitter, name, functions, caught }),
                Err(fault) => faults.push(fault),
            }
        }
        let mut sites = Vec::new();
        for site in SITES.iter().filter(|site| site.emitter == emitter) {
            let name = format!("{}: `{}` -> `{}`", site.change, site.before, site.after);
            let place = (site.function, site.before, site.change);
            match reached.caught(site.number, &format!("{name} in {}", site.function)) {
                Ok(_) if emitter == Emitter::Mlx && PROMOTED.contains(&place) => {
                    faults.push(format!("{place:?} is caught, and `PROMOTED` says otherwise"));
                }
                Err(_) if emitter == Emitter::Mlx && PROMOTED.contains(&place) => {}
                Ok(caught) => sites.push(Row { emitter, name, functions: site.function.into(), caught }),
                Err(fault) => faults.push(fault),
            }
        }
        let refused = sites.iter().filter(|row| matches!(row.caught.by, By::Refusal(_))).count();
        counts.push((emitter, sites.len(), refused));
        let mut state = SEED;
        sites.retain(|row| matches!(row.caught.by, By::Line(..)));
        for _ in 0..DRAWN {
            rows.push(sites.swap_remove(draw(&mut state, sites.len())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    page::is_fresh(&rows, &counts);
}

/// Every change of the text of an emission is caught; of those that look alike, as many as `each` says.
fn text_is_read(subjects: &[Subject<'_>], each: usize) {
    for subject in subjects {
        let emission = subject.case.emission(mutants::FAMILY.hlo).unwrap();
        let mut alike: BTreeMap<String, usize> = BTreeMap::new();
        for text::Changed { what, line, change, text } in text::changes(&emission.text) {
            let count = alike.entry(what.clone()).or_default();
            *count += 1;
            if *count > each {
                continue;
            }
            if let Ok(said) = emission.listing_of(&text()) {
                let caught = difference(subject.ir(Emitter::Hlo), &said).unwrap().is_some();
                assert!(caught, "nobody caught {what}, {}:\n{line}\n{change}", subject.name);
            }
        }
    }
}

#[test]
fn changes_of_the_text_are_caught() {
    let models = Models::open();
    text_is_read(&subjects(&models), 1);
}

#[test]
#[ignore = "some 20,000 changes: minutes"]
fn every_change_of_the_text_is_caught() {
    let models = Models::open();
    text_is_read(&subjects(&models), usize::MAX);
}

/// Both emitters get every mutation that the language can say.
#[test]
fn the_table_is_whole() {
    for (of, mutation) in MUTATIONS.iter().enumerate() {
        let emitters: Vec<Emitter> =
            MUTANTS.iter().filter(|mutant| mutant.of == of).map(|mutant| mutant.emitter).collect();
        let expected = match mutation.change {
            Change::Source { .. } => vec![Emitter::Mlx, Emitter::Hlo],
            Change::Twin { .. } => vec![Emitter::Mlx],
            Change::Emission { mlx, hlo, .. } => {
                let each = [mlx.map(|_| Emitter::Mlx), hlo.map(|_| Emitter::Hlo)];
                each.into_iter().flatten().collect()
            }
        };
        assert_eq!(emitters, expected, "{}", mutation.name);
        if let Change::Emission { function, .. } = mutation.change {
            let mut of = MUTANTS.iter().filter(|mutant| mutant.of == of);
            assert!(of.all(|mutant| mutant.functions == [function]), "{}", mutation.name);
        }
    }
}
