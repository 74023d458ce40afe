//! No file may use another one that uses it in turn, directly or through others, unless the two are parts of one module.

use std::collections::BTreeSet;

use super::files::SourceFile;
use super::graph::Graph;

/// The files that are in a circle today. The list only gets shorter.
const KNOWN: &[&str] = &[];

#[test]
fn files_do_not_depend_on_each_other_in_circles() {
    let graph = Graph::of_source();
    let circles = graph.circles();
    let found: BTreeSet<&str> = circles.iter().flatten().copied().collect();
    let known: BTreeSet<&str> = KNOWN.iter().copied().collect();
    for circle in &circles {
        let new: Vec<&&str> = circle.iter().filter(|path| !known.contains(*path)).collect();
        let explained = graph.explained(circle);
        assert!(
            new.is_empty(),
            "{new:#?} are in a circle; move what both sides use into a file of its own:\n{explained}"
        );
    }
    let resolved: Vec<&&str> = known.difference(&found).collect();
    assert!(
        resolved.is_empty(),
        "remove these from KNOWN, since they are in no circle any more: {resolved:#?}"
    );
}

/// The circles among files with these texts.
fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let parse = |(path, text): &(&str, &str)| SourceFile::parse((*path).to_owned(), text);
    let parsed: Vec<SourceFile> = files.iter().map(parse).collect();
    let graph = Graph::of(&parsed);
    let owned = |circle: &Vec<&str>| circle.iter().map(|path| (*path).to_owned()).collect();
    graph.circles().iter().map(owned).collect()
}

/// A name, files with their texts, and whether they are in a circle.
type Case = (&'static str, &'static [(&'static str, &'static str)], bool);

const CASES: [Case; 15] = [
    (
        "one direction",
        &[("src/a.rs", "use crate::b::B; pub struct A;"), ("src/b.rs", "pub struct B;")],
        false,
    ),
    (
        "two imports",
        &[("src/a.rs", "use crate::b::B; pub struct A;"), ("src/b.rs", "use crate::a::A; pub struct B;")],
        true,
    ),
    (
        "a path in code",
        &[("src/a.rs", "use crate::b::B; pub struct A;"), ("src/b.rs", "pub struct B(crate::a::A);")],
        true,
    ),
    (
        "a path in a macro",
        &[
            ("src/a.rs", "use crate::b::B; pub fn a() {}"),
            ("src/b.rs", "pub struct B; fn b() { vec![crate::a::a()]; }"),
        ],
        true,
    ),
    (
        "a group",
        &[
            ("src/a.rs", "use crate::{b::B, c}; pub struct A;"),
            ("src/b.rs", "pub struct B; fn f() { use super::a::{self, A}; }"),
            ("src/c.rs", ""),
        ],
        true,
    ),
    (
        "an imported module",
        &[
            ("src/a.rs", "use crate::b; pub fn a() { b::b() }"),
            ("src/b.rs", "use super::a; pub fn b() { a::a() }"),
        ],
        true,
    ),
    (
        "a re-export",
        &[
            ("src/a.rs", "mod c; pub use c::C;"),
            ("src/a/c.rs", "pub struct C(crate::b::B);"),
            ("src/b.rs", "pub struct B(Option<crate::a::C>);"),
        ],
        true,
    ),
    (
        "parent and child",
        &[
            ("src/a.rs", "mod b; use b::B; pub struct A(B);"),
            ("src/a/b.rs", "pub struct B; fn f(_: super::A) {}"),
        ],
        false,
    ),
    (
        "two parts of a module",
        &[("src/a/b.rs", "use super::c::C; pub struct B;"), ("src/a/c.rs", "use super::b::B; pub struct C;")],
        false,
    ),
    (
        "a module and two of its parts",
        &[
            ("src/a.rs", "mod b; mod c; use b::B; use c::C; pub struct A(B, C);"),
            ("src/a/b.rs", "pub struct B; fn f(_: super::A) {}"),
            ("src/a/c.rs", "pub struct C; fn f(_: super::A) {}"),
        ],
        false,
    ),
    (
        "three parts of a module",
        &[
            ("src/a/b.rs", "use super::c::C; pub struct B;"),
            ("src/a/c.rs", "use super::d::D; pub struct C;"),
            ("src/a/d.rs", "use super::b::B; pub struct D;"),
        ],
        true,
    ),
    (
        "methods in another file",
        &[("src/a.rs", "pub struct A;"), ("src/b.rs", "use super::a::A; impl A { fn b() {} }")],
        true,
    ),
    (
        "a crate",
        &[
            ("crates/a/src/lib.rs", "pub struct A;"),
            ("crates/b/src/lib.rs", "mod d; pub use d::D; pub struct B(tidegate_a::A);"),
            ("crates/b/src/d.rs", "use crate::B; pub struct D(B);"),
            ("src/c.rs", "pub struct C(crate::b::B);"),
        ],
        false,
    ),
    (
        "parts of a crate",
        &[
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/b.rs", "use crate::c::C; pub struct B;"),
            ("crates/a/src/c.rs", "use crate::d::D; pub struct C;"),
            ("crates/a/src/d.rs", "use crate::b::B; pub struct D;"),
        ],
        true,
    ),
    (
        "tests",
        &[
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
        ],
        false,
    ),
];

#[test]
fn all_forms_of_circular_imports_are_found() {
    for (name, files, is_circle) in CASES {
        assert_eq!(!circles(files).is_empty(), is_circle, "{name}");
    }
}
