//! What `--input` names: tokens, a text, or a file of inputs.

use std::path::Path;

use crate::{
    error::{Context, Result, bail, ensure},
    model::{MaxPositions, Model},
    parity::Golden,
    tokenizer::Tokenizer,
};

pub struct Given<'a> {
    /// The checkpoint directory, whose tokenizer reads a text.
    pub model: &'a Path,
    pub input: &'a str,
    pub variant: Option<&'a str>,
    /// Greedy steps afterwards, which need positions too.
    pub steps: usize,
}

pub fn open(file: &Path, variant: Option<&str>) -> Result<Golden> {
    let golden = Golden::open(file)?;
    match variant {
        Some(name) => golden.variant(name),
        None => Ok(golden),
    }
}

impl Given<'_> {
    pub fn golden(&self, model: &Model) -> Result<Golden> {
        let input = self.input;
        if input.ends_with(".safetensors") {
            return open(Path::new(input), self.variant);
        }
        ensure!(self.variant.is_none(), "--variant names what a file holds, and --input is none");
        let number = |c: char| c.is_ascii_digit() || c == ',' || c.is_whitespace();
        let (name, tokens) = if input.chars().all(number) {
            let words = input.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
            let ids = words.map(|word| word.parse().with_context(|| format!("--input: {word} is no token id")));
            ("the tokens of --input", ids.collect::<Result<Vec<i32>>>()?)
        } else {
            let ids = Tokenizer::open(self.model)?.encode(input, true)?;
            ("the text of --input", ids.into_iter().map(|id| id as i32).collect())
        };
        ensure!(!tokens.is_empty(), "--input has no tokens: there is nothing to run");
        let needed = tokens.len() + self.steps;
        if let Some(MaxPositions { count, from }) = model.max_positions()?.filter(|most| needed > most.count) {
            bail!(
                "this run needs {needed} positions, but the model was made for {count} ({from}): shorten --input or \
                 lower --steps"
            );
        }
        Ok(Golden::of_tokens(name.to_owned(), &tokens))
    }
}
