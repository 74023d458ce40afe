//! Requirements of HTTP and WebSocket are cited where the code keeps them (`RFC 9112 §6.3`), and at a test of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::files::{files_below, sources};

/// HTTP semantics, HTTP/1.1, HTTP/2, and WebSocket over both.
const RFCS: [&str; 5] = ["9110", "9112", "9113", "6455", "8441"];

/// The cited sections that no test cites. The list only gets shorter.
const UNTESTED: &[&str] = &["9110 §15.2", "9110 §5.1", "9110 §5.6.3", "9112 §9.6"];

/// The cited sections of these RFCs, such as `9112 §6.3`. One number of an RFC may have several sections.
fn citations(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for citation in text.split("RFC ").skip(1) {
        let Some((number, rest)) = citation.split_once(' ') else { continue };
        // Further sections follow after a comma or an "and".
        let end = rest.find(|c: char| c.is_ascii_uppercase() || ":;)\n".contains(c)).unwrap_or(rest.len());
        for section in rest[..end].split('§').skip(1).filter(|_| RFCS.contains(&number)) {
            let section = section.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
            found.insert(format!("{number} §{}", section.trim_end_matches('.')));
        }
    }
    found
}

#[test]
fn cited_requirements_have_a_test_that_cites_them() {
    let (mut code, mut tests) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in sources() {
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let (of_code, of_tests) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        if is_test {
            tests.extend(citations(&text));
        } else {
            code.extend(citations(of_code));
            tests.extend(citations(of_tests));
        }
    }
    for path in files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it"), ".rs") {
        if !path.ends_with("source/citations.rs") {
            tests.extend(citations(&fs::read_to_string(path).unwrap()));
        }
    }
    assert!(code.len() > 40, "only {} sections are cited", code.len());
    let untested: Vec<&str> = code.difference(&tests).map(String::as_str).collect();
    assert_eq!(untested, UNTESTED, "sections that the code cites, and no test does");
}
