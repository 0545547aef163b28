//! Stop strings: what may be the beginning of one is held back, and where one is complete the text is cut before it.
//!
//! The string that is complete first wins, of those the longest; so how the text was split into pieces never matters.

/// Takes text piece by piece and gives out what is final.
#[derive(Debug, Clone)]
pub struct Cutter {
    /// None is empty.
    strings: Vec<String>,
    /// Taken, but not given out: the beginning of some string.
    held: String,
}

/// What became of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Final text, what was held back before included.
    pub text: String,
    /// The string that ended it; nothing may be pushed after that.
    pub stopped_by: Option<String>,
}

impl Cutter {
    pub fn new(strings: &[String]) -> Cutter {
        Cutter { strings: strings.iter().filter(|string| !string.is_empty()).cloned().collect(), held: String::new() }
    }

    pub fn push(&mut self, piece: &str) -> Cut {
        if self.strings.is_empty() {
            return Cut { text: piece.to_owned(), stopped_by: None };
        }
        let mut text = std::mem::take(&mut self.held);
        for character in piece.chars() {
            text.push(character);
            let complete = self.strings.iter().filter(|string| text.ends_with(string.as_str()));
            if let Some(string) = complete.max_by_key(|string| string.len()) {
                text.truncate(text.len() - string.len());
                return Cut { text, stopped_by: Some(string.clone()) };
            }
        }
        let open = self.strings.iter().map(|string| begun(&text, string)).max().unwrap_or(0);
        self.held = text.split_off(text.len() - open);
        Cut { text, stopped_by: None }
    }

    /// What is held back when nothing more comes: it was no stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The length of the longest end of `text` that `string` begins with, less than the whole.
fn begun(text: &str, string: &str) -> usize {
    let longest = text.len().min(string.len() - 1);
    let lengths = (1..=longest).rev().filter(|length| string.is_char_boundary(*length));
    lengths.into_iter().find(|length| text.as_bytes().ends_with(&string.as_bytes()[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Cutter;

    /// Text given out, and the string that ended it.
    fn cut(strings: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let strings: Vec<String> = strings.iter().map(|string| (*string).to_owned()).collect();
        let mut cutter = Cutter::new(&strings);
        let mut text = String::new();
        for piece in pieces {
            let cut = cutter.push(piece);
            text += &cut.text;
            if cut.stopped_by.is_some() {
                return (text, cut.stopped_by);
            }
        }
        (text + &cutter.finish(), None)
    }

    #[test]
    fn cuts() {
        /// Stop strings, pieces, what is given out, what ended it.
        type Case = (&'static [&'static str], &'static [&'static str], &'static str, Option<&'static str>);
        let cases: &[Case] = &[
            (&[], &["ab", "c"], "abc", None),
            (&["END"], &["a E", "N", "D b"], "a ", Some("END")),
            (&["END"], &["EEN", "DEND"], "E", Some("END")),
            (&["END"], &["a EN"], "a EN", None),
            // The first one complete wins over one that began before it.
            (&["abcd", "bc"], &["xabcd"], "xa", Some("bc")),
            // Of two complete at once, the longer.
            (&["c", "abc"], &["xab", "c"], "x", Some("abc")),
            (&["aab"], &["aaa", "ab"], "aa", Some("aab")),
            (&["\n\n"], &["é\n", "\nx"], "é", Some("\n\n")),
            (&["é!"], &["aé", "?"], "aé?", None),
        ];
        for (strings, pieces, text, by) in cases {
            assert_eq!(cut(strings, pieces), ((*text).to_owned(), by.map(str::to_owned)), "{strings:?} {pieces:?}");
        }
    }

    #[test]
    fn only_what_may_become_a_stop_string_is_held_back() {
        let mut cutter = Cutter::new(&["STOP".into()]);
        assert_eq!(cutter.push("a ST").text, "a ");
        assert_eq!(cutter.held.len(), 2);
        assert_eq!(cutter.push("ILL").text, "STILL");
        assert_eq!(cutter.held.len(), 0);
    }

    proptest! {
        #[test]
        fn how_text_is_split_does_not_matter(
            text in "[abé]{0,24}",
            strings in proptest::collection::vec("[abé]{1,4}", 0..4),
            ends in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
            let bounds: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
            let mut ends: Vec<usize> = ends.iter().map(|end| bounds[end.index(bounds.len())]).collect();
            ends.extend([0, text.len()]);
            ends.sort_unstable();
            let pieces: Vec<&str> = ends.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            let whole = cut(&strings, &[&text]);
            prop_assert_eq!(cut(&strings, &pieces), whole.clone());
            for string in &strings {
                prop_assert!(!whole.0.contains(string), "{:?} is left in {:?}", string, whole.0);
            }
        }
    }
}
