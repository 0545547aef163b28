//! The page of the book about the language knows every primitive of the table.

use mgraph_dsl::ops::primitives;

#[test]
fn every_primitive_stands_in_the_book() {
    let table = include_str!("../../book/src/language/primitives.md");
    let said = |word: &str| table.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word);
    let missing: Vec<&str> = primitives().map(|p| p.name).filter(|name| !said(name)).collect();
    assert!(missing.is_empty(), "the table of primitives lacks {missing:?}");
}
