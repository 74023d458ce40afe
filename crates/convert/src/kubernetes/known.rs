//! The names of annotations, and what they do to requests.

use super::objects::Object;
use crate::document::{DocNode, boolean};
use crate::nginx::may_restrict;

/// What the names of the annotations begin with.
pub(super) const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// Domains whose annotations are no settings of a proxy, as those of their subdomains. An annotation of any other domain may be
/// one that restricts access.
const HARMLESS: [&str; 28] = [
    "app.gitlab.com",
    "app.kubernetes.io",
    "app.openshift.io",
    "argoproj.io",
    "backstage.io",
    "cattle.io",
    "cert-manager.io",
    "cert-manager.k8s.io",
    "certmanager.k8s.io",
    "checksum",
    "config.k8s.io",
    "config.kubernetes.io",
    "datadoghq.com",
    "deployment.kubernetes.io",
    "dns.alpha.kubernetes.io",
    "external-dns.alpha.kubernetes.io",
    "fluxcd.io",
    "gethomepage.dev",
    "hajimari.io",
    "helm.sh",
    "internal.config.kubernetes.io",
    "k14s.io",
    "k8slens.dev",
    "kubectl.kubernetes.io",
    "prometheus.io",
    "pulumi.com",
    "reloader.stakater.com",
    "skaffold.dev",
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
/// Those of them that are booleans.
const BOOLEANS: [&str; 3] = ["enable-modsecurity", "enable-owasp-core-rules", "ssl-passthrough"];
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

/// The value of an annotation of ingress-nginx.
pub(super) fn annotation<'d>(ingress: &Object<'d>, name: &str) -> &'d DocNode {
    ingress.node.get("metadata").get("annotations").get(&format!("{PREFIX}{name}"))
}

/// What an annotation does to requests: `Some(true)` is a limit, `Some(false)` another restriction of access.
pub(super) fn restricts(name: &str, value: &str) -> Option<bool> {
    let Some(name) = name.strip_prefix(PREFIX) else { return is_foreign(name).then_some(false) };
    let can_be_off = LIMITS.contains(&name) || BOOLEANS.contains(&name);
    let is_off = can_be_off && boolean(value) == Some(false);
    if is_off || value.is_empty() {
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

/// Whether an annotation is, or may be, a setting of another controller. Those without a domain are the user's own.
pub(super) fn is_foreign(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else { return false };
    if domain == "kubernetes.io" {
        return rest.starts_with("ingress.") && rest != "ingress.class";
    }
    let is_within = |known: &&str| {
        domain.strip_suffix(*known).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    !HARMLESS.iter().any(is_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_unknown_domains_may_restrict_access() {
        for name in [
            "k8s.apisix.apache.org/auth-type",
            "higress.io/whitelist-source-range",
            "zalando.org/skipper-filter",
            "projectcontour.io/auth",
            "openresty.org/deny",
            "custom.ingress.kubernetes.io/auth-url",
            "kubernetes.io/ingress.allow-http",
            "nothelm.sh/x",
        ] {
            assert_eq!(restricts(name, "x"), Some(false), "{name}");
        }
        for name in [
            "kubernetes.io/ingress.class",
            "kubernetes.io/tls-acme",
            "cert-manager.io/cluster-issuer",
            "acme.cert-manager.io/http01-edit-in-place",
            "meta.helm.sh/release-name",
            "kubectl.kubernetes.io/last-applied-configuration",
            "argocd.argoproj.io/sync-wave",
            "prometheus.io/scrape",
            "owner",
        ] {
            assert_eq!(restricts(name, "x"), None, "{name}");
        }
    }

    #[test]
    fn booleans_are_off_in_all_their_forms() {
        for (name, value, expected) in [
            ("enable-modsecurity", "False", None),
            ("enable-modsecurity", "True", Some(false)),
            ("enable-modsecurity", "yes", Some(false)),
            ("limit-rps", "0", None),
            ("limit-rps", "1", Some(true)),
            ("auth-type", "", None),
            ("auth-url", "false", Some(false)),
        ] {
            assert_eq!(restricts(&format!("{PREFIX}{name}"), value), expected, "{name}: {value}");
        }
    }
}
