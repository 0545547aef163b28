//! The tables of the book's page are printed from the code: routes, flags, what is refused by name. `MGRAPH_BLESS=1` prints them
//! again.

use std::{fs, path::Path};

use mgraph_serve::{api::body::UNSERVED, http::routes, options};

fn unserved() -> String {
    let row =
        |one: &mgraph_serve::api::body::Unserved| format!("| `{}` | `{}` | {} |\n", one.name, one.harmless, one.why);
    let rows: String = UNSERVED.iter().map(row).collect();
    format!("| parameter | taken as | otherwise refused, because |\n| --- | --- | --- |\n{rows}")
}

/// The page with what lies between two comments replaced.
fn with(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n\n"), format!("\n<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
    format!("{before}{begin}{table}{end}{after}")
}

#[test]
fn the_page_is_fresh() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/serving.md");
    let page = fs::read_to_string(&file).expect("the page");
    let tables = [("routes", routes::table()), ("flags", options::page()), ("unserved", unserved())];
    let fresh = tables.iter().fold(page.clone(), |page, (name, table)| with(&page, name, table));
    if std::env::var_os("MGRAPH_BLESS").is_some() {
        fs::write(&file, fresh).expect("written");
    } else {
        assert!(fresh == page, "book/src/serving.md is stale; MGRAPH_BLESS=1 prints it again");
    }
}

#[test]
fn the_document_describes_every_route_and_every_parameter() {
    let document = serde_json::to_value(routes::document()).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), routes::table().lines().count() - 2);
    let schemas = &document["components"]["schemas"];
    let text = schemas.to_string();
    for parameter in
        ["min_p", "stop_token_ids", "max_completion_tokens", "response_format", "tool_choice", "include_usage"]
    {
        assert!(text.contains(&format!("{parameter:?}")), "{parameter}");
    }
    // Whatever is referred to is there.
    let whole = document.to_string();
    for reference in whole.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap_or_default();
        assert!(schemas.get(name).is_some(), "{name} is referred to and not described");
    }
}
