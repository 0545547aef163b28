//! From DOT to a file: as it is, or through Graphviz's `dot`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{Console, files};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// DOT on standard output.
    Console,
    /// DOT in a file.
    Dot(PathBuf),
    /// A picture in a format of Graphviz.
    Picture { path: PathBuf, format: &'static str },
}

/// Endings, and what Graphviz calls the format.
const FORMATS: [(&str, &str); 3] = [("svg", "svg"), ("png", "png"), ("pdf", "pdf")];

impl Output {
    /// By the ending of the name.
    ///
    /// # Errors
    /// An ending that stands for none.
    pub fn of(path: &Path) -> Result<Output> {
        if path.as_os_str() == "-" {
            return Ok(Output::Console);
        }
        let ending = path.extension().map(|end| end.to_string_lossy().to_lowercase()).unwrap_or_default();
        if ending == "dot" || ending == "gv" {
            return Ok(Output::Dot(path.to_owned()));
        }
        match FORMATS.iter().find(|(end, _)| *end == ending) {
            Some((_, format)) => Ok(Output::Picture { path: path.to_owned(), format }),
            None => bail!("{}: the ending says the format, and is one of .svg, .png, .pdf and .dot", path.display()),
        }
    }
}

/// Writes `dot` as `output` asks.
///
/// # Errors
/// Nothing can be written there, or Graphviz is missing or fails.
pub fn draw(dot: &str, output: &Output, console: &mut Console<'_>) -> Result<()> {
    match output {
        Output::Console => console.say(dot),
        Output::Dot(path) => files::write(path, dot.as_bytes()),
        Output::Picture { path, format } => files::write(path, &graphviz(dot, format, path)?),
    }
}

fn graphviz(dot: &str, format: &str, path: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new("dot");
    command.arg(format!("-T{format}")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "Graphviz's `dot` lays the picture out, and is not installed (Debian: apt install graphviz; macOS: brew install \
             graphviz). `-o {}` needs no Graphviz",
            path.with_extension("dot").display()
        ),
        Err(error) => return Err(error).context("starting Graphviz's `dot`"),
    };
    let input = child.stdin.take();
    let (written, output) = std::thread::scope(|scope| {
        // Beside the reading: a picture may be longer than what a pipe holds.
        let writer = scope.spawn(|| input.map_or(Ok(()), |mut input| input.write_all(dot.as_bytes())));
        let output = child.wait_with_output();
        (writer.join(), output)
    });
    let output = output.context("waiting for Graphviz's `dot`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() { "it says nothing more" } else { said.trim() };
        bail!("Graphviz's `dot` failed ({}): {said}", output.status);
    }
    match written {
        Ok(Ok(())) => Ok(output.stdout),
        Ok(Err(error)) => Err(error).context("writing to Graphviz's `dot`"),
        Err(_) => bail!("writing to Graphviz's `dot` was interrupted"),
    }
}
