//! `mlxcel explain`: the page of an error code, with a wrong text, what is said about it, and the text put right.

use std::fmt::Write;

use anyhow::{Result, bail};
use mgraph_dsl::diagnostic::{Code, Example, render};

use crate::{Console, Verdict};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// An error code: mg0301, mg301 or 301. Without one, all codes are listed
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

/// Writes the page, or the list.
///
/// # Errors
/// There is no such code.
pub fn run(arguments: &Arguments, console: &mut Console<'_>) -> Result<Verdict> {
    let page = match &arguments.code {
        None => list(),
        Some(written) => page(find(written)?, console.color),
    };
    console.say(page)?;
    Ok(Verdict::Done)
}

fn find(written: &str) -> Result<Code> {
    let lower = written.trim().to_lowercase();
    let digits = lower.strip_prefix("mg").unwrap_or(&lower);
    let number = digits.parse::<u16>().ok();
    if let Some(code) = number.and_then(|number| Code::ALL.iter().find(|code| **code as u16 == number)) {
        return Ok(*code);
    }
    let Some(number) = number else {
        bail!("{written:?} is no error code: they look like mg0301; `mlxcel explain` alone lists them");
    };
    let near: Vec<String> = Code::ALL
        .iter()
        .filter(|code| **code as u16 / 100 == number / 100)
        .map(|code| format!("\n  {code}  {}", code.title()))
        .collect();
    if near.is_empty() {
        bail!("there is no error code mg{number:04}; `mlxcel explain` alone lists all codes");
    }
    bail!("there is no error code mg{number:04}. Its group has:{}", near.concat())
}

fn list() -> String {
    let mut text = String::new();
    let mut group = None;
    for code in Code::ALL {
        if group != Some(code.group()) {
            if group.is_some() {
                text.push('\n');
            }
            group = Some(code.group());
            // A `String` takes everything that is written to it, here and below.
            let _ = writeln!(text, "{}", code.group());
        }
        let _ = writeln!(text, "  {code}  {}", code.title());
    }
    text
}

fn page(code: Code, color: bool) -> String {
    let mut text = format!("{code}: {}\n\n{}\n", code.title(), wrapped(code.explanation()));
    for Example { wrong, right } in code.examples() {
        let said = match mgraph_dsl::compile_text("example.mgraph", &wrong.whole()) {
            Ok(_) => String::new(),
            Err(failed) => render(&failed.diagnostics, &failed.sources, color),
        };
        let _ = write!(text, "\nWrong:\n\n{}\n{said}", indented(wrong.shown()));
        if let Some(right) = right {
            let _ = write!(text, "\nRight:\n\n{}", indented(right.shown()));
        }
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
}

/// Paragraphs as the page has them; their lines are already short.
fn wrapped(text: &str) -> &str {
    text.trim_end()
}
