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

/// A Gateway in another namespace, whose listener has these settings, and the route `r` for it.
fn attached(listener: &str, hosts: &str) -> String {
    let gateway = format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: g, namespace: infra }}\nspec: {{ listeners: [{{ name: \
         l, port: 80, protocol: HTTP, {listener} }}] }}\n"
    );
    let parents = format!("parentRefs: [{{ name: g, namespace: infra }}]\n  hostnames: [{hosts}]");
    gateway + &http_route("r", "", "").replace("hostnames: [\"\"]", &parents)
}

#[test]
fn hosts_without_a_listener_are_closed() {
    let all = "allowedRoutes: { namespaces: { from: All } }";
    let of = |selector: &str| {
        format!("allowedRoutes: {{ namespaces: {{ from: Selector, selector: {{ {selector} }} }} }}")
    };
    let named = "matchLabels: { kubernetes.io/metadata.name:";
    for (listener, hosts, expected) in [
        (all.to_owned(), "a.test", "a.test/* r"),
        (format!("hostname: \"*.test\", {all}"), "corp.internal, a.test", "corp.internal/* 501 a.test/* r"),
        (format!("hostname: a.test, {all}"), "\"*.test\"", "a.test/* r"),
        (format!("hostname: a.test, {all}"), "", "a.test/* r"),
        (String::new(), "a.test", "a.test/* 501"),
        ("hostname: a.test".to_owned(), "", "a.test/* 501"),
        ("allowedRoutes: { namespaces: { from: Same } }".to_owned(), "a.test", "a.test/* 501"),
        ("allowedRoutes: { namespaces: { from: None } }".to_owned(), "a.test", "a.test/* 501"),
        (format!("allowedRoutes: {{ kinds: [{{ kind: GRPCRoute }}] }}, {all}"), "a.test", "a.test/* 501"),
        (of(&format!("{named} default }}")), "a.test", "a.test/* r"),
        (of(&format!("{named} other }}")), "a.test", "a.test/* 501"),
        (of("matchLabels: { team: a }"), "a.test", "a.test/* r open"),
    ] {
        let listener = listener.replace(&format!("}}, {all}"), ", namespaces: { from: All } }");
        let found = converted(&attached(&listener, hosts));
        let findings = found.findings();
        let is_open = findings.iter().any(|it| it.reason.starts_with("ACCESS IS OPEN"));
        let shown = routes(&found).join(" ") + if is_open { " open" } else { "" };
        assert_eq!(shown, expected, "{listener} {hosts}");
        assert_eq!(findings.iter().any(|it| it.reason.contains("no listener")), expected.contains("501"));
    }
}

#[test]
fn services_of_other_namespaces_need_a_grant() {
    let route = http_route("r", "a.test", "").replace("port: 80", "port: 80, namespace: b");
    let grant = |from: &str, to: &str| {
        format!(
            "---\nkind: ReferenceGrant\nmetadata: {{ name: g, namespace: b }}\nspec: {{ from: [{{ kind: HTTPRoute, namespace: {from} }}], to: [{{ \
             kind: Service{to} }}] }}\n"
        )
    };
    for (grant, expected) in [
        (String::new(), "501"),
        (grant("default", ""), "r"),
        (grant("default", ", name: r"), "r"),
        (grant("default", ", name: s"), "501"),
        (grant("other", ""), "501"),
        (grant("default", "").replace("namespace: b }", "namespace: c }"), "501"),
    ] {
        assert_eq!(
            routes(&converted(&(route.clone() + &grant))),
            [format!("a.test/* {expected}")],
            "{grant}"
        );
    }
}

#[test]
fn tls_without_hosts_is_for_all_hosts_of_its_ingress() {
    let secure = ingress("", "a.test", "/").replace("spec:", "spec:\n  tls: [{ secretName: x }]");
    let found = converted(&(secure + &ingress("", "b.test", "/")));
    let expected = ["http://a.test/* https://{host}{path_and_query}", "a.test/* s", "b.test/* s"];
    assert_eq!(routes(&found), expected);
}

#[test]
fn other_ports_of_a_service_are_the_same_service() {
    let closed = "nginx.ingress.kubernetes.io/use-regex: \"true\", nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8";
    let text = ingress(closed, "a.test", "/admin")
        + &ingress("", "a.test", "/").replace("number: 1", "number: 8080");
    let found = routes(&converted(&text));
    assert_eq!(found, ["a.test/admin* client_ip Block", "a.test/admin* s", "a.test/* 501"]);
}

#[test]
fn aliases_are_no_hosts_of_other_ingresses() {
    let alias = |names: &str| format!("nginx.ingress.kubernetes.io/server-alias: \"{names}\"");
    let text = ingress("", "a.test", "/a")
        + &ingress(&alias("A.test, c.test"), "b.test", "/")
        + &ingress(&alias("c.test"), "d.test", "/d");
    let found = converted(&text);
    let expected = [
        "a.test/a s",
        "a.test/a/* s",
        "a.test/* 404",
        "b.test/* s",
        "c.test/* s",
        "d.test/d s",
        "d.test/d/* s",
        "d.test/* 404",
    ];
    let mut found_routes = routes(&found);
    found_routes.sort_by_key(|route| route.split('/').next().unwrap_or("").to_owned());
    assert_eq!(found_routes, expected);
    let named = found.findings().into_iter().filter(|it| it.text.starts_with("server-alias")).count();
    assert_eq!(named, 2);
}

#[test]
fn restrictions_that_are_not_converted_come_before_redirects() {
    let nginx = "nginx.ingress.kubernetes.io/";
    let redirect = format!("{nginx}permanent-redirect: \"https://x.test\"");
    let auth = format!("{nginx}auth-url: \"https://auth\"");
    let map = "---\nkind: ConfigMap\ndata: { global-auth-url: \"https://auth\" }\n";
    for (annotations, map, expected) in [
        (redirect.clone(), "", "https://x.test"),
        (redirect.clone(), map, "501"),
        (format!("{auth}, {redirect}"), "", "501"),
        (format!("{redirect}, {auth}"), "", "501"),
    ] {
        let found = converted(&(ingress(&annotations, "a.test", "/") + map));
        assert_eq!(routes(&found), [format!("a.test/* {expected}")], "{annotations}");
        let is_named = found.findings().iter().any(|it| it.text.starts_with("permanent-redirect"));
        assert_eq!(is_named, expected == "501", "{annotations}");
    }
}

#[test]
fn prefixes_in_braces_are_no_placeholders() {
    let nginx = "nginx.ingress.kubernetes.io/";
    for (prefix, is_set) in [("/{client_ip}", false), ("/a", true)] {
        let annotations = format!("{nginx}x-forwarded-prefix: \"{prefix}\", {nginx}rewrite-target: /b");
        let found = converted(&ingress(&annotations, "a.test", "/"));
        let route = &found.routes[0];
        assert_eq!(
            (route.set_headers.len(), route.remove_headers.len()),
            (usize::from(is_set), usize::from(!is_set))
        );
        assert_eq!(found.findings().iter().any(|it| it.text.starts_with("x-forwarded-prefix")), !is_set);
    }
}
