//! Middlewares: limits, changes of requests, and restrictions of access.

use crate::cli::convert::document::{Document, Node};
use crate::cli::convert::model::{Algorithm, Limit, Route, Target};
use crate::cli::convert::names::Names;
use crate::cli::convert::note::Note;

/// Middlewares that restrict access.
const GUARDS: [&str; 7] =
    ["basicAuth", "digestAuth", "forwardAuth", "ipAllowList", "ipWhiteList", "passTLSClientCert", "plugin"];
/// How deep chains contain each other at most.
const DEPTH: usize = 8;
/// The most requests in flight that a limit can have.
const MOST_IN_FLIGHT: u64 = 10_000;

/// The middlewares, and the limits that were made of them.
pub(super) struct Middlewares<'d> {
    document: &'d Document,
    nodes: &'d Node,
    /// How many routers name each middleware.
    routers: &'d Node,
    names: Names,
    pub notes: Vec<Note>,
    pub limits: Vec<Limit>,
}

impl<'d> Middlewares<'d> {
    pub fn new(document: &'d Document, nodes: &'d Node, routers: &'d Node) -> Self {
        Self { document, nodes, routers, names: Names::default(), notes: Vec::new(), limits: Vec::new() }
    }

    /// Adds to a route what the middlewares of its router do.
    pub fn apply(&mut self, router: &str, names: &Node, route: &mut Route) {
        self.apply_all(router, names, route, 0);
    }

    fn apply_all(&mut self, router: &str, names: &Node, route: &mut Route, depth: usize) {
        for name in names.texts() {
            let plain = name.split('@').next().unwrap_or("").to_owned();
            let middleware = self.nodes.get(&plain);
            let Some((kind, node)) = middleware.entries().first() else {
                let reason = "there is no such middleware in this file";
                route.notes.push(self.document.finding(names, &format!("middlewares: {name}"), reason));
                continue;
            };
            let text = format!("{plain}: {kind}");
            match &**kind {
                "rateLimit" => self.rate_limit(router, &plain, node, route),
                "inFlightReq" => self.in_flight(router, &plain, node, route),
                "chain" if depth < DEPTH => self.apply_all(router, node.get("middlewares"), route, depth + 1),
                "stripPrefix" => match &node.get("prefixes").texts()[..] {
                    [prefix] => route.strip_prefix = Some(prefix.trim_end_matches('/').to_owned()),
                    _ => route.notes.push(self.document.finding(node, &text, "a route removes one prefix")),
                },
                "headers" => headers(self.document, node, route),
                "buffering" => {
                    let bytes = node.get("maxRequestBodyBytes").number().filter(|bytes| *bytes > 0);
                    route.max_body = bytes.map(|bytes| format!("{bytes}B"));
                }
                kind if GUARDS.contains(&kind) => {
                    let reason =
                        "it restricts access, which is not converted: requests get 501 until you replace it";
                    route.notes.push(self.document.finding(node, &text, reason));
                    route.target = Target::missing();
                }
                _ => route.notes.push(self.document.finding(node, &text, "tidegate has no counterpart")),
            }
        }
    }

    /// The name of a limit: each router has counts of its own.
    fn name(&mut self, router: &str, middleware: &str) -> String {
        let names_it = |router: &Node| {
            router.get("middlewares").texts().iter().any(|it| it.split('@').next() == Some(middleware))
        };
        let count = self.routers.entries().iter().filter(|(_, router)| names_it(router)).count();
        let wanted = if count > 1 { format!("{middleware}-{router}") } else { middleware.to_owned() };
        self.names.unique(&wanted)
    }

    fn rate_limit(&mut self, router: &str, name: &str, node: &Node, route: &mut Route) {
        let average = node.get("average").number().unwrap_or(0);
        if average == 0 {
            route.notes.push(self.document.finding(
                node,
                &format!("{name}: average: 0"),
                "it does not limit",
            ));
            return;
        }
        let period = node.get("period").text().unwrap_or("1s");
        let Some(rate) = rate(average, period) else {
            route.notes.push(self.document.finding(
                node,
                &format!("{name}: period: {period}"),
                "this is no period",
            ));
            return;
        };
        let burst = node.get("burst").number().unwrap_or(1).max(1);
        let (key, mut notes) = self.key(node, "client_ip");
        let known = ["average", "burst", "period", "sourceCriterion"];
        notes.extend(self.document.remarks(node, &known));
        let mut limit = Limit::new(self.name(router, name), Algorithm::TokenBucket { rate, burst }, key);
        limit.notes = notes;
        self.add(limit, name, node, route);
    }

    fn in_flight(&mut self, router: &str, name: &str, node: &Node, route: &mut Route) {
        let Some(amount) = node.get("amount").number().filter(|it| (1..=MOST_IN_FLIGHT).contains(it)) else {
            let reason = format!("max_in_flight is a number from 1 to {MOST_IN_FLIGHT}");
            route.notes.push(self.document.finding(node, &format!("{name}: inFlightReq"), reason));
            return;
        };
        let (key, notes) = self.key(node, "host");
        let algorithm = Algorithm::Concurrency { max_in_flight: amount };
        let mut limit = Limit::new(self.name(router, name), algorithm, key);
        limit.notes = notes;
        self.add(limit, name, node, route);
    }

    fn add(&mut self, mut limit: Limit, name: &str, node: &Node, route: &mut Route) {
        limit.notes.insert(0, self.document.origin(node, &format!("middleware {name}")));
        route.limits.push(limit.name.clone());
        self.limits.push(limit);
    }

    /// The key of a middleware, and notes on it.
    fn key(&self, node: &Node, default: &str) -> (Vec<String>, Vec<Note>) {
        let source = node.get("sourceCriterion");
        let strategy = source.get("ipStrategy");
        let mut notes = Vec::new();
        for name in ["depth", "excludedIPs", "ipv6Subnet"] {
            let value = strategy.get(name);
            if value.is_present() && value.text() != Some("0") {
                let reason = match name {
                    "ipv6Subnet" => "set `ipv6_prefix` of `[client_ip]`",
                    _ => {
                        "name the networks of the proxies in `trusted_proxies` of `[client_ip]`: the first other address counts"
                    }
                };
                notes.push(self.document.finding(value, &format!("ipStrategy.{name}"), reason));
            }
        }
        let key = if let Some(header) = source.get("requestHeaderName").text() {
            notes.push(Note::text(
                "Traefik counts requests without the header together; tidegate by address.",
            ));
            format!("header:{}", header.to_ascii_lowercase())
        } else if source.get("requestHost").is_true() {
            "host".to_owned()
        } else if strategy.is_present() {
            "client_ip".to_owned()
        } else {
            default.to_owned()
        };
        (vec![key], notes)
    }
}

/// The rate of an average in a period, such as `1m` or a number of seconds.
fn rate(average: u64, period: &str) -> Option<String> {
    let digits = period.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    let unit = match &period[digits.len()..] {
        "" => "s",
        unit @ ("ms" | "s" | "m" | "h") => unit,
        _ => return None,
    };
    Some(if number == 1 && unit == "s" {
        format!("{average}/s")
    } else {
        format!("{average}/{number}{unit}")
    })
}

fn headers(document: &Document, node: &Node, route: &mut Route) {
    for (name, value) in node.get("customRequestHeaders").entries() {
        match value.text() {
            Some("") | None => route.remove_headers.push(name.to_ascii_lowercase()),
            Some(value) => route.set_headers.push((name.to_ascii_lowercase(), value.to_owned())),
        }
    }
    for (name, value) in node.get("customResponseHeaders").entries() {
        if let Some(value) = value.text().filter(|value| !value.is_empty()) {
            route.set_response_headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    route.notes.extend(document.remarks(node, &["customRequestHeaders", "customResponseHeaders"]));
}
