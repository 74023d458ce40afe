//! The route table: finds the first route in the order of the file whose conditions all hold, without trying them all.
//!
//! Each host pattern has a radix tree of path patterns. A search visits only routes whose path matches; of those the
//! lowest number wins whose other conditions hold too. Every node has the lowest number below it, so that a search
//! skips branches that can't win.
//!
//! # Example
//! ```
//! use http::Method;
//! use tidegate::gate::{ClientLocation, PathPattern, Query, RequestView, Route, RouteTable};
//! use tidegate::http1::RequestHead;
//!
//! let routes = RouteTable::new(vec![
//!     Route::new("me", PathPattern::parse("/users/me")?),
//!     Route::new("user", PathPattern::parse("/users/{id}")?),
//! ]);
//! let head = RequestHead::new(Method::GET, "/users/7?full=1".parse()?);
//! let query = Query::new(head.uri.query());
//! let location = ClientLocation::new("192.0.2.1".parse()?, None);
//! let request = RequestView { head: &head, method: &head.method, query: &query, location: &location };
//!
//! let id = routes.find("api.example.com", head.uri.path(), request);
//! let route = id.map(|id| routes.get(id)).ok_or("no route matches")?;
//! assert_eq!(&*route.name, "user");
//! assert_eq!(route.path.param("id", "/users/7"), Some("7"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Cow;

use hashbrown::HashMap;
use http::Method;

use super::candidates::Candidates;
use super::host::HostPattern;
use super::method::{is_registered, is_registered_in_other_case};
use super::path_pattern::{Matcher, Piece};
use super::route::{RequestView, Route};
use crate::id_vec::{Id, IdVec};

/// All routes, in the order of the file, with an index over them.
#[derive(Debug, Default)]
pub struct RouteTable {
    routes: IdVec<RouteId, Route>,
    any_host: PathNode,
    exact_hosts: HashMap<Box<str>, PathNode>,
    /// Keyed by the suffix after `*.`.
    wildcard_hosts: HashMap<Box<str>, PathNode>,
    /// Methods of routes that are not registered.
    custom_methods: Vec<Method>,
}

/// The index of a route in the table, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

impl Id for RouteId {
    fn new(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

/// A node of the tree: the text on the edge that leads to it, and its children.
#[derive(Debug)]
struct PathNode {
    prefix: Box<[u8]>,
    /// Sorted by the first byte of their prefix, no two of which are equal.
    children: Vec<PathNode>,
    /// The child for one segment of any text.
    param: Option<Box<PathNode>>,
    /// Routes whose path ends here.
    exact: Candidates,
    /// Routes whose path matches any rest from here.
    rest: Candidates,
    /// Routes whose path has asterisks from here on, in ascending order.
    matchers: Vec<(u32, Matcher)>,
    /// The lowest number here and below.
    lowest: u32,
}

impl Default for PathNode {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl RouteTable {
    /// Indexes the routes.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        let mut table = Self::default();
        for (number, route) in (0..).zip(&routes) {
            let tree = match &route.host {
                None => &mut table.any_host,
                Some(HostPattern::Exact(host)) => table.exact_hosts.entry(host.clone()).or_default(),
                Some(HostPattern::Wildcard(suffix)) => {
                    table.wildcard_hosts.entry(suffix.clone()).or_default()
                }
            };
            tree.insert(route.path.start(), route, number);
            for method in route.methods.iter().filter(|method| !is_registered(method.as_str())) {
                if !table.custom_methods.contains(method) {
                    table.custom_methods.push(method.clone());
                }
            }
        }
        table.routes = routes.into();
        table
    }

    /// Whether a method differs in case alone from a registered one or one of a route.
    #[must_use]
    pub fn has_method_in_other_case(&self, method: &Method) -> bool {
        if is_registered(method.as_str()) || self.custom_methods.contains(method) {
            return false;
        }
        let differs_in_case = |custom: &Method| custom.as_str().eq_ignore_ascii_case(method.as_str());
        is_registered_in_other_case(method) || self.custom_methods.iter().any(differs_in_case)
    }

    /// The first route that matches a request for `host` and the normalized `path`.
    #[must_use]
    pub fn find(&self, host: &str, path: &str, request: RequestView<'_>) -> Option<RouteId> {
        let mut best = u32::MAX;
        let accepts = |number: u32| self.routes[RouteId(number)].accepts(request);
        let mut search = |tree: &PathNode| tree.find(path.as_bytes(), request, &mut best, &accepts);
        // All trees are searched: the order of the file decides, not how specific a host is.
        search(&self.any_host);
        if let Some(tree) = self.exact_hosts.get(host) {
            search(tree);
        }
        if !self.wildcard_hosts.is_empty() {
            // A wildcard matches at least one label before its suffix.
            for (dot, _) in host.match_indices('.').filter(|(dot, _)| *dot > 0) {
                if let Some(tree) = self.wildcard_hosts.get(&host[dot + 1..]) {
                    search(tree);
                }
            }
        }
        (best != u32::MAX).then_some(RouteId(best))
    }

    /// The route with this id.
    ///
    /// # Panics
    /// If the id comes from another table.
    #[must_use]
    pub fn get(&self, id: RouteId) -> &Route {
        &self.routes[id]
    }

    /// All routes, in order.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }
}

impl PathNode {
    fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.into(),
            children: Vec::new(),
            param: None,
            exact: Candidates::default(),
            rest: Candidates::default(),
            matchers: Vec::new(),
            lowest: u32::MAX,
        }
    }

    fn insert(&mut self, pieces: &[Piece], route: &Route, number: u32) {
        self.lowest = self.lowest.min(number);
        match pieces {
            [] => match route.path.matcher() {
                Some(matcher) => self.matchers.push((number, matcher)),
                None if route.path.takes_rest() => self.rest.insert(number, route),
                None => self.exact.insert(number, route),
            },
            [Piece::Literal(text), after @ ..] => {
                self.node_at(text.as_bytes(), number).insert(after, route, number);
            }
            [Piece::Param(_), after @ ..] => {
                self.param.get_or_insert_default().insert(after, route, number);
            }
            // A path starts with none of these: a matcher has them.
            [Piece::Star | Piece::DoubleStar, ..] => {}
        }
    }

    /// The node for `text` below this one, created if missing.
    fn node_at(&mut self, text: &[u8], number: u32) -> &mut PathNode {
        self.lowest = self.lowest.min(number);
        let Some(&first) = text.first() else { return self };
        let index = match self.children.binary_search_by_key(&first, PathNode::first_byte) {
            Ok(index) => {
                let child = &mut self.children[index];
                let common = common_length(&child.prefix, text);
                // The texts differ within the prefix of the child, or `text` ends there: a node must end at this point.
                if common < child.prefix.len() {
                    child.split(common);
                }
                index
            }
            Err(index) => {
                self.children.insert(index, PathNode::new(text));
                index
            }
        };
        let child = &mut self.children[index];
        let taken = child.prefix.len();
        child.node_at(&text[taken..], number)
    }

    /// Splits this node in two after `at` bytes of its prefix.
    fn split(&mut self, at: usize) {
        let mut upper = PathNode::new(&self.prefix[..at]);
        upper.lowest = self.lowest;
        let mut lower = std::mem::replace(self, upper);
        lower.prefix = Cow::from(&lower.prefix[at..]).into();
        self.children.push(lower);
    }

    /// The first byte of the prefix, which is never empty in a child.
    fn first_byte(&self) -> u8 {
        self.prefix.first().copied().unwrap_or(0)
    }

    /// Lowers `best` to the lowest number of a matching route in this subtree.
    fn find(&self, path: &[u8], request: RequestView<'_>, best: &mut u32, accepts: &impl Fn(u32) -> bool) {
        if self.lowest >= *best {
            return;
        }
        let Some(path) = path.strip_prefix(&*self.prefix) else { return };
        self.rest.offer(request, best, accepts);
        let is_better = |(number, matcher): &&(u32, Matcher)| {
            *number < *best && matcher.matches(path) && accepts(*number)
        };
        *best = self.matchers.iter().find(is_better).map_or(*best, |(number, _)| *number);
        let Some(&first) = path.first() else { return self.exact.offer(request, best, accepts) };
        if let Ok(index) = self.children.binary_search_by_key(&first, PathNode::first_byte) {
            self.children[index].find(path, request, best, accepts);
        }
        if let Some(param) = &self.param {
            let segment = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
            // A parameter matches no empty segment.
            if segment > 0 {
                param.find(&path[segment..], request, best, accepts);
            }
        }
    }
}

fn common_length(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gate::{ClientLocation, PathPattern, Query, ValueCondition, ValuePattern};
    use crate::http1::RequestHead;

    fn route(host: Option<&str>, path: &str, methods: &[Method]) -> Route {
        Route {
            host: host.map(|host| HostPattern::parse(host).unwrap()),
            methods: methods.to_vec(),
            ..Route::new(path, PathPattern::parse(path).unwrap())
        }
    }

    fn is(pattern: &str) -> ValueCondition {
        ValueCondition::AnyOf([ValuePattern::parse(pattern)].into())
    }

    fn head(method: Method, target: &str) -> RequestHead {
        RequestHead::new(method, target.parse().unwrap())
    }

    fn find(table: &RouteTable, host: &str, path: &str, head: &RequestHead) -> Option<RouteId> {
        let query = Query::new(head.uri.query());
        let location = ClientLocation::new([192, 0, 2, 1].into(), None);
        table.find(host, path, RequestView { head, method: &head.method, query: &query, location: &location })
    }

    fn found(table: &RouteTable, host: &str, path: &str) -> Option<u32> {
        find(table, host, path, &head(Method::GET, path)).map(|id| id.0)
    }

    #[test]
    fn the_first_matching_route_wins() {
        let table = RouteTable::new(vec![
            route(None, "/users/me", &[]),
            route(None, "/users/{id}", &[]),
            route(None, "/users/*", &[]),
            route(None, "/held.*", &[]),
            route(None, "/users/admin", &[]),
        ]);
        assert_eq!(found(&table, "a", "/users/me"), Some(0));
        assert_eq!(found(&table, "a", "/users/7"), Some(1));
        assert_eq!(found(&table, "a", "/users/admin"), Some(1));
        assert_eq!(found(&table, "a", "/users/"), Some(2));
        assert_eq!(found(&table, "a", "/users/7/x"), Some(2));
        assert_eq!(found(&table, "a", "/users"), None);
        assert_eq!(found(&table, "a", "/held."), Some(3));
        assert_eq!(found(&table, "a", "/held.txt"), Some(3));
    }

    #[test]
    fn hosts_and_methods_are_conditions_too() {
        let table = RouteTable::new(vec![
            route(Some("api.example.com"), "/*", &[Method::POST]),
            route(Some("*.example.com"), "/*", &[Method::GET]),
            route(None, "/*", &[]),
        ]);
        assert_eq!(found(&table, "api.example.com", "/"), Some(1));
        assert_eq!(found(&table, "a.b.example.com", "/"), Some(1));
        assert_eq!(found(&table, "example.com", "/"), Some(2));
        let posted = find(&table, "api.example.com", "/", &head(Method::POST, "/"));
        assert_eq!(posted, Some(RouteId(0)));
        let headed = find(&table, "x.example.com", "/", &head(Method::HEAD, "/"));
        assert_eq!(headed, Some(RouteId(1)));
    }

    #[test]
    fn headers_and_query_are_conditions_too() {
        let mut beta = route(None, "/*", &[]);
        beta.headers.push(("x-beta".parse().unwrap(), is("1")));
        beta.query.push(("v".into(), is("2")));
        let table = RouteTable::new(vec![beta]);
        let request = |target: &str, header: &str| {
            let fields = [("x-beta", header)].into_iter().collect();
            let head = RequestHead { fields, ..head(Method::GET, target) };
            find(&table, "a", "/", &head).is_some()
        };
        assert!(request("/?a=1&v=%32", "1"));
        assert!(!request("/?v=3", "1"));
        assert!(!request("/?v=2", "0"));
        assert!(!request("/", "1"));
    }

    #[test]
    fn routes_that_differ_in_a_header_are_found_by_its_value() {
        let tenant = |number: u32| {
            let mut route = route(None, "/*", &[]);
            route.headers.push(("x-tenant".parse().unwrap(), is(&format!("t{number}"))));
            route
        };
        let table = RouteTable::new((0..10_000).map(tenant).collect());
        let fields = [("x-tenant", "none"), ("x-tenant", "t9876")].into_iter().collect();
        let head = RequestHead { fields, ..head(Method::GET, "/") };
        assert_eq!(find(&table, "a", "/", &head), Some(RouteId(9876)));
    }

    /// The model of the tree: tries every route in turn, as a regular expression.
    fn linear_search(patterns: &[String], path: &str) -> Option<u32> {
        let fits = |pattern: &str| {
            let inner = regex::escape(pattern.trim_end_matches('*')).replace(r"\*\*", ".*");
            let inner = if inner.starts_with(r"\*") { inner.replacen(r"\*", ".*", 1) } else { inner };
            let inner = inner.replace(r"\*", "[^/]*");
            let inner = regex::Regex::new(r"\\\{p\d\\\}").unwrap().replace_all(&inner, "[^/]+");
            let end = if pattern.ends_with('*') { ".*" } else { "" };
            regex::Regex::new(&format!("^{inner}{end}$")).unwrap().is_match(path)
        };
        (0..).zip(patterns).find(|(_, pattern)| fits(pattern)).map(|(number, _)| number)
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_a_linear_search(
            patterns in prop::collection::vec(
                "(/(a|b|ab|abc|\\{x\\})){1,3}(/|/\\*|)|(/(a|b)){0,2}(/(a\\*|\\*b|\\*|\\{x\\})){1,2}(/|/\\*\\*/b|/b\\*|)|\\*(b|/a\\*c?|b/\\*)",
                1..40,
            ),
            paths in prop::collection::vec("(/(a|b|ab|abc|c)){1,4}/?", 1..20),
        ) {
            let mut unique = patterns.clone();
            // Names must differ within a pattern: number the parameters.
            for pattern in &mut unique {
                let mut number = 0;
                while pattern.contains("{x}") {
                    *pattern = pattern.replacen("{x}", &format!("{{p{number}}}"), 1);
                    number += 1;
                }
            }
            let table = RouteTable::new(unique.iter().map(|p| route(None, p, &[])).collect());
            for path in &paths {
                prop_assert_eq!(found(&table, "h", path), linear_search(&unique, path), "{}", path);
            }
        }
    }
}
