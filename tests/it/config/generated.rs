//! What is generated from the keys in src/config: the tables of keys in docs/configuration, and the list of all keys in
//! docs/configuration.md.

use std::fs;

use tidegate::config;

use crate::docs::pages::{Page, anchor, configuration, root};

const INDEX: &str = "docs/configuration.md";

/// Replaces the text between two marks, and returns where it begins; `None` if the page has no such marks.
fn replace(page: &mut Page, start: &str, end: &str, text: &str) -> Option<usize> {
    let from = page.text.find(start)? + start.len();
    let to = from + page.text[from..].find(end)?;
    page.text.replace_range(from..to, text);
    Some(from)
}

/// A link to the last heading before this place, from the index.
fn link_to_heading(page: &Page, at: usize) -> String {
    let heading = page.text[..at].lines().rfind(|line| line.starts_with('#')).unwrap();
    let title = heading.trim_start_matches('#').trim();
    let path = if page.path == INDEX { "" } else { page.path.strip_prefix("docs/").unwrap() };
    format!("[{title}]({path}#{})", anchor(title))
}

/// The pages with their generated parts.
fn generated() -> Vec<Page> {
    let mut pages = configuration();
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for block in config::reference() {
        let start = format!("<!-- keys: {} -->\n", block.name);
        let place = pages.iter_mut().find_map(|page| {
            let at = replace(page, &start, "<!-- end of keys -->", &block.table)?;
            Some(link_to_heading(page, at))
        });
        let link = place.unwrap_or_else(|| panic!("no page of docs/configuration has {start}"));
        let cells = block.table.lines().skip(2).filter_map(|row| row.strip_prefix("| ")?.split_once(" |"));
        let keys = cells.map(|(key, _)| key.to_owned());
        match rows.last_mut().filter(|(last, _)| *last == link) {
            Some((_, before)) => before.extend(keys),
            None => rows.push((link, keys.collect())),
        }
    }
    let rows = rows.iter().map(|(link, keys)| format!("| {link} | {} |\n", keys.join(", ")));
    let list = format!("| described in | keys |\n| --- | --- |\n{}", rows.collect::<String>());
    let index = pages.iter_mut().find(|page| page.path == INDEX).unwrap();
    replace(index, "<!-- list of keys -->\n", "<!-- end of list -->", &list).unwrap();
    pages
}

/// With `UPDATE=1` in the environment the pages are written instead of compared.
#[test]
fn the_pages_have_the_generated_tables() {
    let (current, generated) = (configuration(), generated());
    if std::env::var_os("UPDATE").is_some() {
        for page in generated {
            fs::write(root().join(page.path), page.text).unwrap();
        }
        return;
    }
    for (current, generated) in current.iter().zip(&generated) {
        assert!(
            current.text == generated.text,
            "{} does not have the keys of src/config: run `make reference`, and don't edit its tables by hand",
            current.path
        );
    }
    let marks: usize = current.iter().map(|page| page.text.matches("<!-- keys: ").count()).sum();
    assert_eq!(marks, config::reference().len(), "docs/configuration has a table that is not generated");
}
