//! `--family FILE`: a family as its text stands now, before any code is generated from it.

use std::{fs, path::PathBuf};

use crate::{
    error::{Context, Result},
    family::Family,
};

#[derive(Debug, clap::Args)]
pub struct FamilyFile {
    /// Run the family that this file describes, in the place of those compiled in; on the reference executor
    #[arg(long = "family", value_name = "FILE.mgraph")]
    file: Option<PathBuf>,
}

impl FamilyFile {
    /// The families to choose from.
    pub fn or(&self, compiled: &'static [&'static Family]) -> Result<Vec<&'static Family>> {
        let Some(file) = &self.file else { return Ok(compiled.to_vec()) };
        let text = fs::read_to_string(file).with_context(|| format!("reading the family {}", file.display()))?;
        Ok(vec![Family::of_text(&file.display().to_string(), &text)?])
    }
}
