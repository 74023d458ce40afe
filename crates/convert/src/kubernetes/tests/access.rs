//! Restrictions of access that are not converted.

use super::{converted, http_route, ingress, routes};

#[test]
fn settings_of_the_controller_close_all_ingresses() {
    for (data, expected) in [
        ("whitelist-source-range: 10.0.0.0/8", "501"),
        ("enable-modsecurity: \"True\"", "501"),
        ("enable-owasp-modsecurity-crs: \"true\"", "501"),
        ("enable-modsecurity: \"false\"", "s"),
        ("server-snippet: \"allow 10.0.0.0/8; deny all;\"", "501"),
        ("location-snippet: \"deny all;\"", "501"),
        ("http-snippet: \"map $a $b { }\"", "501"),
        ("http-snippet: \"gzip on;\"", "s"),
        ("limit-req-status-code: \"429\"", "s"),
    ] {
        let map = format!("---\nkind: ConfigMap\ndata: {{ {data} }}\n");
        let found = converted(&(ingress("", "a.test", "/") + &map));
        assert_eq!(routes(&found), [format!("a.test/* {expected}")], "{data}");
        let restricting = usize::from(expected == "501");
        assert_eq!((found.account.access.all, found.account.lost), (restricting, 0), "{data}");
    }
}

#[test]
fn objects_that_restrict_what_they_select_are_open() {
    for (kind, spec, is_open) in [
        ("AuthorizationPolicy", "action: DENY, rules: [{ }]", true),
        ("RequestAuthentication", "jwtRules: [{ issuer: a }]", true),
        ("PeerAuthentication", "mtls: { mode: STRICT }", true),
        ("EnvoyFilter", "configPatches: []", true),
        ("WasmPlugin", "url: a", true),
        ("NetworkPolicy", "podSelector: {}", true),
        ("CiliumNetworkPolicy", "endpointSelector: {}", true),
        ("SecurityPolicy", "targetRef: { kind: HTTPRoute, name: other }, jwt: {}", true),
        ("SecurityPolicy", "targetRef: { kind: HTTPRoute, name: r }, jwt: {}", false),
        ("AuthorizationPolicy", "targetRef: { kind: HTTPRoute, name: r }", false),
    ] {
        let object = format!("---\nkind: {kind}\nmetadata: {{ name: p }}\nspec: {{ {spec} }}\n");
        let found = converted(&(http_route("r", "a.test", "") + &object));
        let findings = found.findings();
        let has_remark = findings.iter().any(|it| it.reason.starts_with("ACCESS IS OPEN"));
        assert_eq!(has_remark, is_open, "{kind} {spec}: {findings:?}");
        assert_eq!(routes(&found), [if is_open { "a.test/* r" } else { "a.test/* 501" }], "{kind} {spec}");
        let access = found.account.access;
        assert_eq!((access.converted, access.all, found.account.lost), (0, 1, 0), "{kind} {spec}");
    }
}
