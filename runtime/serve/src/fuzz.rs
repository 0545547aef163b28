//! What `.ci/fuzz` feeds with bytes until something breaks; `fuzz/README.md` says what must hold. Tests feed it the corpus.

mod body;
mod events;
mod model;
mod stream;

pub use body::body;
pub use stream::stream;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// The inputs of a target, each with its name.
    fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let read = |entry: fs::DirEntry| (entry.path().display().to_string(), fs::read(entry.path()).expect("a file"));
        let inputs: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| read(entry.expect("one"))).collect();
        assert!(inputs.len() > 10, "{target}: {} inputs", inputs.len());
        inputs
    }

    #[test]
    fn nothing_of_the_corpus_breaks_anything() {
        for (target, run) in [("body", super::body as fn(&[u8])), ("stream", super::stream)] {
            for (name, input) in corpus(target) {
                let ran = std::panic::catch_unwind(|| run(&input));
                assert!(ran.is_ok(), "{name} broke something; what is above says what");
            }
        }
    }
}
