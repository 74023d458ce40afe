//! The plugin `rate-limiting`, and what other plugins mean for routes.

use super::bodies::limit_body;
use super::entities::{all_routes, named};
use crate::document::DocNode;
use crate::model::{
    Condition, Limit, TomlAlgorithm, TomlDenied, TomlRoute, TomlStore, TomlTarget, UniqueNames,
};
use crate::note::Note;

/// The periods of a plugin, and those of tidegate. Both are of the calendar in UTC.
pub(super) const PERIODS: [(&str, &str); 6] = [
    ("second", "s"),
    ("minute", "minute"),
    ("hour", "hour"),
    ("day", "day"),
    ("month", "month"),
    ("year", "year"),
];
/// Plugins that restrict no access. All others may do so.
pub(super) const HARMLESS: [&str; 24] = [
    "acme",
    "aws-lambda",
    "correlation-id",
    "cors",
    "datadog",
    "file-log",
    "grpc-web",
    "http-log",
    "kafka-log",
    "loggly",
    "opentelemetry",
    "prometheus",
    "proxy-cache",
    "rate-limiting",
    "rate-limiting-advanced",
    "request-transformer",
    "response-ratelimiting",
    "response-transformer",
    "session",
    "statsd",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

/// Plugins that only report requests, besides those whose names end with `-log`.
const REPORTING: [&str; 8] =
    ["datadog", "loggly", "opentelemetry", "prometheus", "statsd", "syslog", "zipkin", "file-log"];

/// The scope of a plugin: a service, a route, or all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PluginScope<'d> {
    pub service: Option<&'d DocNode>,
    pub route: Option<&'d DocNode>,
}

struct Plugin<'d> {
    node: &'d DocNode,
    name: &'d str,
    scope: PluginScope<'d>,
    is_used: bool,
}

/// The plugins of a file, and the limits that were made of them.
pub(super) struct Plugins<'d> {
    all: Vec<Plugin<'d>>,
    names: UniqueNames,
    /// The indices of the plugins that were converted, with the names of their limits.
    made: Vec<(usize, Vec<String>)>,
    pub notes: Vec<Note>,
    pub limits: Vec<Limit>,
    pub store: Option<TomlStore>,
    pub denied: Option<TomlDenied>,
}

impl<'d> Plugins<'d> {
    pub fn of(root: &'d DocNode) -> Self {
        let mut found = Self {
            all: Vec::new(),
            names: UniqueNames::default(),
            made: Vec::new(),
            notes: Vec::new(),
            limits: Vec::new(),
            store: None,
            denied: None,
        };
        found.add(root, root, PluginScope::default());
        for service in root.get("services").items() {
            found.add(root, service, PluginScope { service: Some(service), route: None });
        }
        for (route, service) in all_routes(root) {
            found.add(root, route, PluginScope { service, route: Some(route) });
        }
        found
    }

    /// Adds the plugins of a node with this scope.
    fn add(&mut self, root: &'d DocNode, of: &'d DocNode, scope: PluginScope<'d>) {
        for node in of.get("plugins").items() {
            let name = node.get("name").text().unwrap_or("");
            if node.get("enabled").text() == Some("false") {
                continue;
            }
            if node.get("consumer").is_present() || node.get("consumer_group").is_present() {
                let reason = "use the key part `consumer`, with own `limits` in the file of `[consumers]` or with tiers";
                self.notes.push(node.finding(&format!("name: {name} (for a consumer)"), reason));
                continue;
            }
            let routes = all_routes(root).into_iter().map(|(route, _)| route);
            let (service, route) = (node.get("service"), node.get("route"));
            let is_there = |by: &DocNode, found: Option<&DocNode>| !by.is_present() || found.is_some();
            let named_service = named(root.get("services").items().iter(), service);
            let named_route = named(routes, route);
            if !is_there(service, named_service) || !is_there(route, named_route) {
                let reason =
                    "the files have no service or route of this name: it applies to none of their routes";
                self.notes.push(node.finding(&format!("name: {name}"), reason));
                continue;
            }
            let scope =
                PluginScope { service: named_service.or(scope.service), route: named_route.or(scope.route) };
            self.all.push(Plugin { node, name, scope, is_used: false });
        }
    }

    /// Notes on the plugins that no route has.
    pub fn unused(&self) -> Vec<Note> {
        let reason = "no route that was converted has this plugin";
        let unused = self.all.iter().filter(|plugin| !plugin.is_used);
        unused.map(|plugin| plugin.node.finding(&format!("name: {}", plugin.name), reason)).collect()
    }

    /// Adds the limits of a route's plugins to it. Of several plugins of a kind only the most specific one applies.
    pub fn apply(&mut self, scope: PluginScope<'_>, route: &mut TomlRoute) {
        let is_same = |own: Option<&DocNode>, of: Option<&DocNode>| match (own, of) {
            (Some(own), Some(of)) => std::ptr::eq(own, of),
            (own, _) => own.is_none(),
        };
        let mut best: Vec<(&str, u8, usize)> = Vec::new();
        for (index, plugin) in self.all.iter().enumerate() {
            let PluginScope { service, route } = plugin.scope;
            let fits = is_same(service, scope.service) && is_same(route, scope.route);
            let rank = u8::from(service.is_some()) + 2 * u8::from(route.is_some());
            if !fits {
                continue;
            }
            match best.iter_mut().find(|(name, ..)| *name == plugin.name) {
                Some(known) if known.1 >= rank => {}
                Some(known) => *known = (plugin.name, rank, index),
                None => best.push((plugin.name, rank, index)),
            }
        }
        let indices: Vec<usize> = best.into_iter().map(|(.., index)| index).collect();
        for index in indices {
            self.all[index].is_used = true;
            let (node, name) = (self.all[index].node, self.all[index].name);
            let text = format!("name: {name}");
            if name == "rate-limiting" {
                let limits = self.limits_of(index);
                route.limits.extend(limits);
            } else if name == "ip-restriction" {
                restrict_addresses(node, route);
            } else if name == "request-size-limiting" && limit_body(node, route) {
                route.uses.push(node.place.clone());
            } else if REPORTING.contains(&name) || name.ends_with("-log") {
                let reason =
                    "it concerns no responses: see `[log]`, the metrics of `[admin]`, and `[tracing]`";
                route.notes.push(node.finding(&text, reason).for_information());
            } else if !HARMLESS.contains(&name) {
                let reason = "it may restrict access, which is not converted: requests get 501 until you replace it, such as by \
                              `[consumers]` or `[jwt]`";
                route.notes.push(node.finding(&text, reason));
                route.target = TomlTarget::missing();
            } else {
                route.notes.push(node.finding(&text, "tidegate has no counterpart of this plugin"));
            }
        }
    }

    /// Adds notes on the lines of limits that some requests lose.
    pub fn lose(&mut self, names: &[String]) {
        let reason = "it is lost for the hosts or paths of its routes that are not converted";
        let limits = self.limits.iter().filter(|limit| names.contains(&limit.name));
        self.notes.extend(limits.flat_map(|limit| &limit.notes).filter_map(|note| match note {
            Note::Origin(place, text) => Some(Note::finding(place, text, reason).lost()),
            _ => None,
        }));
    }

    /// The names of the limits of a plugin, which are made if it is used for the first time.
    fn limits_of(&mut self, index: usize) -> Vec<String> {
        let Plugin { node, scope: own, .. } = self.all[index];
        if let Some((_, names)) = self.made.iter().find(|(made, _)| *made == index) {
            return names.clone();
        }
        let config = node.get("config");
        let (key, notes) = self.key(node, config, own.service.is_some());
        let base = own.route.or(own.service).map_or("all", |of| of.get("name").text().unwrap_or("limit"));
        let mut names = Vec::new();
        for (period, unit) in PERIODS {
            let value = config.get(period);
            if !value.is_present() {
                continue;
            }
            let text = format!("{period}: {}", value.text().unwrap_or_default());
            let Some(units) = value.number().filter(|units| *units > 0) else {
                let reason = "a limit has a whole number above 0: it is left out until you write one";
                self.notes.push(value.finding(&text, reason));
                continue;
            };
            let algorithm = TomlAlgorithm::FixedWindow { rate: format!("{units}/{unit}") };
            let name = self.names.unique(&format!("{base}-{period}"));
            let mut limit = Limit::new(name.clone(), algorithm, vec![key.clone()]);
            limit.notes.push(value.origin(&format!("rate-limiting, {text}")));
            limit.notes.extend(notes.iter().cloned());
            limit.on_store_failure = on_store_failure(config);
            self.limits.push(limit);
            names.push(name);
        }
        if PERIODS.iter().all(|(period, _)| !config.get(period).is_present()) {
            self.notes.push(node.finding("name: rate-limiting", "its `config` here has no limits"));
        }
        self.settings(node, config);
        self.made.push((index, names.clone()));
        names
    }

    /// The key part of a plugin, which may be that of one service, and notes on it.
    fn key(&self, node: &DocNode, config: &DocNode, is_of_service: bool) -> (String, Vec<Note>) {
        let by = config.get("limit_by").text().unwrap_or("consumer");
        let fail = |reason: &str| vec![node.finding(&format!("limit_by: {by}"), reason)];
        let address = "client_ip".to_owned();
        match by {
            "ip" => (address, Vec::new()),
            "service" if is_of_service => ("global".to_owned(), Vec::new()),
            "service" => {
                let text =
                    "Kong counts each service by itself, and this limit all services of the plugin together.";
                ("global".to_owned(), vec![Note::text(text)])
            }
            "header" => match config.get("header_name").text() {
                Some(name) => (format!("header:{}", name.to_ascii_lowercase()), Vec::new()),
                None => (address, fail("`header_name` is missing: the limit counts by address")),
            },
            "consumer" | "credential" => {
                let auth = self.all.iter().find(|plugin| plugin.name == "key-auth");
                let Some(auth) = auth else {
                    let text = "Without a plugin for authentication Kong counts by address.";
                    return (address, vec![Note::text(text)]);
                };
                let name = auth.node.get("config").get("key_names").texts();
                let name = name.first().map_or("apikey", String::as_str).to_ascii_lowercase();
                let reason = "the limit counts by credential: with `[consumers]` use the key part `consumer`";
                (format!("header:{name}"), fail(reason))
            }
            "path" => {
                (address, fail("the limit counts by address: give the path a route with a limit of its own"))
            }
            _ => (address, fail("the limit counts by address")),
        }
    }

    /// Adds the store and the status of a plugin.
    fn settings(&mut self, node: &DocNode, config: &DocNode) {
        match config.get("policy").text() {
            Some("redis") => {
                let redis = config.get("redis");
                let value =
                    |name: &str| redis.get(name).text().or(config.get(&format!("redis_{name}")).text());
                let (host, port) = (value("host").unwrap_or("127.0.0.1"), value("port").unwrap_or("6379"));
                let database = value("database").unwrap_or("0");
                let scheme = if value("ssl") == Some("true") { "rediss" } else { "redis" };
                let mut notes = vec![node.origin("policy: redis")];
                if value("password").is_some() {
                    let reason = "add the password to the URL, such as redis://:${NAME}@… with a variable of the environment";
                    notes.push(config.finding("redis.password", reason));
                }
                let url = format!("{scheme}://{host}:{port}/{database}");
                self.store.get_or_insert(TomlStore { notes, url });
            }
            Some("cluster") => {
                let reason = "counts are kept in this process: share them with `[store]` and a Redis";
                self.notes.push(config.get("policy").finding("policy: cluster", reason));
            }
            _ => {}
        }
        let code = config.get("error_code").number().and_then(|code| u16::try_from(code).ok());
        let message = config.get("error_message").text();
        if code.is_some_and(|code| code != 429) || message.is_some() {
            let body = message.unwrap_or("API rate limit exceeded").to_owned();
            self.denied.get_or_insert(TomlDenied { notes: Vec::new(), status: code.unwrap_or(429), body });
        }
        let hides = config.get("hide_client_headers").is_true();
        let shown = (!hides).then_some("hide_client_headers");
        let known = [
            "day",
            "error_code",
            "error_message",
            "fault_tolerant",
            "header_name",
            "hour",
            "limit_by",
            "minute",
            "month",
            "path",
            "policy",
            "redis",
            "second",
            "sync_rate",
            "year",
        ];
        let is_redis = |note: &Note| note.to_string().contains("`redis_");
        let known: Vec<&str> = known.into_iter().chain(shown).collect();
        let remarks = config.remarks(&known);
        self.notes.extend(remarks.into_iter().filter(|note| !is_redis(note)));
    }
}

/// Refuses the addresses that a plugin refuses.
fn restrict_addresses(node: &DocNode, route: &mut TomlRoute) {
    let config = node.get("config");
    route.notes.extend(config.remarks(&["allow", "deny", "whitelist", "blacklist"]));
    let mut is_empty = true;
    for (names, is_within) in [(["deny", "blacklist"], true), (["allow", "whitelist"], false)] {
        let networks: Vec<String> = names.iter().flat_map(|name| config.get(name).texts()).collect();
        if networks.is_empty() {
            continue;
        }
        is_empty = false;
        match Condition::client_ip(&networks, is_within) {
            Ok(condition) => route.refuse(condition, &node.place, "name: ip-restriction"),
            Err(reason) => {
                let reason = format!("{reason}: requests get 501 until you replace it");
                route.notes.push(node.finding("name: ip-restriction", reason));
                route.target = TomlTarget::missing();
            }
        }
    }
    if is_empty {
        route.notes.push(
            node.finding("name: ip-restriction", "it has no list of addresses, so it refuses no request"),
        );
    }
}

/// The value of `on_store_failure`, where it is not the default.
fn on_store_failure(config: &DocNode) -> Option<&'static str> {
    if config.get("policy").text() != Some("redis") {
        return None;
    }
    // The default of Kong is `true`.
    Some(if config.get("fault_tolerant").text() == Some("false") { "deny" } else { "allow" })
}
