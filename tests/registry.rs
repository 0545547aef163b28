//! The registry that the build generates from the folder of families, and the table of the book that is printed from it: who serves
//! which checkpoints, and what each can do. `MGRAPH_BLESS=1` prints the table.

use std::{fs, path::Path};

use mgraph_models::FAMILIES;
use mgraph_runtime::{
    family::{Capabilities, Family},
    import,
    processor::is_built,
    quantization::{BITS, GROUPS},
};

const BEGIN: &str = "<!-- printed: capabilities -->\n";
const END: &str = "<!-- end -->\n";

fn listed<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn quoted(names: &[&str]) -> String {
    listed(&names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>())
}

fn row(family: &Family) -> String {
    let Family { name, model_types, architectures, capabilities, .. } = family;
    let Capabilities { pictures, backends, packed } = capabilities;
    let pictures = match pictures {
        None => String::new(),
        Some(kind) if is_built(*kind) => "yes".into(),
        Some(kind) => format!("graphs; `{}` is not built", kind.name()),
    };
    let packed = if *packed { format!("{} bits, groups of {}", listed(&BITS), listed(&GROUPS)) } else { String::new() };
    let imported = if model_types.contains(&import::MODEL_TYPE) { "yes" } else { "" };
    let (types, architectures) = (quoted(model_types), quoted(architectures));
    format!(
        "| `{name}` | {types} | {architectures} | yes | {pictures} | {} | {packed} | {imported} |",
        listed(backends)
    )
}

#[test]
fn the_book_says_what_each_family_can_do() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/running.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let head = "| family | `model_type` | `architectures` | text | pictures | backends | packed (MLX affine) | GGUF |\n\
                | --- | --- | --- | --- | --- | --- | --- | --- |";
    let rows: Vec<String> = FAMILIES.iter().map(|family| row(family)).collect();
    let fresh = format!("{before}{BEGIN}\n{head}\n{}\n\n{END}{after}", rows.join("\n"));
    if std::env::var_os("MGRAPH_BLESS").is_some() {
        fs::write(&page, fresh).unwrap();
    } else {
        assert!(fresh == text, "book/src/running.md is stale; MGRAPH_BLESS=1 prints it again");
    }
}

/// Whatever lies in the folder is served: the registry forgets no file, and says of each what its text says.
#[test]
fn every_file_of_the_folder_is_in_the_registry() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/families");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let read = Family::of_text(&path.display().to_string(), &text).unwrap();
        let built = FAMILIES.iter().find(|family| family.name == read.name);
        let built = built.unwrap_or_else(|| panic!("{} is not in the registry", path.display()));
        assert_eq!(built.digest, read.digest, "{}", path.display());
        assert_eq!((built.model_types, built.architectures), (read.model_types, read.architectures), "{}", read.name);
        let expected = Capabilities { backends: built.capabilities.backends, ..read.capabilities };
        assert_eq!(built.capabilities, expected, "{}", read.name);
        assert!(!built.architectures.is_empty(), "{} names no architectures", read.name);
        names.push(read.name);
    }
    assert_eq!(names.len(), FAMILIES.len());
}
