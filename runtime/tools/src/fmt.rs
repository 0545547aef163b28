//! `mlxcel fmt`: family files in the one canonical layout.

use std::path::PathBuf;

use anyhow::{Result, bail};
use mgraph_dsl::{diagnostic::render, format::format};
use similar::TextDiff;

use crate::{
    Console, Verdict,
    check::counted,
    files::{self, Place},
};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Family files, folders with .mgraph files below them, or `-` to format standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Change nothing; print what would change as a diff, and exit with 1 if something would
    #[arg(long)]
    pub check: bool,
}

/// Formats the files, and those behind one that cannot be formatted too.
///
/// # Errors
/// A file that cannot be read, parsed or written; or standard output.
pub fn run(arguments: &Arguments, console: &mut Console<'_>) -> Result<Verdict> {
    let mut failed = Vec::new();
    let (mut count, mut changed) = (0, 0);
    for place in files::places(&arguments.files)? {
        match one(&place, arguments.check, console) {
            Ok(change) => {
                count += 1;
                changed += usize::from(change);
            }
            Err(error) if crate::console::reader_has_left(&error) => return Err(error),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\nerror: "));
    }
    if arguments.check && changed > 0 {
        console.say(format!("{changed} of {} would change\n", counted(count, "file")))?;
        return Ok(Verdict::Found);
    }
    Ok(Verdict::Done)
}

/// Whether the text is, or would be, another one.
fn one(place: &Place, check: bool, console: &mut Console<'_>) -> Result<bool> {
    let text = files::read(place, console)?;
    let formatted = format(&text.name, &text.text).map_err(|failed| {
        let said = render(&failed.diagnostics, &failed.sources, console.color);
        anyhow::anyhow!("{} is not formatted: it does not parse\n\n{said}", text.name)
    })?;
    let change = formatted != text.text;
    match &text.path {
        _ if check => {
            if change {
                let diff = TextDiff::from_lines(&text.text, &formatted);
                let (old, new) = (&text.name, format!("{} (formatted)", text.name));
                console.say(diff.unified_diff().header(old, &new).to_string())?;
            }
        }
        None => console.say(formatted)?,
        Some(path) if change => files::write(path, formatted.as_bytes())?,
        Some(_) => {}
    }
    Ok(change)
}
