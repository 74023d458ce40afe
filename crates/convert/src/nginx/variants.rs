//! Routes that tell apart the requests to which the limits of a location apply.

use super::keys::{ANY, When, WhenPart};
use super::limits::Applied;
use super::tree::Directive;
use crate::model::{Condition, Test, TomlRoute};

/// Parts of requests by which the limits of one location can differ: each multiplies the routes.
const MOST_PARTS: usize = 3;

/// The limits of a location that apply to some requests only, by one part of the request.
struct Group<'d> {
    part: WhenPart,
    limits: Vec<(When, String, &'d Directive)>,
}

/// Requests that differ from all others in one part, and the limits that apply to them.
struct Class {
    /// The values of the part; none for all requests that no class before has.
    values: Vec<String>,
    limits: Vec<String>,
}

/// A route for each combination of the limits that apply to some requests only; those with more conditions come first.
pub(super) fn variants(mut route: TomlRoute, all: Vec<(Applied, &Directive)>) -> Vec<TomlRoute> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (applied, directive) in all {
        let Some(when) = applied.when else {
            route.limits.push(applied.name);
            continue;
        };
        let part = when.part.clone();
        let limit = (when, applied.name, directive);
        match groups.iter_mut().find(|group| group.part == part) {
            Some(group) => group.limits.push(limit),
            None => groups.push(Group { part, limits: vec![limit] }),
        }
    }
    let mut routes = vec![route];
    for (number, group) in groups.into_iter().enumerate() {
        let Some(classes) = group.classes().filter(|_| number < MOST_PARTS) else {
            let reason = "the limit is left out: no route can have all conditions of this location";
            let findings = group.limits.iter().map(|(_, _, directive)| directive.finding(reason).lost());
            routes[0].notes.extend(findings);
            continue;
        };
        let of_class =
            |route: &TomlRoute| classes.iter().map(|it| it.of(route, &group.part)).collect::<Vec<_>>();
        routes = routes.iter().flat_map(of_class).collect();
        // The first one has the notes.
        routes.iter_mut().skip(1).for_each(|route| route.notes.clear());
    }
    routes
}

impl Group<'_> {
    /// The classes of requests, that of all others last. `None` if no list of routes tells them apart.
    fn classes(&self) -> Option<Vec<Class>> {
        let first = &self.limits.first()?.0.values;
        let is_single = self.limits.iter().all(|(when, ..)| when.values == *first);
        let mut values: Vec<&String> = Vec::new();
        for value in self.limits.iter().flat_map(|(when, ..)| &when.values) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        // A value matches several patterns, and then only the first one of a map.
        if !is_single && values.iter().any(|value| value.contains('*')) {
            return None;
        }
        let named = |applies: &dyn Fn(&When) -> bool| -> Vec<String> {
            let limits = self.limits.iter().filter(|(when, ..)| applies(when));
            limits.map(|(_, name, _)| name.clone()).collect()
        };
        let mut found: Vec<Class> = Vec::new();
        for value in values {
            let limits = named(&|when| when.values.contains(value) != when.is_negated);
            match found.iter_mut().find(|known| known.limits == limits) {
                Some(known) => known.values.push(value.clone()),
                None => found.push(Class { values: vec![value.clone()], limits }),
            }
        }
        found.push(Class { values: Vec::new(), limits: named(&|when| when.is_negated) });
        Some(found)
    }
}

impl Class {
    /// The part of a route that has these requests.
    fn of(&self, route: &TomlRoute, part: &WhenPart) -> TomlRoute {
        let mut route = route.clone();
        route.limits.extend(self.limits.iter().cloned());
        match part {
            _ if self.values.is_empty() => {}
            WhenPart::Method => route.methods.clone_from(&self.values),
            WhenPart::Value(kind, name) => {
                let test = match &self.values[..] {
                    [only] if only == ANY => Test::Present(true),
                    values => Test::Any(values.to_vec()),
                };
                route.conditions.push(Condition { kind: *kind, name: name.clone(), test });
            }
        }
        route
    }
}
