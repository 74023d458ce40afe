//! Routes with the same path pattern. There may be many that differ only in headers and query, such as one for each
//! tenant, so they are indexed by their first such condition instead of being tried in turn.

use hashbrown::HashMap;
use http::header::HeaderName;

use super::route::{RequestView, Route};

/// Numbers of routes by the value that one of their conditions requires; ascending.
type ByValue = HashMap<Box<[u8]>, Vec<u32>>;

/// The routes of one node in the tree of paths.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Routes without a condition on headers or the query; ascending.
    plain: Vec<u32>,
    by_header: Vec<(HeaderName, ByValue)>,
    by_query: Vec<(Box<str>, ByValue)>,
}

impl Candidates {
    /// Adds a route; numbers must come in ascending order.
    pub fn insert(&mut self, number: u32, route: &Route) {
        let numbers = if let Some((name, value)) = route.headers.first() {
            values_of(&mut self.by_header, name).entry(value.as_bytes().into()).or_default()
        } else if let Some((name, value)) = route.query.first() {
            values_of(&mut self.by_query, name).entry(value.as_bytes().into()).or_default()
        } else {
            &mut self.plain
        };
        numbers.push(number);
    }

    /// Lowers `best` to the lowest number here for which `accepts` is true.
    pub fn offer(&self, request: RequestView<'_>, best: &mut u32, accepts: &impl Fn(u32) -> bool) {
        let mut offer = |numbers: &[u32]| {
            let better = numbers.iter().copied().take_while(|number| *number < *best).find(|n| accepts(*n));
            *best = better.unwrap_or(*best);
        };
        offer(&self.plain);
        for (name, values) in &self.by_header {
            for value in request.head.fields.get_all(name) {
                values.get(value).into_iter().for_each(|numbers| offer(numbers));
            }
        }
        for (name, values) in &self.by_query {
            for value in request.query.values(name) {
                values.get(value).into_iter().for_each(|numbers| offer(numbers));
            }
        }
    }
}

/// The values that conditions require of the header or parameter `name`.
fn values_of<'c, N: PartialEq + Clone>(by_name: &'c mut Vec<(N, ByValue)>, name: &N) -> &'c mut ByValue {
    let index = by_name.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
        by_name.push((name.clone(), ByValue::new()));
        by_name.len() - 1
    });
    &mut by_name[index].1
}
