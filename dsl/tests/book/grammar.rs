//! The grammar as people read it, from the grammar that the parser is built of: words and marks stand as their text,
//! sequence needs no mark.

const PEST: &str = include_str!("../../src/mgraph.pest");

struct Rule {
    name: String,
    body: String,
}

enum Line {
    Heading(String),
    Comment(String),
    Rule(Rule),
}

/// Every rule on one line, between headings (`// Words.`) and remarks.
fn lines() -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open: Option<Rule> = None;
    for line in PEST.lines().skip_while(|line| line.starts_with("//")) {
        if let Some(rule) = &mut open {
            rule.body += " ";
            rule.body += line.trim();
        } else if let Some(said) = line.strip_prefix("// ") {
            let heading = said.strip_suffix('.').filter(|word| !word.contains(' '));
            lines.push(match heading {
                Some(word) => Line::Heading(word.to_string()),
                None => Line::Comment(said.to_string()),
            });
        } else if let Some((name, body)) = line.split_once('=') {
            open = Some(Rule { name: name.trim().to_string(), body: body.trim().to_string() });
        }
        if let Some(rule) = open.take_if(|rule| rule.body.ends_with('}')) {
            lines.push(Line::Rule(rule));
        }
    }
    assert!(open.is_none(), "a rule without end");
    lines
}

/// The text between the braces.
fn inside(rule: &Rule) -> &str {
    let (_, body) = rule.body.split_once('{').expect("a rule has a body");
    body.strip_suffix('}').expect("a rule ends").trim()
}

/// The literal of a rule that is nothing but one, lookahead aside.
fn literal(rule: &Rule) -> Option<&str> {
    let body = inside(rule);
    let first = body.split(" ~ ").next()?;
    let rest = body.strip_prefix(first)?;
    let alone =
        first.len() > 2 && first.starts_with('"') && first.ends_with('"') && !first[1..first.len() - 1].contains('"');
    (alone && (rest.is_empty() || rest.starts_with(" ~ !"))).then_some(first)
}

fn shown(body: &str, literals: &[(String, String)]) -> String {
    let mut words = Vec::new();
    for word in body.split_whitespace() {
        if matches!(word, "~" | "SOI" | "EOI") {
            continue;
        }
        let name: String = word.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let known = literals.iter().find(|(rule, _)| *rule == name && !word.contains('"'));
        words.push(known.map_or_else(|| word.to_string(), |(rule, text)| word.replacen(rule, text, 1)));
    }
    words.join(" ")
}

pub fn rules() -> String {
    let lines = lines();
    let literals: Vec<(String, String)> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Rule(rule) => literal(rule).map(|text| (rule.name.clone(), text.to_string())),
            Line::Heading(_) | Line::Comment(_) => None,
        })
        .collect();
    let mut out = String::new();
    let mut fenced = false;
    // Said with the rule after it; the rules of words and marks are not shown.
    let mut remark = String::new();
    for line in &lines {
        match line {
            Line::Heading(word) => {
                out += if fenced { "```\n\n" } else { "" };
                out += &format!("## {word}\n\n```text\n");
                fenced = true;
            }
            Line::Rule(rule) if literals.iter().all(|(name, _)| *name != rule.name) => {
                if fenced {
                    out += &std::mem::take(&mut remark);
                    out += &wrapped(&rule.name, &shown(inside(rule), &literals));
                }
            }
            Line::Comment(said) => remark += &format!("// {said}\n"),
            Line::Rule(_) => remark.clear(),
        }
    }
    out + "```\n"
}

/// A rule within the width of a page.
fn wrapped(name: &str, body: &str) -> String {
    let mut out = format!("{name:<15} =");
    let mut column = out.len();
    for word in body.split(' ') {
        if column + word.len() + 1 > 110 {
            out += &format!("\n{:17}", "");
            column = 17;
        }
        out += " ";
        out += word;
        column += word.len() + 1;
    }
    out + "\n"
}

#[test]
fn words_stand_as_their_text() {
    let rules = rules();
    assert!(
        rules.contains("header          = \"family\" name \"for\" string (\"|\" string)* (\"as\" architecture"),
        "{rules}"
    );
    assert!(!rules.contains("kw_") && !rules.contains(" ~ "), "{rules}");
}
