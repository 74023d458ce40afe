//! The size of each module is recorded, so that growth is a decision which a review sees.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::files::{files_below, parsed};
use super::rules::module;

/// Lines of code by module, and their sum.
const FILE: &str = "tests/it/source/sizes.txt";
/// How much smaller a module may be than recorded. A larger difference is recorded, or the module could grow unseen.
const SLACK: usize = 60;

const HEADER: &str = "\
# Lines of code of each module, without comments, blank lines and tests. A module that grows beyond its line fails
# `source::sizes`; UPDATE=1 cargo test --test it source::sizes records the sizes, for the commit that explains the growth.
";

fn measured() -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for file in parsed() {
        *sizes.entry(module(file).to_owned()).or_default() += file.code.len();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("--");
    let scripts = files_below(&root.join("lua"), ".lua");
    let lines = scripts.iter().map(|path| fs::read_to_string(path).unwrap().lines().filter(is_code).count());
    sizes.insert("lua".to_owned(), lines.sum());
    sizes
}

fn recorded(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs.map(|(name, size)| (name.to_owned(), size.trim().parse().unwrap())).collect()
}

#[test]
fn no_module_grows_unseen() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let mut sizes = measured();
    sizes.insert("all".to_owned(), sizes.values().sum());
    if std::env::var_os("UPDATE").is_some() {
        let mut text = HEADER.to_owned();
        for (name, size) in &sizes {
            writeln!(text, "{name:<20} {size:>6}").unwrap();
        }
        fs::write(path, text).unwrap();
        return;
    }
    let recorded = recorded(&fs::read_to_string(path).unwrap());
    for (name, size) in &sizes {
        let known = recorded.get(name).unwrap_or_else(|| panic!("{FILE} lacks {name}: {size} lines"));
        assert!(
            size <= known,
            "{name} has {size} lines of code, and {FILE} allows {known}. What can be removed or joined instead? If the \
             growth is worth it, record it with UPDATE=1"
        );
        let is_near = size + SLACK >= *known || name == "all";
        assert!(
            is_near,
            "{name} has only {size} lines of code, and {FILE} allows {known}: record it with UPDATE=1"
        );
    }
    let gone: Vec<&String> = recorded.keys().filter(|name| !sizes.contains_key(*name)).collect();
    assert!(gone.is_empty(), "{FILE} has modules that do not exist: {gone:?}");
}
