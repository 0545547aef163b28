//! The pages of the error codes: prose, then examples. A page is Markdown; ```` ```mgraph wrong ```` opens a text with
//! exactly that mistake, ```` ```mgraph right ```` the same text put right. What a family needs besides, and an example
//! leaves out, is added before it is compiled: header (but for a text marked `headless`), config and model.

use super::Code;

/// A wrong text, and how it is put right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub wrong: Snippet,
    pub right: Option<Snippet>,
}

/// Part of a family, as a page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snippet {
    text: &'static str,
    headless: bool,
}

const HEADER: &str = "family toy for \"toy\"\n\n";
const CONFIG: &str = "config {\n    vocab:  dim = \"vocab_size\"\n    hidden: dim = \"hidden_size\"\n}\n";
const MODEL: &str = "\
model {
    table: Embedding(vocab, hidden)

    graph embed(tokens: i32[B, S]) -> F[B, S, hidden] { table(tokens) }
    graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        table.logits(rows_at(x, wanted))
    }
}
";

impl Snippet {
    /// What the page shows.
    pub fn shown(&self) -> &'static str {
        self.text
    }

    /// The family around it.
    pub fn whole(&self) -> String {
        let has = |word: &str| self.text.lines().any(|line| line.starts_with(word));
        let header = if self.headless || has("family ") { "" } else { HEADER };
        let mut text = format!("{header}{}", self.text);
        for (word, part) in [("config ", CONFIG), ("model ", MODEL)] {
            if !has(word) {
                text.push_str("\n\n");
                text.push_str(part);
            }
        }
        text
    }
}

impl Code {
    /// What the code means and what to do about it, in prose of short lines.
    pub fn explanation(self) -> &'static str {
        let page = self.page();
        page.find("\n```").map_or(page, |end| &page[..end]).trim_end()
    }

    /// The examples of the page, in order.
    pub fn examples(self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        let mut rest = self.page();
        while let Some((_, fence)) = rest.split_once("```mgraph ") {
            let Some((words, code)) = fence.split_once('\n') else { break };
            let Some((text, after)) = code.split_once("```") else { break };
            let snippet = Snippet { text, headless: words.ends_with(" headless") };
            match (words.starts_with("right"), examples.last_mut()) {
                (true, Some(example)) => example.right = Some(snippet),
                (true, None) | (false, _) => examples.push(Example { wrong: snippet, right: None }),
            }
            rest = after;
        }
        examples
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::compile_text;

    /// Mistakes that no short text can show, or that only a checkpoint has.
    const WITHOUT_EXAMPLE: [Code; 4] =
        [Code::NestedTooDeep, Code::FileTooLarge, Code::ConfigField, Code::RequireFailed];

    #[test]
    fn every_code_has_a_page_with_an_example() {
        for &code in Code::ALL {
            assert!(code.explanation().ends_with('.'), "{code} has no explanation");
            assert_eq!(code.examples().is_empty(), WITHOUT_EXAMPLE.contains(&code), "{code}");
        }
    }

    #[test]
    fn wrong_examples_have_their_mistake_alone() {
        let mut other = String::new();
        for &code in Code::ALL {
            for Example { wrong, .. } in code.examples() {
                let failed = compile_text("example.mgraph", &wrong.whole()).err();
                let codes: BTreeSet<Code> = failed.iter().flat_map(|f| &f.diagnostics).map(|d| d.code).collect();
                if codes != BTreeSet::from([code]) {
                    let said = failed.map_or_else(String::new, |failed| failed.to_string());
                    other += &format!("---- {code} has {codes:?}\n{said}");
                }
            }
        }
        assert!(other.is_empty(), "{other}");
    }

    #[test]
    fn right_examples_compile() {
        let mut wrong = String::new();
        for &code in Code::ALL {
            for right in code.examples().into_iter().filter_map(|example| example.right) {
                if let Err(failed) = compile_text("example.mgraph", &right.whole()) {
                    wrong += &format!("---- {code}\n{failed}");
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
    }
}
