//! Links lead to files and headings that exist, and the summary names every page.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use super::pages::{Page, pages, root};

/// The contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A path from the root of the repository, without `..`.
fn joined(page: &Page, target: &str) -> String {
    let mut path = PathBuf::new();
    for component in Path::new(&page.path).parent().unwrap().join(target).components() {
        match component {
            Component::ParentDir => assert!(path.pop(), "{}: {target} leaves the repository", page.path),
            component => path.push(component),
        }
    }
    path.display().to_string()
}

/// The file of a link and its anchor; `None` for other sites.
pub(super) fn destination(page: &Page, target: &str) -> Option<(String, Option<String>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let file = if file.is_empty() { page.path.clone() } else { joined(page, file) };
    Some((file, anchor.map(str::to_owned)))
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let pages = pages();
    let anchors: HashMap<&str, Vec<String>> =
        pages.iter().map(|page| (&*page.path, page.anchors())).collect();
    let mut broken = Vec::new();
    for page in &pages {
        for link in page.links() {
            let Some((file, anchor)) = destination(page, &link.target) else { continue };
            let is_there = root().join(&file).is_file();
            let has_anchor = anchor.is_none_or(|anchor| {
                anchors.get(&*file).is_none_or(|all: &Vec<String>| all.contains(&anchor))
            });
            if !is_there || !has_anchor {
                broken.push(format!("{}:{}: {}", page.path, link.line, link.target));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_documented_instructions_are_within_a_tenth_of_the_baseline() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let baseline: serde_json::Value = serde_json::from_str(&read("benches/baseline.json")).unwrap();
    let document = read("docs/performance.md");
    for (name, count) in baseline["instructions"].as_object().unwrap() {
        let (_, cell) =
            document.split_once(&format!("`{name}` | ")).unwrap_or_else(|| panic!("no row for {name}"));
        let documented: u64 = cell.split(' ').next().unwrap().replace(',', "").parse().unwrap();
        let count = count.as_u64().unwrap();
        // The page has the figures of a release, so that only a baseline of one can be compared.
        let is_near = documented.abs_diff(count) * 10 <= count || baseline["profile"] != "release";
        assert!(is_near, "docs/performance.md: {name} takes {count}");
    }
}

#[test]
fn the_summary_names_every_page() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.path == SUMMARY).unwrap();
    let links = summary.links();
    let named: HashSet<String> =
        links.iter().filter_map(|link| Some(destination(summary, &link.target)?.0)).collect();
    let paths = pages.iter().map(|page| &page.path).filter(|path| path.starts_with("docs/"));
    let missing: Vec<_> = paths.filter(|path| *path != SUMMARY && !named.contains(*path)).collect();
    assert!(missing.is_empty(), "{SUMMARY} does not name {missing:?}");
}
