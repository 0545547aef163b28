//! The grammar of `examples/editor` knows the words of the language: none is missing, and none is left over.

use std::{collections::BTreeSet, path::Path};

use mgraph_dsl::{analysis::load_functions, ops, parser::RESERVED};
use serde_json::Value;

/// The words of `(a|b|c)` in the patterns with one of `scopes`.
fn words(grammar: &Value, scopes: &[&str], words_of: &mut BTreeSet<String>) {
    match grammar {
        Value::Object(object) => {
            if let (Some(scope), Some(pattern)) = (object.get("name"), object.get("match"))
                && scopes.iter().any(|s| *scope == format!("{s}.mgraph"))
                && let Some((_, rest)) = pattern.as_str().unwrap_or_default().split_once('(')
                && let Some((list, _)) = rest.split_once(')')
            {
                words_of.extend(list.split('|').map(str::to_string));
            }
            object.values().for_each(|value| words(value, scopes, words_of));
        }
        Value::Array(items) => items.iter().for_each(|value| words(value, scopes, words_of)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_grammar_has_the_words_of_the_language() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/editor/mgraph.tmLanguage.json");
    let grammar: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let in_grammar = |scopes: &[&str]| {
        let mut found = BTreeSet::new();
        words(&grammar, scopes, &mut found);
        found
    };
    let types = in_grammar(&["support.type"]);
    let reserved: BTreeSet<String> = RESERVED.iter().map(|w| w.to_string()).collect();
    let mut keywords = in_grammar(&["keyword.declaration", "keyword.control", "constant.language"]);
    keywords.extend(types.iter().filter(|word| reserved.contains(*word)).cloned());
    assert_eq!(keywords, reserved);

    let functions = ops::primitives().map(|p| p.name).chain(load_functions());
    let functions: BTreeSet<String> = functions.map(str::to_string).filter(|name| !types.contains(name)).collect();
    assert_eq!(in_grammar(&["support.function"]), functions);
}
