//! Annotations of ingress-nginx.

use super::controller::Controller;
use super::known::{ADVICE, CLOSING, PREFIX, READ_WITH_OTHERS, SNIPPETS, is_foreign, restricts};
use super::objects::Object;
use crate::document::DocNode;
use crate::duration::timeout;
use crate::model::{Condition, Limit, Test, TomlAlgorithm, TomlRoute, TomlTarget, TomlUpstream, UniqueNames};
use crate::nginx::{MOST_IN_FLIGHT, hash_balance, may_restrict, rate, redirect_location, size};
use crate::note::Note;
use crate::route::is_literal;

/// The settings of an Ingress.
#[derive(Default)]
pub(super) struct IngressSettings<'d> {
    /// What its routes have in common.
    pub route: TomlRoute,
    pub limits: Vec<Limit>,
    pub upstream: TomlUpstream,
    pub is_https: bool,
    pub rewrite_target: Option<&'d DocNode>,
    pub uses_regexes: bool,
    pub aliases: Vec<String>,
    /// Where requests for `/` are sent.
    pub app_root: Option<String>,
    /// Whether requests by plain HTTP are sent to HTTPS, if that is known.
    pub redirects_to_https: Option<bool>,
    /// Whether all requests for its hosts get 501, also those of other Ingresses.
    pub closes_hosts: bool,
}

/// The settings of an Ingress. `names` are those of limits.
pub(super) fn settings<'d>(
    ingress: &Object<'d>,
    controller: &Controller,
    names: &mut UniqueNames,
) -> IngressSettings<'d> {
    let annotations = ingress.node.get("metadata").get("annotations");
    let of = |name: &str| annotations.get(&format!("{PREFIX}{name}"));
    let target = of("rewrite-target");
    let mut found = IngressSettings {
        uses_regexes: of("use-regex").is_true(),
        rewrite_target: target.text().is_some_and(|text| !text.is_empty()).then_some(target),
        redirects_to_https: match (of("force-ssl-redirect").is_true(), of("ssl-redirect").is_false()) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        },
        ..IngressSettings::default()
    };
    controller.closing.iter().for_each(|note| found.close(note.clone()));
    // Redirects come last: what is not converted closes the routes, whatever the order.
    let is_redirect =
        |name: &str| name.ends_with("/permanent-redirect") || name.ends_with("/temporal-redirect");
    let (redirects, others): (Vec<_>, Vec<_>) =
        annotations.entries().iter().partition(|(name, _)| is_redirect(name));
    for (name, value) in others.into_iter().chain(redirects) {
        let text = value.text().unwrap_or("");
        match name.strip_prefix(PREFIX) {
            Some(name) => {
                let annotation = Annotation { name, value, text, all: annotations };
                found.add(&annotation, ingress, controller, names);
            }
            None if is_foreign(name) => {
                let reason = "it may be a setting of another controller that restricts access: requests get 501 until you replace it";
                found.close(value.finding(&format!("{name}: {text}"), reason));
            }
            None => {}
        }
    }
    if found.is_https {
        let text = "nginx verifies the certificates of servers only with `proxy-ssl-verify: \"on\"`; tidegate always does.";
        found.upstream.notes.push(Note::text(text));
    }
    // A redirect comes before limits and networks.
    if matches!(found.route.target, TomlTarget::Redirect { .. }) {
        let reason = "the redirect comes before it: it has no effect";
        let route = &mut found.route;
        let of_limits = found.limits.drain(..).flat_map(|limit| limit.notes);
        let notes = of_limits.chain(route.refused.drain(..).map(|(_, note)| note));
        route.notes.extend(notes.filter_map(|note| match note {
            Note::Origin(place, text) => Some(Note::finding(&place, &text, reason)),
            _ => None,
        }));
        route.limits.clear();
        route.uses.clear();
    }
    found
}

/// An annotation, without the beginning of its name.
struct Annotation<'a, 'd> {
    name: &'a str,
    value: &'d DocNode,
    text: &'a str,
    all: &'d DocNode,
}

impl Annotation<'_, '_> {
    fn finding(&self, reason: impl Into<String>) -> Note {
        self.value.finding(&self.line(), reason)
    }

    fn line(&self) -> String {
        format!("{}: {}", self.name, self.text)
    }

    /// The value of another annotation.
    fn other(&self, name: &str) -> Option<&str> {
        self.all.get(&format!("{PREFIX}{name}")).text()
    }
}

/// The texts of a list with commas.
pub(super) fn listed(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

impl<'d> IngressSettings<'d> {
    /// Lets all requests get 501, for this reason.
    fn close(&mut self, note: Note) {
        self.route.notes.push(note);
        self.route.target = TomlTarget::missing();
    }

    fn add(
        &mut self,
        annotation: &Annotation<'_, 'd>,
        ingress: &Object<'_>,
        controller: &Controller,
        names: &mut UniqueNames,
    ) {
        let (name, text) = (annotation.name, annotation.text);
        match name {
            "limit-rps" | "limit-rpm" | "limit-connections" => match limit(annotation, controller) {
                Ok(Some(limit)) => {
                    let wanted = format!("{}-{}", ingress.name, name.trim_start_matches("limit-"));
                    self.add_limit(annotation, Limit { name: names.unique(&wanted), ..limit });
                }
                Ok(None) => {}
                Err(note) => self.route.notes.push(note),
            },
            "whitelist-source-range" | "allowlist-source-range" | "denylist-source-range"
                if !text.is_empty() =>
            {
                match Condition::client_ip(&listed(text), name.starts_with("deny")) {
                    Ok(condition) => {
                        self.route.refuse(condition, &annotation.value.place, &annotation.line());
                    }
                    Err(reason) => {
                        let reason = format!("{reason}: requests get 501 until you replace it");
                        self.close(annotation.finding(reason));
                    }
                }
            }
            _ if CLOSING.contains(&name) && restricts(&format!("{PREFIX}{name}"), text).is_some() => {
                let reason = "it restricts access, which is not converted: requests get 501 until you replace it, such as by \
                              `[consumers]`, `[jwt]` or `client_ca`";
                self.closes_hosts |= matches!(name, "auth-tls-secret" | "ssl-passthrough");
                self.close(annotation.finding(reason));
            }
            _ if SNIPPETS.contains(&name) && may_restrict(text) => {
                let reason = "its directives may restrict access, or change paths: requests get 501 until you replace it";
                self.closes_hosts |= name == "server-snippet";
                self.close(annotation.finding(reason));
            }
            "permanent-redirect" | "temporal-redirect" => self.redirect(annotation),
            "app-root" if redirect_location(text).is_some() => self.app_root = redirect_location(text),
            "server-alias" => {
                for alias in listed(text) {
                    if alias.starts_with('~') {
                        self.route
                            .notes
                            .push(annotation.finding("a host of a route is no regular expression"));
                    } else {
                        self.aliases.push(alias);
                    }
                }
            }
            _ => self.forwarding(annotation),
        }
    }

    fn add_limit(&mut self, annotation: &Annotation<'_, 'd>, mut limit: Limit) {
        let exempt = annotation.other("limit-allowlist").or(annotation.other("limit-whitelist"));
        match Condition::client_ip(&listed(exempt.unwrap_or("")), true) {
            Ok(Condition { test: Test::Any(networks), .. }) => limit.allow = networks,
            _ if exempt.is_none() => {}
            _ => limit
                .notes
                .push(annotation.finding("`limit-whitelist` names no networks: no client is exempt")),
        }
        self.route.limits.push(limit.name.clone());
        self.route.uses.push(annotation.value.place.clone());
        self.limits.push(limit);
    }

    /// Sets what concerns servers.
    fn forwarding(&mut self, annotation: &Annotation<'_, 'd>) {
        let (name, text) = (annotation.name, annotation.text);
        let number = text.parse::<u64>().ok();
        match (name, number) {
            ("proxy-body-size", _) if size(text).is_some() => self.route.max_body = size(text).flatten(),
            ("proxy-read-timeout", Some(seconds @ 1..)) => {
                self.route.timeout = timeout(seconds.saturating_mul(1_000));
            }
            ("proxy-next-upstream-tries", Some(tries @ 1..)) => self.route.retries = Some((tries - 1).min(5)),
            ("upstream-vhost", _) => self.route.rewrite_host = Some(text.to_owned()),
            ("x-forwarded-prefix", _) if is_literal(text) => {
                self.route.set_headers.push((name.to_owned(), text.to_owned()));
            }
            ("x-forwarded-prefix", _) => {
                let reason = "a text in braces would be a placeholder: servers do not get the header";
                self.route.notes.push(annotation.finding(reason));
                self.route.remove_headers.push(name.to_owned());
            }
            ("backend-protocol", _) => match text.to_ascii_uppercase().as_str() {
                "HTTP" => {}
                "HTTPS" => self.is_https = true,
                "GRPC" => self.upstream.speaks_h2 = true,
                "GRPCS" => (self.is_https, self.upstream.speaks_h2) = (true, true),
                _ => self.close(annotation.finding("tidegate forwards HTTP only: requests get 501")),
            },
            ("upstream-hash-by", _) if hash_balance(text).is_some() => {
                self.upstream.balance = hash_balance(text);
            }
            _ if READ_WITH_OTHERS.contains(&name) => {}
            _ => {
                let advice = ADVICE.iter().find(|(start, _)| name.starts_with(start));
                let reason = advice.map_or("tidegate has no counterpart", |(_, advice)| advice);
                self.route.notes.push(annotation.finding(reason));
            }
        }
    }

    /// Redirects all requests; `temporal-redirect` is preferred.
    fn redirect(&mut self, annotation: &Annotation<'_, 'd>) {
        let is_temporal = annotation.name == "temporal-redirect";
        if !is_temporal && annotation.other("temporal-redirect").is_some() {
            self.route.notes.push(annotation.finding("`temporal-redirect` is preferred"));
            return;
        }
        let (key, default) =
            if is_temporal { ("temporal-redirect-code", 302) } else { ("permanent-redirect-code", 301) };
        let code = annotation.other(key).and_then(|code| code.parse().ok());
        let status = code.filter(|code| matches!(code, 301..=303 | 307 | 308)).unwrap_or(default);
        match redirect_location(annotation.text) {
            // Restrictions that are not converted close the route.
            Some(_) if self.route.target == TomlTarget::missing() => {
                let reason =
                    "a restriction of this Ingress is not converted: requests get 501 until you replace it";
                self.route.notes.push(annotation.finding(reason));
            }
            Some(location) => self.route.target = TomlTarget::Redirect { status, location },
            None => {
                self.close(annotation.finding("a redirect of tidegate has no such target: requests get 501"));
            }
        }
    }
}

/// The limit of an annotation, without its name; none if it does not limit.
fn limit(annotation: &Annotation<'_, '_>, controller: &Controller) -> Result<Option<Limit>, Note> {
    let [of_requests, of_connections] = controller.statuses;
    let number: u64 = annotation.text.parse().map_err(|_| annotation.finding("it is no number"))?;
    let made = |algorithm, status, rounded: Option<String>| {
        let mut limit = Limit::new(String::new(), algorithm, vec!["client_ip".to_owned()]);
        limit.deny_status = Some(status);
        limit.notes.push(annotation.value.origin(&annotation.line()));
        limit.notes.extend(rounded.map(Note::text));
        Ok(Some(limit))
    };
    if number == 0 {
        return Ok(None);
    }
    if annotation.name == "limit-connections" {
        if number > MOST_IN_FLIGHT {
            return Err(annotation.finding(format!("max_in_flight is a number from 1 to {MOST_IN_FLIGHT}")));
        }
        return made(TomlAlgorithm::Concurrency { max_in_flight: number }, of_connections, None);
    }
    let unit = if annotation.name == "limit-rps" { "s" } else { "m" };
    let rate = rate(&format!("{number}r/{unit}")).ok_or_else(|| annotation.finding("it is no rate"))?;
    let multiplier =
        annotation.other("limit-burst-multiplier").and_then(|text| text.parse().ok()).unwrap_or(5);
    let burst = number.saturating_mul(multiplier);
    made(TomlAlgorithm::Gcra { rate: rate.text, burst }, of_requests, rate.rounded)
}
