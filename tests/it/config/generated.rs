//! The tables of docs/configuration.md that are generated from the lists of keys.

use std::fs;
use std::path::Path;

use tidegate::config;

/// The document with the generated tables between their marks.
fn with_tables(document: &str) -> String {
    let mut document = document.to_owned();
    for block in config::reference() {
        let start = format!("<!-- keys: {} -->\n", block.name);
        let from = document.find(&start).unwrap_or_else(|| panic!("docs/configuration.md has no {start}"));
        let from = from + start.len();
        let to = from + document[from..].find("<!-- end of keys -->").unwrap();
        document.replace_range(from..to, &block.table);
    }
    document
}

/// With `UPDATE=1` in the environment the tables are written instead of compared.
#[test]
fn the_document_has_the_generated_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let generated = with_tables(&document);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, generated).unwrap();
        return;
    }
    assert!(
        document == generated,
        "the tables of docs/configuration.md are not those of the keys in src/config: run `make reference`, and don't edit them by hand"
    );
    let marks = document.matches("<!-- keys: ").count();
    assert_eq!(marks, config::reference().len(), "docs/configuration.md has a table that is not generated");
}
