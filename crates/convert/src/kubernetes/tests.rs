//! Objects and what becomes of them.

mod access;

use std::fmt::Write as _;
use std::path::Path;

use super::convert;
use crate::model::{Converted, TomlRoute, TomlTarget};
use crate::source::SourceFile;

fn converted(text: &str) -> Converted {
    let file = SourceFile { name: "f", text, directory: Path::new("") };
    let mut converted = convert(&[file]).unwrap();
    converted.add_refusals();
    crate::valid::correct(&mut converted);
    crate::account::account(&mut converted);
    converted
}

/// An Ingress with these annotations, and this host and path.
fn ingress(annotations: &str, host: &str, path: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: i, annotations: {{ {annotations} }} }}\nspec:\n  rules: [{{ \
         host: {host}, http: {{ paths: [{{ path: \"{path}\", pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 1 }} }} }} }}] }} }}]\n"
    )
}

/// The routes in short: scheme, host, path, and what they do.
fn routes(converted: &Converted) -> Vec<String> {
    let route = |route: &TomlRoute| {
        let mut text = String::new();
        if let Some(scheme) = route.scheme {
            write!(text, "{scheme}://").unwrap();
        }
        write!(text, "{}{} ", route.host.as_deref().unwrap_or(""), route.path).unwrap();
        for method in &route.methods {
            write!(text, "{method} ").unwrap();
        }
        for condition in &route.conditions {
            write!(text, "{} ", condition.name).unwrap();
        }
        for limit in &route.limits {
            write!(text, "{limit} ").unwrap();
        }
        match &route.target {
            TomlTarget::Upstream(name) => text + name,
            TomlTarget::Respond { status, .. } => text + &status.to_string(),
            TomlTarget::Redirect { location, .. } => text + location,
            other => text + &format!("{other:?}"),
        }
    };
    converted.routes.iter().map(route).collect()
}

/// Annotations, most of them of ingress-nginx.
const ANNOTATIONS: [&str; 47] = [
    "affinity",
    "app-root",
    "auth-realm",
    "auth-secret",
    "auth-signin",
    "auth-tls-secret",
    "auth-type",
    "auth-url",
    "backend-protocol",
    "canary-weight",
    "client-body-buffer-size",
    "configuration-snippet",
    "cors-allow-origin",
    "custom-headers",
    "custom-http-errors",
    "default-backend",
    "denylist-source-range",
    "enable-cors",
    "enable-modsecurity",
    "from-to-www-redirect",
    "global-rate-limit",
    "limit-connections",
    "limit-rate",
    "limit-rate-after",
    "limit-rpm",
    "limit-rps",
    "load-balance",
    "mirror-target",
    "modsecurity-snippet",
    "permanent-redirect",
    "proxy-body-size",
    "proxy-buffering",
    "proxy-read-timeout",
    "proxy-ssl-secret",
    "rewrite-target",
    "satisfy",
    "server-alias",
    "server-snippet",
    "session-cookie-name",
    "ssl-passthrough",
    "temporal-redirect",
    "upstream-hash-by",
    "upstream-vhost",
    "use-regex",
    "whitelist-source-range",
    "x-forwarded-prefix",
    "from-the-future",
];

#[test]
fn every_annotation_is_converted_or_named() {
    // Those that ingress-nginx ignores.
    let has_effect =
        |name: &str, value: &str| name != "x-forwarded-prefix" && (name != "use-regex" || value == "true");
    let plain = crate::toml(&converted(&ingress("", "a.test", "/a")), "");
    for name in ANNOTATIONS {
        for value in ["7", "x y $z", "/q", "true", "10.0.0.0/8", "GRPC"] {
            let found = converted(&ingress(
                &format!("nginx.ingress.kubernetes.io/{name}: \"{value}\""),
                "a.test",
                "/a",
            ));
            let is_named = found.findings().iter().any(|finding| finding.text.contains(name));
            assert!(
                is_named || crate::toml(&found, "") != plain || !has_effect(name, value),
                "{name}: {value}"
            );
            assert_eq!(found.account.lost, 0, "{name}: {value}");
        }
    }
}

#[test]
fn what_restricts_access_closes_routes() {
    let nginx = "nginx.ingress.kubernetes.io/";
    for (annotation, closes_host) in [
        (format!("{nginx}auth-type: basic"), false),
        (format!("{nginx}auth-url: \"http://x\""), false),
        (format!("{nginx}auth-tls-secret: a/b"), true),
        (format!("{nginx}whitelist-source-range: \"x\""), false),
        (format!("{nginx}enable-modsecurity: \"true\""), false),
        (format!("{nginx}configuration-snippet: \"deny all;\""), false),
        (format!("{nginx}configuration-snippet: \"not {{ nginx\""), false),
        (format!("{nginx}server-snippet: \"access_by_lua_block {{ }}\""), true),
        ("haproxy.org/allow-list: 10.0.0.0/8".to_owned(), false),
        ("alb.ingress.kubernetes.io/auth-type: oidc".to_owned(), false),
    ] {
        let found = converted(&(ingress(&annotation, "a.test", "/a") + &ingress("", "a.test", "/b")));
        let other = if closes_host { "501" } else { "s" };
        let expected = [
            "a.test/a 501",
            &format!("a.test/b {other}"),
            "a.test/a/* 501",
            &format!("a.test/b/* {other}"),
            "a.test/* 404",
        ];
        assert_eq!(routes(&found), expected, "{annotation}");
        assert_eq!((found.account.access.all, found.account.lost), (1, 0), "{annotation}");
    }
}

#[test]
fn a_route_that_gets_requests_of_a_closed_one_is_closed() {
    let closed = "nginx.ingress.kubernetes.io/use-regex: \"true\", nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8";
    let found = |other: &str| {
        let text =
            ingress(closed, "a.test", "/admin") + &ingress("", "a.test", "/").replace("name: s,", other);
        routes(&converted(&text))
    };
    // nginx ignores case, and the service may do so, too.
    assert_eq!(found("name: s,"), ["a.test/admin* client_ip Block", "a.test/admin* s", "a.test/* 501"]);
    assert_eq!(found("name: t,"), ["a.test/admin* client_ip Block", "a.test/admin* s", "a.test/* t"]);
    for (own, other, is_closed) in [
        ("/Admin", "/admin", true),
        ("/a.b/c", "/axb", true),
        ("/admins", "/.*php", true),
        ("/admin", "/other", false),
        ("/admin", "/adm$", false),
    ] {
        let text = ingress(closed, "a.test", own) + &ingress("", "a.test", other);
        let last = routes(&converted(&text)).into_iter().rfind(|route| !route.ends_with("404")).unwrap();
        assert_eq!(last.ends_with("501"), is_closed, "{own} {other}: {last}");
    }
}

/// An `HTTPRoute` with these matches.
fn http_route(name: &str, host: &str, matches: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: {name} }}\nspec:\n  hostnames: [\"{host}\"]\n  \
         rules: [{{ matches: [{matches}], backendRefs: [{{ name: {name}, port: 80 }}] }}]\n"
    )
}

#[test]
fn matches_are_in_the_order_of_the_gateway_api() {
    let text = http_route("e", "*.test", "{ }")
        + &http_route(
            "d",
            "a.test",
            "{ path: { value: / } }, { path: { value: / }, queryParams: [{ name: q, value: a }] }",
        )
        + &http_route(
            "c",
            "a.test",
            "{ path: { value: / }, headers: [{ name: X, value: a }] }, { path: { value: / }, method: GET }",
        )
        + &http_route("b", "a.test", "{ path: { value: /long } }, { path: { value: /longer } }")
        + &http_route(
            "a",
            "a.test",
            "{ path: { type: Exact, value: /x } }, { path: { type: RegularExpression, value: \"/r/[0-9]\" } }",
        );
    let expected = [
        "a.test/x a",
        "a.test/r/* 501",
        "a.test/longer b",
        "a.test/longer/* b",
        "a.test/long b",
        "a.test/long/* b",
        "a.test/* GET c",
        "a.test/* x c",
        "a.test/* q d",
        "a.test/* d",
        "*.test/* e",
    ];
    assert_eq!(routes(&converted(&text)), expected);
}

#[test]
fn limits_apply_to_the_requests_of_their_rules() {
    let policy = |target: &str, rules: &str| {
        format!(
            "---\napiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {{ name: p }}\nspec: {{ targetRefs: \
             [{{ kind: HTTPRoute, name: {target} }}], rateLimit: {{ global: {{ rules: [{rules}] }} }} }}\n"
        )
    };
    let rule = |selector: &str, requests: u64| {
        format!("{{ clientSelectors: [{{ {selector} }}], limit: {{ requests: {requests}, unit: Minute }} }}")
    };
    let of = |rules: &[String]| converted(&(http_route("r", "a.test", "") + &policy("r", &rules.join(", "))));
    let free = rule("headers: [{ name: X-Plan, value: free }]", 5).replacen('{', "{ name: free,", 1);
    let pro = rule("headers: [{ name: X-Plan, value: pro }]", 50);
    let not_free = rule("headers: [{ name: X-Plan, value: free, invert: true }]", 7);
    let banned = rule("sourceCIDR: { value: 10.0.0.0/8 }", 0);
    let distinct = rule("sourceCIDR: { type: Distinct, value: 0.0.0.0/0 }", 9);
    let found = of(&[distinct.clone(), free.clone(), pro]);
    assert_eq!(routes(&found), ["a.test/* x-plan p p-2 r", "a.test/* x-plan p p-3 r", "a.test/* p r"]);
    assert_eq!(found.account.limits.converted, 3);
    assert_eq!(routes(&of(&[banned]))[0], "a.test/* client_ip 429");
    let both = of(&[free.clone(), not_free.clone()]);
    assert_eq!(routes(&both), ["a.test/* x-plan p r", "a.test/* x-plan p-2 r", "a.test/* r"]);
    // No route has both conditions on one header.
    let lost = of(&[not_free, free]);
    assert_eq!((lost.account.limits.converted, lost.account.lost), (1, 0), "{:?}", routes(&lost));
    // Of local rules without selectors the first one applies, and the others are named.
    let every = "{ limit: { requests: 1, unit: Second } }, { limit: { requests: 0, unit: Second } }";
    let text = http_route("r", "a.test", "") + &policy("r", every).replace("global", "local");
    let local = converted(&text);
    assert_eq!(routes(&local), ["a.test/* p r"]);
    assert_eq!((local.account.limits.converted, local.account.lost), (1, 0));
    // Another route has no limit, and a limit without a route is named.
    let other = converted(&(http_route("r", "a.test", "") + &policy("other", &distinct)));
    assert_eq!(
        (routes(&other), other.account.limits.converted, other.account.lost),
        (vec!["a.test/* r".to_owned()], 0, 0)
    );
}

#[test]
fn policies_and_filters_close_routes() {
    let policy = |kind: &str, spec: &str| {
        format!(
            "---\nkind: {kind}\nmetadata: {{ name: p }}\nspec: {{ targetRefs: [{{ kind: HTTPRoute, name: r }}], {spec} }}\n"
        )
    };
    for (kind, spec, expected) in [
        ("SecurityPolicy", "jwt: {}", "501"),
        ("SecurityPolicy", "cors: {}", "r"),
        ("SomePolicy", "x: 1", "501"),
        ("ClientTrafficPolicy", "timeout: {}", "r"),
        ("ClientTrafficPolicy", "tls: { clientValidation: {} }", "501"),
    ] {
        let found = converted(&(http_route("r", "a.test", "") + &policy(kind, spec)));
        assert_eq!(routes(&found), [format!("a.test/* {expected}")], "{kind} {spec}");
        assert_eq!(found.account.lost, 0, "{kind} {spec}");
    }
    let filter = http_route("r", "a.test", "")
        .replace("backendRefs", "filters: [{ type: ExternalAuth }], backendRefs");
    assert_eq!(routes(&converted(&filter)), ["a.test/* 501"]);
}

#[test]
fn objects_of_several_controllers_are_joined() {
    let traefik = "---\napiVersion: traefik.io/v1alpha1\nkind: IngressRoute\nmetadata: { name: t }\nspec: { routes: [{ match: Host(`t.test`), \
                   services: [{ name: t, port: 80 }] }] }\n";
    let all =
        ingress("", "\"\"", "/") + &http_route("r", "a.test", "") + &ingress("", "a.test", "/i") + traefik;
    let found = converted(&all);
    let expected = ["a.test/i s", "a.test/i/* s", "a.test/* r", "t.test/* default-t-0", "/* s"];
    assert_eq!(routes(&found), expected);
    let texts: Vec<String> = found.notes.iter().map(ToString::to_string).collect();
    assert!(texts.iter().any(|text| text.contains("several controllers")), "{texts:?}");
}
