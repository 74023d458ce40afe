//! Directives that limit requests, or that restrict access.

use std::collections::HashSet;

use super::scope::{GUARDS, refuses, restricts};
use super::tree::Directive;
use super::upstreams::max_connections;
use crate::note::{FileLine, Note};
use crate::restrictions::Restriction;

/// Limits that blocks inherit.
const LIMITS: [&str; 2] = ["limit_req", "limit_conn"];

/// The restrictions among these directives, wherever they are.
pub(super) fn restrictions(block: &[Directive]) -> Vec<Restriction> {
    let mut found = Vec::new();
    walk(block, &[], &mut found);
    found
}

fn walk(block: &[Directive], within: &[FileLine], found: &mut Vec<Restriction>) {
    for directive in block {
        let (place, text) = (directive.place.clone(), directive.text());
        let name = &*directive.name;
        if LIMITS.contains(&name)
            || name == "limit_rate" && directive.arg(0) != "0"
            || name == "server" && max_connections(directive).is_some()
        {
            found.push(Restriction::limit(place, text, within.to_vec()));
        } else if is_guard(directive) || refuses(directive) || name == "satisfy" && directive.arg(0) == "any"
        {
            found.push(Restriction::access(place, text, within.to_vec()));
        } else {
            let inner: Vec<FileLine> = within.iter().chain([&place]).cloned().collect();
            walk(directive.directives(), &inner, found);
        }
    }
}

fn is_guard(directive: &Directive) -> bool {
    GUARDS.contains(&&*directive.name) && restricts(directive)
}

/// The limits and restrictions that apply to requests for which there is a route.
#[derive(Default)]
pub(super) struct AppliedRestrictions(HashSet<FileLine>);

impl AppliedRestrictions {
    /// Adds directives that apply.
    pub fn add<'d>(&mut self, directives: impl IntoIterator<Item = &'d Directive>) {
        self.0.extend(directives.into_iter().map(|directive| directive.place.clone()));
    }

    /// Notes on the restrictions directly in this block that apply to no request.
    pub fn notes(&self, block: &[Directive], reason: &str) -> Vec<Note> {
        let restricts = |it: &&Directive| LIMITS.contains(&&*it.name) || is_guard(it);
        let unused = block.iter().filter(|it| restricts(it) && !self.0.contains(&it.place));
        unused.map(|directive| directive.finding(reason)).collect()
    }
}
