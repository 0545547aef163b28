//! The bytes of a picture by its address: what a `data:` address holds, or a file in the one folder that the server permits.
//! Nothing is fetched from elsewhere.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use data_url::DataUrl;
use mgraph_runtime::request::{Limits, Picture};
use percent_encoding::percent_decode_str;

use crate::{
    api::{ApiError, chat::Image},
    engine::{Loaded, Place},
};

/// Bytes that a pixel takes while it is decoded: sixteen bits of four channels, as much again for the decoder, and the picture.
const DECODING: usize = 8 + 8 + 3;

/// What pictures may cost, and where files may lie.
#[derive(Debug, Clone)]
pub struct Rules {
    pub limits: Limits,
    /// Of one request.
    pub most: usize,
    /// As the file system names it, links resolved.
    pub folder: Option<PathBuf>,
}

impl Rules {
    /// Reads and decodes the pictures of a request, in order, for as long as there is memory for them and the context holds their
    /// tokens.
    pub fn read(&self, images: &[Image], loaded: &Loaded, place: &mut Place) -> Result<Vec<Picture>, ApiError> {
        if images.len() > self.most {
            let message =
                format!("the request has {} pictures; at most {} are taken (--max-images)", images.len(), self.most);
            return Err(ApiError::invalid(message).of("messages").coded("too_many_images"));
        }
        let (mut pictures, mut tokens) = (Vec::with_capacity(images.len()), 0);
        for image in images {
            let picture = self.one(image, place)?;
            tokens += loaded.requests.tokens_of(&picture);
            loaded.holds(tokens)?;
            pictures.push(picture);
        }
        Ok(pictures)
    }

    fn one(&self, image: &Image, place: &mut Place) -> Result<Picture, ApiError> {
        let refuse =
            |why: String| ApiError::parameter(&image.path, format!("{}: {why}", image.path)).coded("invalid_image");
        let bytes = self.bytes(&image.url).map_err(refuse)?;
        place.hold(bytes.len())?;
        let (width, height) = Picture::size(&bytes, self.limits).map_err(|error| refuse(error.to_string()))?;
        let pixels = width as usize * height as usize;
        let decoding = pixels.saturating_mul(DECODING);
        place.hold(decoding)?;
        let picture = Picture::read(&bytes, self.limits).map_err(|error| refuse(error.to_string()))?;
        place.release((decoding + bytes.len()).saturating_sub(picture.rgb.len()));
        Ok(picture)
    }

    pub(crate) fn bytes(&self, url: &str) -> Result<Vec<u8>, String> {
        match url.split_once(':') {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("data") => self.inline(url),
            Some((scheme, path)) if scheme.eq_ignore_ascii_case("file") => self.file(path),
            Some(_) | None => {
                Err("pictures are sent as `data:image/..;base64,..`; none is fetched from another address".into())
            }
        }
    }

    fn inline(&self, url: &str) -> Result<Vec<u8>, String> {
        // Base64 has four characters for three bytes; percent signs make it longer, never shorter.
        if url.len() / 4 * 3 > self.limits.bytes.saturating_mul(3).saturating_add(1024) {
            return Err(format!(
                "the picture has more than the {} bytes that are taken (--max-image-bytes)",
                self.limits.bytes
            ));
        }
        let parsed = DataUrl::process(url).map_err(|_| "this is no `data:` address with a comma before its content")?;
        if parsed.mime_type().type_ != "image" {
            return Err(format!("the `data:` address is of type {}; expected image/..", parsed.mime_type()));
        }
        let (bytes, _) = parsed.decode_to_vec().map_err(|_| "the content of the `data:` address is no valid base64")?;
        Ok(bytes)
    }

    fn file(&self, path: &str) -> Result<Vec<u8>, String> {
        let Some(folder) = &self.folder else {
            return Err("this server reads no files (--allow-local-files)".into());
        };
        // `file:/a`, `file:///a` and `file://localhost/a` name the same file.
        let path = path.strip_prefix("//").map_or(path, |rest| rest.strip_prefix("localhost").unwrap_or(rest));
        let path = percent_decode_str(path).decode_utf8().map_err(|_| "the path is no UTF-8")?;
        let path = Path::new(path.as_ref());
        if !path.is_absolute() {
            return Err("a `file:` address has an absolute path".into());
        }
        // One sentence for whatever is outside, so that nobody learns what is there.
        let outside = || "there is no such file in the folder that the server reads from".to_owned();
        let real = path.canonicalize().map_err(|_| outside())?;
        if !real.starts_with(folder) {
            return Err(outside());
        }
        // A pipe would never end, and opening one waits: what it is is asked before.
        if !real.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(outside());
        }
        let mut bytes = Vec::new();
        let most = self.limits.bytes as u64 + 1;
        File::open(&real).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(|_| outside())?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use mgraph_runtime::request::Limits;

    use super::Rules;

    fn rules(folder: Option<&std::path::Path>) -> Rules {
        let folder = folder.map(|folder| folder.canonicalize().expect("a folder"));
        Rules { limits: Limits { bytes: 64, pixels: 100 }, most: 2, folder }
    }

    #[test]
    fn only_what_is_inline_is_read_by_default() {
        let cases = [
            ("data:image/png;base64,AAEC", Ok(vec![0, 1, 2])),
            ("DATA:image/png;base64,AAEC", Ok(vec![0, 1, 2])),
            ("data:image/png;base64,A*", Err("no valid base64")),
            ("data:image/png", Err("with a comma")),
            ("data:text/plain,hello", Err("expected image/")),
            ("https://example.org/a.png", Err("none is fetched")),
            ("/etc/passwd", Err("none is fetched")),
            ("file:///etc/passwd", Err("--allow-local-files")),
        ];
        for (url, expected) in cases {
            match (rules(None).bytes(url), expected) {
                (Ok(bytes), Ok(expected)) => assert_eq!(bytes, expected, "{url}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{url}: {why}"),
                (found, expected) => panic!("{url}: {found:?}, expected {expected:?}"),
            }
        }
        let long = format!("data:image/png;base64,{}", "A".repeat(4096));
        assert!(rules(None).bytes(&long).is_err_and(|why| why.contains("--max-image-bytes")));
    }

    #[cfg(unix)]
    #[test]
    fn files_are_read_from_one_folder_alone() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = temp.path().join("in");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(temp.path().join("secret"), "s").expect("written");
        std::fs::write(folder.join("a b.png"), "ab").expect("written");
        std::os::unix::fs::symlink(temp.path().join("secret"), folder.join("link")).expect("a link");
        let rules = rules(Some(&folder));
        let folder = folder.display();
        assert_eq!(rules.bytes(&format!("file://{folder}/a%20b.png")), Ok(b"ab".to_vec()));
        assert_eq!(rules.bytes(&format!("file://localhost{folder}/../in/a b.png")), Ok(b"ab".to_vec()));
        for outside in ["/link", "/../secret", "/%2e%2e/secret", "/none.png", ""] {
            let refused = rules.bytes(&format!("file://{folder}{outside}"));
            assert!(refused.is_err_and(|why| why.starts_with("there is no such file")), "{outside}");
        }
        assert!(rules.bytes("file:a.png").is_err_and(|why| why.contains("absolute")));
    }
}
