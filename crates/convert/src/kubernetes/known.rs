//! The names of annotations, and what they do to requests.

use crate::nginx::may_restrict;

/// What the names of the annotations begin with.
pub(super) const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Beginnings of the names of annotations that are no settings of a proxy.
const FOREIGN: [&str; 11] = [
    "app.kubernetes.io/",
    "argocd.argoproj.io/",
    "cert-manager.io/",
    "acme.cert-manager.io/",
    "external-dns.alpha.kubernetes.io/",
    "field.cattle.io/",
    "helm.sh/",
    "kubectl.kubernetes.io/",
    "kubernetes.io/ingress.class",
    "kubernetes.io/tls-acme",
    "meta.helm.sh/",
];
/// Annotations that limit requests, connections or bytes.
const LIMITS: [&str; 5] = ["global-rate-limit", "limit-connections", "limit-rate", "limit-rpm", "limit-rps"];
/// Annotations that restrict access in ways that are not converted.
pub(super) const CLOSING: [&str; 9] = [
    "auth-secret",
    "auth-tls-secret",
    "auth-type",
    "auth-url",
    "enable-modsecurity",
    "enable-owasp-core-rules",
    "modsecurity-snippet",
    "ssl-passthrough",
    "stream-snippet",
];
/// Annotations with nginx directives.
pub(super) const SNIPPETS: [&str; 2] = ["configuration-snippet", "server-snippet"];
/// Annotations of networks of clients.
const NETWORKS: [&str; 3] = ["allowlist-source-range", "denylist-source-range", "whitelist-source-range"];
/// Annotations that are read with others.
pub(super) const READ_WITH_OTHERS: [&str; 10] = [
    "force-ssl-redirect",
    "limit-allowlist",
    "limit-burst-multiplier",
    "limit-whitelist",
    "permanent-redirect-code",
    "rewrite-target",
    "service-upstream",
    "ssl-redirect",
    "temporal-redirect-code",
    "use-regex",
];
/// Advice about annotations that are not converted, by the beginning of their name.
pub(super) const ADVICE: [(&str, &str); 14] = [
    ("affinity", "see `balance` of the upstream, such as \"hash:cookie:NAME\""),
    ("auth-", "it belongs to a restriction that is not converted"),
    ("cors-", "set `cors` of the route"),
    ("custom-http-errors", "see `[answers]` for the bodies of tidegate's own responses"),
    ("enable-cors", "set `cors` of the route"),
    ("limit-rate", "tidegate does not limit the rate of bytes"),
    ("load-balance", "see `balance` of the upstream"),
    ("proxy-connect-timeout", "set `connect_timeout` of the upstream"),
    ("proxy-next-upstream", "see `retries` of the route"),
    ("proxy-send-timeout", "see `stall_timeout` of the upstream"),
    ("proxy-ssl-", "see `tls` of the upstream"),
    ("satisfy", "it combines the restrictions of the Ingress: all of them apply here"),
    ("session-cookie-", "see `balance` of the upstream, such as \"hash:cookie:NAME\""),
    ("global-rate-limit", "write a limit with `[store]`: its count is that of all replicas"),
];

/// What an annotation does to requests: `Some(true)` is a limit, `Some(false)` another restriction of access.
pub(super) fn restricts(name: &str, value: &str) -> Option<bool> {
    let is_off = matches!(value, "" | "false" | "0");
    let Some(name) = name.strip_prefix(PREFIX) else { return is_foreign(name).then_some(false) };
    if is_off {
        None
    } else if LIMITS.contains(&name) {
        Some(true)
    } else {
        let restricts = CLOSING.contains(&name)
            || NETWORKS.contains(&name)
            || SNIPPETS.contains(&name) && may_restrict(value);
        restricts.then_some(false)
    }
}

/// Whether an annotation is a setting of another controller.
pub(super) fn is_foreign(name: &str) -> bool {
    let is_known = FOREIGN.iter().any(|start| name.starts_with(start));
    let controllers = ["ingress", "haproxy", "konghq.com/", "nginx.", "traefik", "gce", "azure"];
    !is_known && controllers.iter().any(|word| name.contains(word))
}
