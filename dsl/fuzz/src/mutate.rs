//! Mutations that keep a text close to the language: whole tokens, lines and bracketed groups move, and what comes in was
//! seen in some text of the repository. Single bytes are left to libFuzzer.

use std::ops::Range;

use libfuzzer_sys::fuzzer_mutate;

use crate::texts::DONORS;

const NUMBERS: &[&str] =
    &["0", "1", "2", "3", "-1", "64", "1.0", "0.5", "1e-6", "1e308", "9223372036854775807", "4294967296"];
const MARKS: &[&str] = &[
    "+", "-", "*", "/", "%", "&", "|", "==", "!=", "<", "<=", ">", ">=", "<<", ">>", "in", ",", ";", ":", "=", "->",
    "..", "@", "!", ".", "(", ")", "[", "]", "{", "}", "_",
];

/// One byte in so many is changed blindly instead.
const BLIND: usize = 6;

/// Changes `data[..size]` in place; the new size.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Random(u64::from(seed) + 1);
    if random.below(BLIND) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut text = String::from_utf8_lossy(&data[..size]).into_owned();
    for _ in 0..=random.below(3) {
        text = once(&text, &mut random);
    }
    let mut end = text.len().min(max_size);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    data[..end].copy_from_slice(&text.as_bytes()[..end]);
    end
}

fn once(text: &str, random: &mut Random) -> String {
    let tokens = tokens(text);
    let donors = &*DONORS;
    if tokens.is_empty() {
        return random.pick(&donors.texts).clone();
    }
    let at = random.below(tokens.len());
    match random.below(12) {
        0 => replaced(text, run(&tokens, at, 1 + random.below(6)), ""),
        1 => {
            let from = run(&tokens, random.below(tokens.len()), 1 + random.below(8));
            inserted(text, tokens[at].start, &text[from])
        }
        2 => {
            let other = random.below(tokens.len());
            if other == at {
                return text.to_owned();
            }
            let (first, second) = (tokens[at.min(other)].clone(), tokens[at.max(other)].clone());
            let (a, b) = (&text[first.clone()], &text[second.clone()]);
            format!("{}{b}{}{a}{}", &text[..first.start], &text[first.end..second.start], &text[second.end..])
        }
        3 => {
            let words: Vec<_> = tokens.iter().filter(|token| is_word(&text[(*token).clone()])).cloned().collect();
            if words.is_empty() {
                return text.to_owned();
            }
            let new = random.pick(&words).clone();
            replaced(text, random.pick(&words).clone(), &text[new])
        }
        4 => replaced(text, tokens[at].clone(), random.pick::<String>(&donors.words)),
        5 => replaced(text, tokens[at].clone(), random.one(NUMBERS)),
        6 => replaced(text, tokens[at].clone(), random.one(MARKS)),
        7 => inserted(text, tokens[at].start, random.one(MARKS)),
        8 => {
            let start = text[..tokens[at].start].rfind('\n').map_or(0, |end| end + 1);
            inserted(text, start, &format!("{}\n", random.pick(&donors.lines)))
        }
        9 => {
            let start = text[..tokens[at].start].rfind('\n').map_or(0, |end| end + 1);
            let mut end = start;
            for _ in 0..=random.below(3) {
                end = text[end..].find('\n').map_or(text.len(), |length| end + length + 1);
            }
            replaced(text, start..end, "")
        }
        _ => {
            let Some(here) = group(text, &tokens, random) else { return text.to_owned() };
            match random.below(2) {
                0 => match group(text, &tokens, random) {
                    Some(there) => replaced(text, here, &text[there]),
                    None => text.to_owned(),
                },
                _ => replaced(text, here, random.pick::<String>(&donors.groups)),
            }
        }
    }
}

fn replaced(text: &str, place: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..place.start], &text[place.end..])
}

fn inserted(text: &str, at: usize, what: &str) -> String {
    format!("{}{what} {}", &text[..at], &text[at..])
}

fn run(tokens: &[Range<usize>], at: usize, length: usize) -> Range<usize> {
    tokens[at].start..tokens[(at + length - 1).min(tokens.len() - 1)].end
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// A bracketed part, brackets included, that begins somewhere near a random place.
fn group(text: &str, tokens: &[Range<usize>], random: &mut Random) -> Option<Range<usize>> {
    let opens = |token: &&Range<usize>| matches!(&text[(*token).clone()], "(" | "[" | "{");
    let tokens = &tokens[random.below(tokens.len())..];
    let open = tokens.iter().position(|token| opens(&token))?;
    closed(text, &tokens[open..])
}

/// Every bracketed part of a text that is not too long.
pub fn groups(text: &str) -> Vec<&str> {
    let tokens = tokens(text);
    let groups = (0..tokens.len()).filter(|at| matches!(&text[tokens[*at].clone()], "(" | "[" | "{"));
    let groups = groups.filter_map(|at| closed(text, &tokens[at..tokens.len().min(at + 200)]));
    groups.map(|place| &text[place]).collect()
}

/// From the bracket that `tokens` begin with to its partner.
fn closed(text: &str, tokens: &[Range<usize>]) -> Option<Range<usize>> {
    let open = tokens.first()?;
    let mut depth = 0usize;
    for token in tokens {
        match &text[token.clone()] {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(open.start..token.end);
        }
    }
    None
}

/// Words, numbers, strings and single marks; blanks and line comments belong to none.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let at = text.len() - rest.len();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            c if c.is_whitespace() => c.len_utf8(),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => rest[1..].find(['"', '\n']).map_or(rest.len(), |end| end + 2),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        if !first.is_whitespace() && !rest.starts_with("//") {
            tokens.push(at..at + length);
        }
        rest = &rest[length..];
    }
    tokens
}

/// SplitMix64: the same seed, the same mutation.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }
}
