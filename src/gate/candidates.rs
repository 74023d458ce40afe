//! Routes with the same path pattern. There may be many that differ only in headers, query or cookies, such as one for
//! each tenant, so they are indexed by their first condition with exact values instead of being tried in turn.

use hashbrown::HashMap;
use http::header::HeaderName;

use super::route::{RequestView, Route, cookie_values};
use super::value_pattern::{ValueCondition, lowered};

/// Numbers of routes by the value that one of their conditions requires; ascending.
#[derive(Debug)]
struct ByValue<N> {
    name: N,
    ignores_case: bool,
    /// The values are in lower case if the case does not matter.
    numbers: HashMap<Box<[u8]>, Vec<u32>>,
}

/// The routes of one node in the tree of paths.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Routes without a condition that only exact values meet; ascending.
    plain: Vec<u32>,
    by_header: Vec<ByValue<HeaderName>>,
    by_query: Vec<ByValue<Box<str>>>,
    by_cookie: Vec<ByValue<Box<str>>>,
}

impl Candidates {
    /// Adds a route; numbers must come in ascending order.
    pub fn insert(&mut self, number: u32, route: &Route) {
        let is_indexed = insert(&mut self.by_header, &route.headers, number)
            || insert(&mut self.by_query, &route.query, number)
            || insert(&mut self.by_cookie, &route.cookies, number);
        if !is_indexed {
            self.plain.push(number);
        }
    }

    /// Lowers `best` to the lowest number here for which `accepts` is true.
    pub fn offer(&self, request: RequestView<'_>, best: &mut u32, accepts: &impl Fn(u32) -> bool) {
        let mut offer = |numbers: &[u32]| {
            let better = numbers.iter().copied().take_while(|number| *number < *best).find(|n| accepts(*n));
            *best = better.unwrap_or(*best);
        };
        offer(&self.plain);
        for index in &self.by_header {
            request.head.fields.get_all(&index.name).for_each(|value| offer(index.with(value)));
        }
        for index in &self.by_query {
            request.query.values(&index.name).for_each(|value| offer(index.with(value)));
        }
        for index in &self.by_cookie {
            cookie_values(request.head, &index.name).for_each(|value| offer(index.with(&value)));
        }
    }
}

impl<N> ByValue<N> {
    /// The routes that require this value.
    fn with(&self, value: &[u8]) -> &[u32] {
        let numbers =
            if self.ignores_case { self.numbers.get(&*lowered(value)) } else { self.numbers.get(value) };
        numbers.map_or(&[], Vec::as_slice)
    }
}

/// Adds a route to the index of its first condition that only exact values meet; false if it has none.
fn insert<N: PartialEq + Clone>(
    all: &mut Vec<ByValue<N>>,
    conditions: &[(N, ValueCondition)],
    number: u32,
) -> bool {
    let mut exact = conditions
        .iter()
        .filter_map(|(name, condition)| Some((name, condition.ignores_case(), condition.exact_values()?)));
    let Some((name, ignores_case, values)) = exact.next() else { return false };
    let existing = all.iter().position(|index| index.name == *name && index.ignores_case == ignores_case);
    let at = existing.unwrap_or_else(|| {
        all.push(ByValue { name: name.clone(), ignores_case, numbers: HashMap::new() });
        all.len() - 1
    });
    for value in values {
        all[at].numbers.entry(value.into()).or_default().push(number);
    }
    true
}
