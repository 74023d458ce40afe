//! Policies of Envoy Gateway for Gateways and `HTTPRoute`s.

use super::objects::{Object, Objects};
use super::rules::{RateRule, rule, split};
use crate::document::DocNode;
use crate::duration::shown;
use crate::model::{Limit, TomlAlgorithm, TomlRoute, TomlTarget, UniqueNames};
use crate::nginx::{milliseconds, size};
use crate::note::{FileLine, Note};

/// Policies that restrict no access.
const HARMLESS: [&str; 3] = ["BackendTLSPolicy", "BackendTrafficPolicy", "ReferenceGrant"];

/// Kinds that restrict access to what they select, by labels or in a whole namespace.
const RESTRICTING: [&str; 11] = [
    "AuthorizationPolicy",
    "CiliumClusterwideEnvoyConfig",
    "CiliumEnvoyConfig",
    "EnvoyFilter",
    "KongClusterPlugin",
    "MeshTrafficPermission",
    "PeerAuthentication",
    "RequestAuthentication",
    "ServerAuthorization",
    "ServiceIntentions",
    "WasmPlugin",
];

/// Advice about fields that are not converted.
const ADVICE: [(&str, &str); 2] = [
    ("circuitBreaker", "see `max_connections`, `max_pending` and `max_requests_per_client` of the upstream"),
    ("healthCheck", "see `health` and `eject` of the upstream"),
];

/// The policies, and the limits that were made of them.
pub(super) struct Policies<'d> {
    objects: &'d Objects<'d>,
    /// The names of limits, with the places of their rules and the routes that count by themselves.
    made: Vec<(FileLine, String, String)>,
    used: Vec<&'d DocNode>,
    pub limits: Vec<Limit>,
    /// Whether a limit is counted by each Envoy.
    pub has_local: bool,
}

/// Whether an object restricts access to the Gateways and routes that it targets.
pub(super) fn closes(object: &Object<'_>) -> bool {
    let kind = object.node.get("kind").text().unwrap_or("");
    let has_target =
        ["targetRef", "targetRefs", "targetSelectors"].iter().any(|key| object.spec.get(key).is_present());
    let is_plain = match kind {
        "ClientTrafficPolicy" => !object.spec.get("tls").get("clientValidation").is_present(),
        "SecurityPolicy" => {
            object.spec.entries().iter().all(|(key, _)| key == "cors" || key.starts_with("target"))
        }
        _ => HARMLESS.contains(&kind),
    };
    has_target && !is_plain
}

/// Whether an object restricts access to what it selects, or to all in its namespace or cluster.
pub(super) fn restricts(object: &Object<'_>) -> bool {
    let kind = object.node.get("kind").text().unwrap_or("");
    !closes(object) && (RESTRICTING.contains(&kind) || kind.ends_with("NetworkPolicy"))
}

/// Whether a policy closes an `HTTPRoute`.
pub(super) fn is_applied(objects: &Objects<'_>, policy: &Object<'_>) -> bool {
    objects.of_kind("HTTPRoute").any(|route| level(objects, policy, &route, None).is_some())
}

/// How specifically a policy targets a rule of a route: a part of it, the whole, or its Gateway.
fn level(
    objects: &Objects<'_>,
    policy: &Object<'_>,
    route: &Object<'_>,
    rule: Option<&DocNode>,
) -> Option<u8> {
    let rule_name = rule.and_then(|rule| rule.get("name").text());
    let parents = || route.spec.get("parentRefs").items().iter();
    let is_parent = |name: &str| {
        parents().any(|parent| {
            parent.get("name").text() == Some(name)
                && parent.get("namespace").text().unwrap_or(route.namespace) == policy.namespace
        })
    };
    let references = policy.spec.get("targetRefs").items().iter().chain([policy.spec.get("targetRef")]);
    let by_name = references.filter_map(|target| {
        let (kind, name) = (target.get("kind").text()?, target.get("name").text()?);
        let section = target.get("sectionName").text();
        match kind {
            "HTTPRoute" if (policy.namespace, name) == (route.namespace, route.name) => match section {
                None => Some(2),
                Some(_) => (rule.is_none() || section == rule_name).then_some(3),
            },
            "Gateway" if is_parent(name) => Some(u8::from(section.is_some())),
            _ => None,
        }
    });
    let by_label = policy.spec.get("targetSelectors").items().iter().filter_map(|selector| {
        let selected = |node: &DocNode| {
            let labels = node.get("metadata").get("labels");
            let mut wanted = selector.get("matchLabels").entries().iter();
            wanted.all(|(name, value)| labels.get(name).text() == value.text())
        };
        match selector.get("kind").text()? {
            "HTTPRoute" => {
                let is_there = selector.get("namespaces").is_present() || route.namespace == policy.namespace;
                (is_there && selected(route.node)).then_some(2)
            }
            "Gateway" => {
                let mut gateways = objects.of_kind("Gateway").filter(|gateway| is_parent(gateway.name));
                gateways.any(|gateway| selected(gateway.node)).then_some(0)
            }
            _ => None,
        }
    });
    by_name.chain(by_label).max()
}

impl<'d> Policies<'d> {
    /// The policies among these objects.
    pub fn new(objects: &'d Objects<'d>) -> Self {
        Self { objects, made: Vec::new(), used: Vec::new(), limits: Vec::new(), has_local: false }
    }

    /// The policies that apply to a rule: the most specific one, and the others if it is merged with them.
    fn of(objects: &'d Objects<'d>, route: &Object<'_>, rule: &DocNode) -> Vec<Object<'d>> {
        let all = objects.of_kind("BackendTrafficPolicy");
        let mut found: Vec<(u8, Object<'d>)> =
            all.filter_map(|policy| Some((level(objects, &policy, route, Some(rule))?, policy))).collect();
        found.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        // Of several with the same target the oldest applies.
        found.dedup_by_key(|(level, _)| *level);
        let merges = |policy: &Object<'_>| policy.spec.get("mergeType").is_present();
        let count = found.iter().take_while(|(_, policy)| merges(policy)).count() + 1;
        found.into_iter().take(count).map(|(_, policy)| policy).collect()
    }

    /// Sets timeouts, retries and sizes of a route. Returns the balancing of its upstream.
    pub fn settings(&mut self, route: &Object<'_>, rule: &DocNode, base: &mut TomlRoute) -> Option<String> {
        let mut balance = None;
        for policy in Self::of(self.objects, route, rule).iter().rev() {
            let is_new = !self.used.iter().any(|known| std::ptr::eq(*known, policy.node));
            self.used.push(policy.node);
            let mut notes = vec![policy.origin()];
            set_forwarding(policy.spec, base, &mut balance, &mut notes);
            base.notes.extend(notes.into_iter().filter(|_| is_new));
        }
        balance
    }

    /// Lets a route respond with 501 if other policies restrict access to it.
    pub fn close(&self, route: &Object<'_>, base: &mut TomlRoute) {
        for policy in self.objects.all().iter().filter(|object| closes(object)) {
            if level(self.objects, policy, route, None).is_some() {
                let reason = "it may restrict access, which is not converted: the requests of its routes get 501 until you replace it";
                base.notes.push(policy.finding(reason));
                base.target = TomlTarget::missing();
            }
        }
        for gateway in self.objects.of_kind("Gateway") {
            let is_parent = |it: &DocNode| it.get("name").text() == Some(gateway.name);
            let listeners = gateway.spec.get("listeners").items();
            let validates = gateway.spec.get("tls").get("frontend").is_present()
                || listeners.iter().any(|it| it.get("tls").get("frontendValidation").is_present());
            if validates && route.spec.get("parentRefs").items().iter().any(is_parent) {
                let reason = "it requires client certificates: requests get 501 until you set `client_ca` of the listener's `tls`";
                base.notes.push(gateway.finding(reason));
                base.target = TomlTarget::missing();
            }
        }
    }

    /// Notes on the policies that apply to no route.
    pub fn unused(&self) -> Vec<Note> {
        let is_used = |policy: &Object<'_>| self.used.iter().any(|known| std::ptr::eq(*known, policy.node));
        let unused = self.objects.of_kind("BackendTrafficPolicy").filter(|policy| !is_used(policy));
        unused.map(|policy| policy.finding("no HTTPRoute that was converted has this policy")).collect()
    }

    /// Notes that some requests lose the limits of a rule.
    pub fn lost(&self, route: &Object<'_>, rule: &DocNode) -> Vec<Note> {
        let policies = Self::of(self.objects, route, rule);
        let limits = policies.iter().map(|policy| policy.spec.get("rateLimit"));
        let rules = limits.flat_map(|it| {
            ["global", "local"].into_iter().flat_map(|kind| it.get(kind).get("rules").items())
        });
        rules
            .map(|rule| rule.finding("rateLimit rule", "it is lost for a match that is not converted").lost())
            .collect()
    }

    /// The routes of a rule with its limits: more routes, if some limits apply to some requests only.
    pub fn apply(
        &mut self,
        (route, node): (&Object<'_>, &DocNode),
        mut routes: Vec<TomlRoute>,
        names: &mut UniqueNames,
    ) -> Vec<TomlRoute> {
        for policy in Self::of(self.objects, route, node) {
            let limits = policy.spec.get("rateLimit");
            for (kind, is_local) in [("global", false), ("local", true)] {
                let (mut own, mut default): (Vec<String>, Option<RateRule<'_>>) = (Vec::new(), None);
                for node in limits.get(kind).get("rules").items() {
                    let rule = match rule(node, is_local) {
                        Ok(rule) => rule,
                        Err(reason) => {
                            add_note(&mut routes, node.finding("rateLimit rule", reason).lost());
                            continue;
                        }
                    };
                    if is_local && rule.is_unconditional() {
                        let reason = "Envoy Gateway has one rule without selectors";
                        match default {
                            Some(_) => add_note(&mut routes, node.finding("rateLimit rule", reason).lost()),
                            // It is that of the requests without another rule.
                            None => default = Some(rule),
                        }
                        continue;
                    }
                    let name = rule.rate.is_some().then(|| self.limit(&policy, route, &rule, names));
                    own.extend(name.clone());
                    routes = split(routes, &rule, name.as_deref());
                }
                if let Some(rule) = default {
                    let name = rule.rate.is_some().then(|| self.limit(&policy, route, &rule, names));
                    let has_own = |it: &TomlRoute| it.limits.iter().any(|limit| own.contains(limit));
                    routes = routes
                        .into_iter()
                        .flat_map(|it| {
                            if has_own(&it) { vec![it] } else { split(vec![it], &rule, name.as_deref()) }
                        })
                        .collect();
                }
            }
        }
        routes
    }

    /// The name of the limit of a rule, which is made if it is new: each route has counts of its own, unless they are shared.
    fn limit(
        &mut self,
        policy: &Object<'_>,
        route: &Object<'_>,
        rule: &RateRule<'_>,
        names: &mut UniqueNames,
    ) -> String {
        let is_shared = rule.node.get("shared").is_true();
        let of = if is_shared { String::new() } else { route.text() };
        let is_same =
            |(place, known, _): &&(FileLine, String, String)| *place == rule.node.place && *known == of;
        if let Some((.., name)) = self.made.iter().find(is_same) {
            return name.clone();
        }
        let is_first = self.made.iter().all(|(place, ..)| *place != rule.node.place);
        let wanted =
            if is_first { policy.name.to_owned() } else { format!("{}-{}", policy.name, route.name) };
        let name = names.unique(&wanted);
        let rate = rule.rate.clone().unwrap_or_default();
        let mut limit = Limit::new(name.clone(), TomlAlgorithm::FixedWindow { rate }, rule.key.clone());
        if limit.key.iter().any(|part| part.contains(':')) {
            // The rule is for requests with the header.
            limit.on_missing = Some("skip");
        }
        limit.is_shadow = rule.node.get("shadowMode").is_true();
        limit.notes.push(rule.node.origin(&format!("rule of {}", policy.text())));
        limit.notes.extend(rule.notes.iter().cloned());
        if rule.is_local {
            self.has_local = true;
            limit.notes.push(Note::text("Each Envoy counts by itself, from the time when it starts."));
        }
        self.limits.push(limit);
        self.made.push((rule.node.place.clone(), of, name.clone()));
        name
    }
}

fn add_note(routes: &mut [TomlRoute], note: Note) {
    if let Some(first) = routes.first_mut() {
        first.notes.push(note);
    }
}

/// Sets what a policy says about servers.
fn set_forwarding(spec: &DocNode, base: &mut TomlRoute, balance: &mut Option<String>, notes: &mut Vec<Note>) {
    let times = spec.get("timeout");
    let timeout = times.get("http").get("requestTimeout");
    match timeout.text().map(milliseconds) {
        Some(Some(milliseconds @ 1..)) => base.total_timeout = Some(shown(milliseconds)),
        None | Some(Some(0)) => {}
        Some(None) => notes.push(timeout.finding("timeout.http.requestTimeout", "this is no duration")),
    }
    notes.extend(times.remarks(&["http", "tcp"]));
    notes.extend(times.get("http").remarks_for(&["requestTimeout"], "see the timeouts of the upstream"));
    notes.extend(times.get("tcp").remarks_for(&[], "set `connect_timeout` of the upstream"));
    let retry = spec.get("retry");
    base.retries = retry.get("numRetries").number().map(|tries| tries.min(5)).or(base.retries);
    let reason = "see `retries` of the route: it has no statuses and pauses";
    notes.extend(retry.remarks_for(&["numRetries"], reason));
    let buffer = spec.get("requestBuffer").get("limit");
    match buffer.text().map(|text| size(text.trim_end_matches('i'))) {
        Some(Some(most)) => base.max_body = most,
        Some(None) => notes.push(buffer.finding("requestBuffer.limit", "see `max_body` of the route")),
        None => {}
    }
    let balancer = spec.get("loadBalancer");
    let (found, is_known) = balance_of(balancer);
    *balance = found.or(balance.take());
    let known: &[&str] = if is_known { &["consistentHash", "type"] } else { &[] };
    notes.extend(balancer.remarks_for(known, "see `balance` of the upstream"));
    notes.extend(spec.get("rateLimit").remarks(&["global", "local", "type"]));
    for (key, reason) in ADVICE {
        let node = spec.get(key);
        notes.extend(node.is_present().then(|| node.finding(key, reason)));
    }
    let converted = ["loadBalancer", "mergeType", "rateLimit", "requestBuffer", "retry", "timeout"];
    let targets = ["targetRef", "targetRefs", "targetSelectors"];
    let known = [&converted[..], &targets, &ADVICE.map(|(key, _)| key)].concat();
    notes.extend(spec.remarks(&known));
    for selector in spec.get("targetSelectors").items() {
        let reason = "labels are compared with texts: the policy applies to more routes";
        notes.extend(selector.remarks_for(&["group", "kind", "matchLabels", "namespaces"], reason));
    }
}

/// The `balance` of a load balancer, where it is not the default, and whether it is converted.
fn balance_of(balancer: &DocNode) -> (Option<String>, bool) {
    let hash = balancer.get("consistentHash");
    let name = |key: &str| hash.get(key).get("name").text();
    let found = match (balancer.get("type").text(), hash.get("type").text()) {
        (Some("RoundRobin"), _) => return (None, true),
        (Some("LeastRequest"), _) => Some("least_requests".to_owned()),
        (Some("ConsistentHash"), Some("SourceIP")) => Some("hash:client_ip".to_owned()),
        (Some("ConsistentHash"), Some("Header")) => {
            name("header").map(|name| format!("hash:header:{}", name.to_ascii_lowercase()))
        }
        (Some("ConsistentHash"), Some("Cookie")) => name("cookie").map(|name| format!("hash:cookie:{name}")),
        _ => None,
    };
    let is_known = found.is_some();
    (found, is_known)
}
