//! The source as a graph of files: which uses what another one defines.
//!
//! A path is followed through re-exports to the file that has the definition. Parents and children count like any
//! others. A second block of methods of a type counts as used by the file of the type, since its callers may need them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::files::{Segments, SourceFile, parsed};

/// More re-exports than any path goes through.
const DEPTH: usize = 12;

pub struct Graph<'f> {
    files: BTreeMap<&'f [String], &'f SourceFile>,
    /// For each file those that it uses, each with one name that it uses of it.
    edges: BTreeMap<Segments, BTreeMap<Segments, String>>,
}

impl<'f> Graph<'f> {
    /// The graph of the library, the program and the crates.
    pub fn of_source() -> Self {
        Self::of(parsed())
    }

    pub fn of(files: &'f [SourceFile]) -> Self {
        let files = files.iter().map(|file| (&*file.module, file)).collect();
        let mut graph = Self { files, edges: BTreeMap::new() };
        let mut edges: BTreeMap<Segments, BTreeMap<Segments, String>> = BTreeMap::new();
        let mut add = |from: &[String], to: Segments, name: &str| {
            if *from != to[..] {
                edges.entry(from.to_vec()).or_default().entry(to).or_insert_with(|| name.to_owned());
            }
        };
        for (module, file) in &graph.files {
            for path in &file.paths {
                if let Some(owner) = graph.owner(module, path, 0) {
                    add(module, owner, path.last().unwrap());
                }
            }
            for name in &file.inherent {
                if let Some(path) = file.imports.get(name)
                    && let Some(owner) = graph.owner(module, path, 0)
                {
                    add(&owner, module.to_vec(), &format!("impl {name}"));
                }
            }
        }
        graph.edges = edges;
        graph
    }

    /// The file that defines what `path` names in `module`; `None` if that is a module, or of another crate.
    fn owner(&self, module: &[String], path: &[String], depth: usize) -> Option<Segments> {
        let (first, rest) = path.split_first()?;
        if depth > DEPTH {
            return None;
        }
        let (mut current, mut rest) = match &**first {
            "crate" => (Segments::new(), rest),
            "self" => (module.to_vec(), rest),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                (module[..module.len().checked_sub(ups)?].to_vec(), &path[ups..])
            }
            _ if self.files.contains_key(&*joined(module, first)) => (module.to_vec(), path),
            _ => {
                let import = self.files[module].imports.get(first).filter(|import| import[..] != *path)?;
                let full: Segments = import.iter().chain(rest).cloned().collect();
                return self.owner(module, &full, depth + 1);
            }
        };
        while let Some((next, more)) = rest.split_first()
            && self.files.contains_key(&*joined(&current, next))
        {
            current.push(next.clone());
            rest = more;
        }
        let name = rest.first()?;
        let file = self.files.get(&*current)?;
        if file.definitions.contains(name) {
            return Some(current);
        }
        if let Some(import) = file.imports.get(name) {
            return self.owner(&current, import, depth + 1);
        }
        file.globs.iter().find_map(|glob| {
            let full: Segments = glob.iter().chain([name]).cloned().collect();
            self.owner(&current, &full, depth + 1)
        })
    }

    /// The paths of the files that a file uses, directly or not.
    fn reachable<'s>(&'s self, from: &'s [String]) -> BTreeSet<&'s [String]> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(module) = waiting.pop() {
            for next in self.edges.get(module).into_iter().flat_map(BTreeMap::keys).map(Vec::as_slice) {
                if found.insert(next) {
                    waiting.push(next);
                }
            }
        }
        found
    }

    /// Groups of files that all use each other, directly or not: the paths of each. Two files of a module may know each other.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reachable: BTreeMap<&[String], _> =
            self.files.keys().map(|module| (*module, self.reachable(module))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (module, reached) in &reachable {
            if !reached.contains(module) || seen.contains(module) {
                continue;
            }
            let circle: Vec<&[String]> =
                reached.iter().copied().filter(|other| reachable[*other].contains(*module)).collect();
            seen.extend(circle.iter().copied());
            if self.has_only_pairs(&circle) {
                continue;
            }
            circles.push(circle.into_iter().map(|member| &*self.files[member].path).collect());
        }
        circles
    }

    /// Whether the members of a circle only use each other in pairs, each of two files of one module.
    fn has_only_pairs(&self, circle: &[&[String]]) -> bool {
        let uses = |from: &[String], to: &[String]| {
            self.edges.get(from).is_some_and(|to_all| to_all.contains_key(to))
        };
        circle.iter().all(|from| {
            let mut targets = circle.iter().filter(|to| uses(from, to));
            targets.all(|to| uses(to, from) && is_of_one_module(from, to))
        })
    }

    /// Which file of a circle uses which other one, in words.
    pub fn explained(&self, circle: &[&str]) -> String {
        let path = |module: &Segments| &*self.files[&**module].path;
        let mut text = String::new();
        for (from, targets) in self.edges.iter().filter(|(from, _)| circle.contains(&path(from))) {
            for (to, name) in targets.iter().filter(|(to, _)| circle.contains(&path(to))) {
                writeln!(text, "  {} uses `{name}` of {}", path(from), path(to)).unwrap();
            }
        }
        text
    }
}

/// Whether two files are a module and a part of it, or two parts of one.
fn is_of_one_module(one: &[String], other: &[String]) -> bool {
    let is_part =
        |parent: &[String], part: &[String]| part.len() == parent.len() + 1 && part.starts_with(parent);
    let parent = |part: &[String]| part.split_last().map(|(_, parent)| parent.to_vec());
    let is_sibling = one.len() > 1 && parent(one) == parent(other);
    is_sibling || is_part(one, other) || is_part(other, one)
}

fn joined(module: &[String], name: &str) -> Segments {
    module.iter().map(String::as_str).chain([name]).map(str::to_owned).collect()
}
