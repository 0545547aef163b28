//! `--limit NAME=N`, the same for every command that opens a checkpoint: a family's deployment knobs.

use crate::error::{Result, bail};

#[derive(Debug, clap::Args)]
pub struct Limits {
    /// Set a limit of the family, such as `pictures=2`; may be repeated [default: as the family says]
    #[arg(long = "limit", value_name = "NAME=N", value_parser = one)]
    limits: Vec<(String, i64)>,
}

impl Limits {
    /// By dotted name, each once. Which there are, only the family knows: an unknown one is refused when it is opened.
    pub fn given(&self) -> Result<&[(String, i64)]> {
        for (at, (name, _)) in self.limits.iter().enumerate() {
            if self.limits[..at].iter().any(|(other, _)| other == name) {
                bail!("--limit {name} is given twice");
            }
        }
        Ok(&self.limits)
    }
}

fn one(text: &str) -> std::result::Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=N, such as pictures=2")?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is no whole number; expected NAME=N"))?;
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::{Limits, one};

    #[test]
    fn names_and_numbers() {
        assert_eq!(one("pictures=2"), Ok(("pictures".into(), 2)));
        assert_eq!(one("vit.tiles = 4"), Ok(("vit.tiles".into(), 4)));
        for wrong in ["pictures", "pictures=", "pictures=two", "pictures=1.5"] {
            assert!(one(wrong).is_err(), "{wrong}");
        }
        let twice = Limits { limits: vec![("pictures".into(), 2), ("pictures".into(), 2)] };
        assert!(twice.given().is_err());
    }
}
