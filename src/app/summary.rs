//! What the log says of a configuration at the start, beside listeners, store and admin interface: an operator who reads it
//! knows what the process serves, and with which limits.

use crate::config::Loaded;
use crate::gate::{Gate, LimitRule};
use crate::limit::{Policy, PolicyId};
use crate::limiter::OnStoreFailure;
use crate::server::ListenerHandle;
use crate::store::StoreSpec;
use crate::text::{counted, join_and};
use crate::tls::ServerTls;
use crate::upstream::{ServerSpec, UpstreamSpec};

/// The most limits, and the most upstreams, that have a line each.
const MAX_LINES: usize = 20;
/// The most servers of an upstream that are named.
const MAX_SERVERS: usize = 5;

/// Where a listener listens, and how clients connect to it.
pub(super) fn listening(listener: &ListenerHandle, workers: usize) -> String {
    let spec = listener.spec();
    let tls = match &spec.tls {
        None => "",
        Some(tls) if ServerTls::requires_client_certificate(tls) => " by TLS with client certificates",
        Some(_) => " by TLS",
    };
    let proxy = if spec.proxy_protocol { " behind proxies that send PROXY headers" } else { "" };
    let purpose = if spec.forward_auth.is_some() { " for forward auth" } else { "" };
    format!("listening on {}{tls}{proxy}{purpose} with {}", listener.address(), counted(workers, "worker"))
}

/// The lines about routes, limits and upstreams; `file` is the name of the configuration file.
pub(super) fn lines(file: &str, loaded: &Loaded) -> Vec<String> {
    let snapshot = &loaded.config.snapshot;
    let gate = &snapshot.gate;
    let limits: Vec<String> = gate.limits().map(|(id, policy)| limit(loaded, id, policy)).collect();
    let upstreams: Vec<String> = snapshot.upstreams.iter().map(upstream).collect();
    let mut counts = vec![routes(gate), counted(limits.len(), "limit"), counted(upstreams.len(), "upstream")];
    let included = loaded.included.len();
    counts.extend((included > 0).then(|| counted(included, "included file")));
    let version = env!("CARGO_PKG_VERSION");
    let mut lines = vec![format!("tidegate {version} serves {file}: {}", join_and(&counts))];
    lines.extend(bounded(limits, "limit"));
    lines.extend(bounded(upstreams, "upstream"));
    lines
}

/// The number of routes, and how many of them have no limits.
fn routes(gate: &Gate) -> String {
    let routes = gate.routes.routes();
    let unlimited = routes.iter().filter(|route| route.limits.is_empty()).count();
    let counted = counted(routes.len(), "route");
    if unlimited == 0 { counted } else { format!("{counted} ({unlimited} without limits)") }
}

/// A limit: its numbers, its key, and what is special about it.
fn limit(loaded: &Loaded, id: PolicyId, policy: &Policy) -> String {
    let gate = &loaded.config.snapshot.gate;
    let rule: &LimitRule = &gate.limit_rules[id];
    let parts: Vec<String> = rule.key.parts.iter().map(ToString::to_string).collect();
    let (numbers, algorithm) = (&gate.numbers[id], policy.quota.algorithm().name());
    let first = format!("limit {}: {numbers} ({algorithm}) by {}", policy.name, join_and(&parts));
    let tiers = rule.tiers.as_ref().map_or(0, |tiers| tiers.all().count());
    let variants = [(tiers, "tier"), (rule.rules.overrides().count(), "override")];
    let variants =
        variants.iter().filter(|(count, _)| *count > 0).map(|(count, thing)| counted(*count, thing));
    let mode = policy.shadow.then(|| format!("in {} mode: it denies nothing", policy.mode()));
    let all: Vec<String> = [first].into_iter().chain(variants).chain(mode).collect();
    let on_failure = match (&loaded.config.store, gate.limits.on_failure[id]) {
        (StoreSpec::Memory, _) => "",
        (StoreSpec::Redis(_), OnStoreFailure::Allow) => "; in an outage it allows",
        (StoreSpec::Redis(_), OnStoreFailure::Deny) => "; in an outage it denies",
        (StoreSpec::Redis(_), OnStoreFailure::Local) => "; in an outage it counts here",
    };
    all.join(", ") + on_failure
}

/// An upstream with its servers, without their paths, which may be secrets.
fn upstream(spec: &UpstreamSpec) -> String {
    let mut servers: Vec<String> = spec.servers.iter().take(MAX_SERVERS).map(ServerSpec::label).collect();
    if spec.servers.len() > MAX_SERVERS {
        servers.push(format!("{} more", spec.servers.len() - MAX_SERVERS));
    }
    format!("upstream {}: {}", spec.label(), join_and(&servers))
}

/// The first lines, and the number of the others.
fn bounded(mut lines: Vec<String>, thing: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("and {}", counted(more, &format!("more {thing}"))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn summary(text: &str) -> Vec<String> {
        let loaded =
            config::parse(&format!("listen = \"127.0.0.1:0\"\n{text}"), "a.toml", &|_| None).unwrap();
        lines("a.toml", &loaded)
    }

    #[test]
    fn limits_and_upstreams_are_described() {
        let lines = summary(
            r#"
            [limits.per-key]
            algorithm = "gcra"
            rate = "100/minute"
            burst = 500
            key = ["header:x-api-key", "method"]
            tiers = { by = "method", POST = { burst = 9 } }
            overrides = { a = { burst = 19 }, b = { burst = 20 } }
            [limits.new]
            rate = "5/s"
            mode = "shadow"
            [upstreams.api]
            servers = ["http://10.0.0.1:80/hush", "http://10.0.0.2:81"]
            [[routes]]
            path = "/a"
            upstream = "api"
            limits = ["per-key", "new"]
            [[routes]]
            path = "/b"
            respond = {}
            "#,
        );
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            lines,
            [
                &*format!(
                    "tidegate {version} serves a.toml: 2 routes (1 without limits), 2 limits and 1 upstream"
                ),
                "limit per-key: 100/minute, burst 500 (gcra) by header:x-api-key and method, 1 tier, 2 overrides",
                "limit new: 5/s (token_bucket) by client_ip, in shadow mode: it denies nothing",
                "upstream api: http://10.0.0.1 and http://10.0.0.2:81",
            ]
        );
    }

    #[test]
    fn the_number_of_lines_is_bounded() {
        let limits: Vec<String> =
            (0..34).map(|number| format!("[limits.l{number}]\nrate = \"1/s\"\n")).collect();
        let lines = summary(&limits.concat());
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (22, "and 14 more limits"));
    }

    #[test]
    fn many_servers_are_counted() {
        let servers: Vec<String> = (0..9).map(|last| format!("\"http://10.0.0.{last}\"")).collect();
        let text = format!("[upstreams.api]\nservers = [{}]\n", servers.join(", "));
        assert!(summary(&text).last().unwrap().ends_with("http://10.0.0.4 and 4 more"));
    }
}
