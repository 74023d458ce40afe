//! The documentation as a book: `make docs` builds it without warnings, its links hold, and its pages need no network.

use std::collections::{HashMap, HashSet};
use std::fs;

use regex::Regex;

use super::links::destination;
use super::pages::{Page, pages, root};
use crate::support::command;

#[test]
fn the_book_has_no_warnings_no_broken_links_and_no_requests_to_other_sites() {
    let directory = tempfile::tempdir().unwrap();
    let book = directory.path().join("book");
    let mut make = command("make");
    let output =
        make.arg("docs").arg(format!("BOOK={}", book.display())).current_dir(root()).output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !report.contains("WARN"), "{report}");
    let built = pages().into_iter().filter_map(|page| {
        let path = page.path.replace(".md", ".html");
        Some(Page { text: fs::read_to_string(book.join(&path)).ok()?, path })
    });
    let built: Vec<Page> = built.collect();
    assert!(built.len() > 60, "{} pages", built.len());
    let id = Regex::new(r#" id="([^"]*)""#).unwrap();
    let ids = built.iter().map(|page| {
        let ids = id.captures_iter(&page.text).map(|found| found[1].to_owned());
        (&*page.path, ids.collect::<HashSet<String>>())
    });
    let ids: HashMap<&str, HashSet<String>> = ids.collect();
    let reference = Regex::new(r#"<(\w+)[^>]* (?:href|src)="([^"]*)""#).unwrap();
    let mut broken = Vec::new();
    for page in &built {
        // The script of the book asks the playground which crates it has.
        if page.text.contains("class=\"playground\"") {
            broken.push(format!("{}: play.rust-lang.org", page.path));
        }
        for found in reference.captures_iter(&page.text) {
            // A reader may follow a link to another site; anything else is loaded with the page.
            let holds = match destination(page, &found[2]) {
                None => &found[1] == "a",
                Some((file, anchor)) => {
                    let has = |anchor| ids.get(&*file).is_none_or(|ids| ids.contains(&anchor));
                    book.join(&file).is_file() && anchor.is_none_or(has)
                }
            };
            if !holds {
                broken.push(format!("{}: {}", page.path, &found[2]));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
