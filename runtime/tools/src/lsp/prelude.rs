//! The prelude as a file, so that an editor can open what a family takes from it. It lies in the user's cache folder,
//! under the digest of its text, and cannot be written.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{LazyLock, OnceLock},
};

use lsp_types::Uri;
use mgraph_dsl::{prelude_sources, source::PRELUDE};

/// A file of this name is read as the prelude.
pub const NAME: &str = "prelude.mgraph";

/// Where the prelude lies. `None` when it cannot be written, which standard error says once.
pub fn uri() -> Option<Uri> {
    static URI: OnceLock<Option<Uri>> = OnceLock::new();
    URI.get_or_init(|| {
        let place = folder().join("mgraph").join(digest()).join(NAME);
        match write(&place) {
            Ok(()) => file_uri(&place).parse().ok(),
            Err(error) => {
                eprintln!("mlxcel lsp: the prelude cannot be shown: {}: {error}", place.display());
                None
            }
        }
    })
    .clone()
}

fn folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    named("XDG_CACHE_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".cache")))
        .or_else(|| named("LOCALAPPDATA"))
        .unwrap_or_else(std::env::temp_dir)
}

pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| prelude_sources().get(PRELUDE).text.clone());
    &TEXT
}

/// FNV-1a: a new text gets a new folder.
fn digest() -> String {
    let hash = text()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}")
}

fn write(place: &Path) -> io::Result<()> {
    let text = text();
    if fs::read_to_string(place).is_ok_and(|found| found == text) {
        return Ok(());
    }
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    // Another server may write the same text at this moment: each moves its own file into place.
    let new = place.with_extension(std::process::id().to_string());
    fs::write(&new, text)?;
    let mut permissions = fs::metadata(&new)?.permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&new, permissions)?;
    fs::rename(&new, place)
}

/// Every byte that is not plain in a path is escaped.
fn file_uri(place: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in place.to_string_lossy().replace('\\', "/").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => uri.push(byte as char),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prelude_is_a_file_an_editor_can_open() {
        assert_eq!(file_uri(Path::new("/home/a b/é")), "file:///home/a%20b/%C3%A9");
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path().join("deep").join(NAME);
        for _ in 0..2 {
            write(&place).unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap(), text());
        }
    }
}
