//! What proptest draws: the sizes, the family's dtype, and steps as numbers that the builder reads as choices.

use mgraph_dsl::ir::DType;
use proptest::{collection::vec, prelude::*, strategy::ValueTree};

#[derive(Debug, Clone)]
pub struct Recipe {
    /// Of the free dims.
    pub sizes: Vec<usize>,
    /// What `F` is.
    pub family: DType,
    /// Of the numbers.
    pub seed: u32,
    pub steps: Vec<Step>,
}

/// The kind of a step, and choices.
pub type Step = (u8, [u16; 5]);

/// How many free dims there are.
pub const DIMS: usize = 5;

impl Recipe {
    /// On one line, as [`Recipe::read`] takes it.
    pub fn written(&self) -> String {
        let steps = self.steps.iter().map(|(kind, picks)| {
            let picks: Vec<String> = picks.iter().map(u16::to_string).collect();
            format!("{kind}:{}", picks.join(","))
        });
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        let steps: Vec<String> = steps.collect();
        format!("recipe {} {} {} {}", self.family.name(), sizes.join(","), self.seed, steps.join(" "))
    }

    pub fn read(text: &str) -> Option<Recipe> {
        let mut words = text.strip_prefix("recipe ")?.split(' ');
        let family = super::pool::family(words.next()?)?;
        let sizes = words.next()?.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let seed = words.next()?.parse().ok()?;
        let step = |word: &str| {
            let (kind, picks) = word.split_once(':')?;
            let picks: Vec<u16> = picks.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            Some((kind.parse().ok()?, picks.try_into().ok()?))
        };
        let steps = words.map(step).collect::<Option<_>>()?;
        Some(Recipe { sizes, family, seed, steps })
    }

    /// For a file's name. FNV-1a.
    pub fn digest(&self) -> u64 {
        self.written().bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }
}

pub fn recipes(family: DType) -> impl Strategy<Value = Recipe> {
    let sizes = vec(prop_oneof![1 => Just(0usize), 2 => Just(1), 6 => 2usize..5], DIMS);
    let steps = vec((any::<u8>(), any::<[u16; 5]>()), 3..20);
    (sizes, any::<u32>(), steps).prop_map(move |(sizes, seed, steps)| Recipe { sizes, family, seed, steps })
}

/// How many recipes are tried on the way to a small one.
const TRIES: usize = 200;

/// A small recipe that still fails, or `None` where this one does not.
pub fn shrunk<T: ValueTree<Value = Recipe>>(mut tree: T, mut fails: impl FnMut(&Recipe) -> bool) -> Option<Recipe> {
    let mut least = tree.current();
    if !fails(&least) {
        return None;
    }
    let mut tries = 0;
    while tree.simplify() {
        loop {
            tries += 1;
            if tries > TRIES {
                return Some(least);
            }
            let now = tree.current();
            if fails(&now) {
                least = now;
                break;
            }
            if !tree.complicate() {
                return Some(least);
            }
        }
    }
    Some(least)
}

/// Few of these that still fail together, by leaving out ever smaller parts.
pub fn fewest(mut recipes: Vec<Recipe>, mut fails: impl FnMut(&[Recipe]) -> bool) -> Vec<Recipe> {
    let mut part = recipes.len() / 2;
    while part > 0 {
        let mut at = 0;
        while at < recipes.len() {
            let mut fewer = recipes.clone();
            fewer.drain(at..(at + part).min(recipes.len()));
            if !fewer.is_empty() && fails(&fewer) {
                recipes = fewer;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    recipes
}
