//! Nothing that limits requests or restricts access is lost silently: the last line says how much of it was converted, and
//! every other line is listed.

use std::fs;
use std::path::Path;

use tidegate::config;

use super::{Finished, tidegate};

/// Converts files with these names and texts, which must give a valid configuration. Returns it, with the lines of standard
/// error.
#[track_caller]
fn converted(origin: &[&str], files: &[(&str, &str)]) -> (String, Vec<String>) {
    let found = run(origin, files);
    assert_eq!(found.status, 0, "{}\n{}", found.stdout, found.stderr);
    if let Err(report) = config::parse(&found.stdout, "the output", &|_| None) {
        panic!("{report}\n{}", found.stdout);
    }
    (found.stdout, found.stderr.lines().map(str::to_owned).collect())
}

fn run(origin: &[&str], files: &[(&str, &str)]) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let names = files.iter().map(|(name, _)| *name);
    let arguments: Vec<&str> = ["convert"].into_iter().chain(origin.iter().copied()).chain(names).collect();
    tidegate(directory.path(), &arguments)
}

/// Checks the last line of standard error, and that these texts are in others.
#[track_caller]
fn check(origin: &str, files: &[(&str, &str)], last: &str, listed: &[&str]) -> String {
    let (toml, lines) = converted(&origin.split(' ').collect::<Vec<_>>(), files);
    assert_eq!(lines.last().unwrap(), last, "{lines:#?}\n{toml}");
    for text in listed {
        assert!(lines.iter().any(|line| line.contains(text)), "{text}: {lines:#?}");
    }
    toml
}

#[test]
fn the_last_line_counts_the_limits() {
    let text = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\nlimit_req_zone $request_uri zone=b:1m rate=1r/s;\n\
                server { location / { limit_req zone=a; limit_req zone=b; deny 10.0.0.0/8; proxy_pass http://x; }\n\
                location /b { limit_req zone=a; limit_conn c 1; proxy_pass http://x; deny all; } }";
    let listed = ["f:3: not converted: limit_req zone=b", "f:4: not converted: limit_conn c 1"];
    check("nginx", &[("f", text)], "2 of 4 limits converted, 2 of 2 other restrictions", &listed);
    let text = "server { location / { proxy_pass http://x; } }";
    check("nginx", &[("f", text)], "0 of 0 limits converted", &[]);
}

#[test]
fn plugins_of_kong_are_converted_or_listed() {
    let service = "services:\n- { name: a, url: \"http://10.0.0.1\", routes: [{ name: r, paths: [/a] }] }\n";
    let plugin =
        |scope: &str, config: &str| format!("- {{ name: rate-limiting, {scope}config: {{ {config} }} }}\n");
    let plugins = [
        plugin("", "minute: \"${{ env \\\"DECK_MINUTE\\\" }}\", hour: 5"),
        plugin("service: other, ", "minute: 5"),
        plugin("route: { name: other }, ", "minute: 5"),
    ];
    let text = format!("{service}plugins:\n{}", plugins.concat());
    let listed = ["f:4: not converted: minute: ${{ env", "f:5: not converted", "f:6: not converted"];
    check("kong", &[("f", &text)], "1 of 4 limits converted", &listed);
    // The files of a directory are one configuration.
    let global = format!("plugins:\n{}", plugin("", "minute: 5"));
    let toml = check("kong", &[("a", &global), ("b", service)], "1 of 1 limit converted", &[]);
    assert!(toml.contains("limits = [\"all-minute\"]"), "{toml}");
    let text = format!("consumers: [{{ username: u, plugins: [{{ name: acl }}] }}]\n{service}");
    check("kong", &[("f", &text)], "0 of 0 limits converted, 0 of 1 other restriction", &["name: acl"]);
    // A plugin of a route without a name is for this route only.
    let text = "services:\n- name: a\n  url: http://10.0.0.1\n  routes:\n  - paths: [/a]\n    plugins: [{ name: rate-limiting, \
                config: { minute: 1 } }]\n  - paths: [/b]\n";
    let toml = check("kong", &[("f", text)], "1 of 1 limit converted", &[]);
    assert_eq!(toml.matches("limits = [").count(), 1, "{toml}");
}

#[test]
fn middlewares_of_traefik_are_converted_or_listed() {
    let router = "http:\n  routers: { a: { rule: \"Host(`a.test`)\", service: a } }\n  services: { a: { loadBalancer: { servers: \
                  [{ url: \"http://10.0.0.1\" }] } } }\n";
    let unused = "http: { middlewares: { limit: { rateLimit: { average: 5 } }, auth: { basicAuth: {} } } }\n";
    let files = [("a.yaml", router), ("b.yaml", unused)];
    let listed = ["b.yaml:1: for information: middleware limit", "no router that was converted"];
    check("traefik", &files, "0 of 1 limit converted, 0 of 1 other restriction", &listed);
    let used = router.replace("service: a }", "service: a, middlewares: [limit] }");
    check("traefik", &[("a", &used), ("b", unused)], "1 of 1 limit converted, 0 of 1 other restriction", &[]);
}

#[test]
fn labels_and_objects_are_listed() {
    let labels = "services:\n  web:\n    labels:\n    - traefik.http.middlewares.l.ratelimit.average=5\n    - \
                  traefik.http.middlewares.l.ratelimit.burst=5\n    - traefik.http.middlewares.a.basicauth.users=a\n    - \
                  traefik.http.routers.web.rule=Host(`a.test`)\n";
    let object = "apiVersion: traefik.io/v1alpha1\nkind: Middleware\nmetadata: { name: l }\nspec: { rateLimit: { average: 5 } }\n";
    let plugin = "kind: KongPlugin\nplugin: rate-limiting\nconfig: { minute: 5 }\n";
    let cases = [
        (
            "traefik",
            labels,
            "labels of containers are not read",
            "0 of 1 limit converted, 0 of 1 other restriction",
        ),
        ("traefik", object, "are read by `tidegate convert kubernetes`", "0 of 1 limit converted"),
        ("kong", plugin, "objects of Kubernetes are not read", "0 of 1 limit converted"),
    ];
    for (origin, text, reason, last) in cases {
        let found = run(&[origin], &[("f", text)]);
        assert_eq!(found.status, 1, "{}", found.stderr);
        assert!(found.stderr.contains(reason), "{}", found.stderr);
        assert!(found.stderr.contains("error: nothing in the input became a route"), "{}", found.stderr);
        assert_eq!(found.stderr.lines().last(), Some(last), "{}", found.stderr);
    }
}

#[test]
fn limits_of_servers_are_converted_or_listed() {
    let text = "server { listen 80; limit_req zone=elsewhere; location / { proxy_pass http://x; } }\n\
                server { listen 81; server_name b; limit_req zone=elsewhere; }\n\
                server { listen 81; server_name c; limit_req zone=elsewhere; return 404; }\n";
    let listed = [1, 2, 3].map(|line| format!("f:{line}: not converted: limit_req zone=elsewhere"));
    let listed = listed.each_ref().map(|text| &**text);
    check("nginx", &[("f", text)], "0 of 3 limits converted, 1 of 1 other restriction", &listed);
    let zone = "limit_req_zone $binary_remote_addr zone=elsewhere:1m rate=1r/s;";
    let files = [("f", text), ("zone", zone)];
    check("nginx", &files, "1 of 3 limits converted, 1 of 1 other restriction", &listed[1..]);
}

#[test]
fn headers_of_other_proxies_are_kept() {
    let text = "server { listen 80 proxy_protocol; set_real_ip_from 10.0.0.0/8; set_real_ip_from lb.test;\n\
                real_ip_header proxy_protocol; location / { proxy_set_header X-Forwarded-Proto https;\n\
                proxy_set_header X-Forwarded-Port 443; proxy_set_header X-Forwarded-For 192.0.2.1;\n\
                proxy_set_header X-Forwarded-Proto: https; proxy_pass http://x; } }";
    let listed = ["f:1: not converted: set_real_ip_from lb.test", "x-forwarded-proto: https"];
    let toml = check("nginx", &[("f", text)], "0 of 0 limits converted", &listed);
    let set = "set = { x-forwarded-proto = \"https\", x-forwarded-port = \"443\", x-forwarded-for = \"192.0.2.1\" }";
    for text in [set, "trusted_proxies = [\"10.0.0.0/8\"]", "proxy_protocol = true"] {
        assert!(toml.contains(text), "{text}: {toml}");
    }
    assert!(!toml.contains("x-real-ip"), "{toml}");
    let text = "frontend f\n mode http\n bind :80 accept-proxy\n http-request set-header X-Forwarded-Proto https\n \
                http-request set-header X-Forwarded-Port %[dst_port]\n default_backend b\nbackend b\n server a 10.0.0.1:80\n";
    let listed = ["f:3: not converted: PROXY protocol", "f:5: not converted: http-request set-header"];
    let toml = check("haproxy", &[("f", text)], "0 of 0 limits converted", &listed);
    assert!(toml.contains("x-forwarded-proto = \"https\""), "{toml}");
}

#[test]
fn values_that_are_not_filled_in_are_placeholders() {
    let template = "http:\n{{ range .Servers }}\n  routers: {}\n{{ end }}\n";
    let found = run(&["traefik"], &[("f", template)]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.contains("this is a template"), "{}", found.stderr);
    let kong = "services:\n- { name: a, host: none, routes: [{ paths: [/a] }] }\n- { name: b, url: \"http://${{ env }}:80\", \
                routes: [{ paths: [/b] }] }\nupstreams: [{ name: none }]\n";
    let toml = check("kong", &[("f", kong)], "0 of 0 limits converted", &["its service has no servers"]);
    assert!(toml.contains("http://env.invalid:80") && toml.contains("status = 501"), "{toml}");
    let traefik = "http:\n  routers: { a: { rule: 'Host(`{{ env \"NAME\" }}`)', service: a } }\n  services: { a: { loadBalancer: \
                   { servers: [{ url: \"http://{{ .Host }}\" }] } } }\n";
    let toml = check("traefik", &[("f", traefik)], "0 of 0 limits converted", &["this is no host"]);
    assert!(toml.contains("host = \"env-name.invalid\"") && toml.contains("http://host.invalid"), "{toml}");
}

#[test]
fn descriptors_are_valid_or_listed() {
    let inner = "{ key: user_id, value: b, rate_limit: { unit: second, requests_per_unit: 1 } }";
    let text = format!("domain: d\ndescriptors:\n- {{ key: user-id, value: a, descriptors: [{inner}] }}\n");
    check(
        "envoy-ratelimit --routes",
        &[("f", &text)],
        "0 of 1 limit converted",
        &["one condition on a header"],
    );
    let text = "descriptors:\n- { key: a, rate_limit: { unit: second, requests_per_unit: 1 } }\n";
    for origin in [&["envoy-ratelimit"][..], &["envoy-ratelimit", "--routes"]] {
        let found = run(origin, &[("f", text)]);
        assert!(found.stderr.contains("it has no `domain`"), "{}", found.stderr);
        assert_eq!(found.stderr.lines().last(), Some("0 of 1 limit converted"), "{}", found.stderr);
        assert!(config::parse(&found.stdout, "the output", &|_| None).is_ok(), "{}", found.stdout);
    }
}

#[test]
fn limits_that_some_requests_lose_do_not_count_as_converted() {
    let zone = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\n";
    // No route can have the conditions of all four limits of a location.
    let maps: String = ["a", "b", "c", "d"]
        .map(|name| {
            format!(
                "map $http_{name} $key_{name} {{ default \"\"; \"1\" $binary_remote_addr; }}\n\
                 limit_req_zone $key_{name} zone={name}:1m rate=1r/s;\n"
            )
        })
        .concat();
    let text = format!(
        "{maps}server {{ limit_req zone=d; location / {{ proxy_pass http://x; }}\n\
         location /all {{ limit_req zone=a; limit_req zone=b; limit_req zone=c;\nlimit_req zone=d; proxy_pass http://x; }} }}"
    );
    check("nginx", &[("f", &text)], "4 of 5 limits converted", &["f:11: not converted: limit_req zone=d"]);
    // Each server has a listener of its own.
    let text = format!(
        "{zone}server {{ listen 80; location / {{ limit_req zone=a; proxy_pass http://x; }} }}\n\
         server {{ listen 81; location /b {{ limit_req zone=a; proxy_pass http://y; }} }}"
    );
    check("nginx", &[("f", &text)], "2 of 2 limits converted", &[]);
    let text = format!(
        "{zone}server {{ listen 80 default_server; return 404; }}\n\
         server {{ listen 80; server_name x.test; location / {{ proxy_pass http://x; }} }}\n\
         server {{ listen 81; server_name x.test; location / {{ limit_req zone=a; proxy_pass http://y; }} }}"
    );
    check("nginx", &[("f", &text)], "1 of 1 limit converted, 1 of 1 other restriction", &[]);
    // Its requests get the route of a location with another limit.
    let text = format!(
        "{zone}limit_req_zone $binary_remote_addr zone=b:1m rate=9r/s;\nserver {{ limit_req zone=a;\n\
         location ~* \\.php$ {{ proxy_pass http://x; }} location / {{ limit_req zone=b; proxy_pass http://x; }}\n\
         location /other {{ proxy_pass http://x; }} }}"
    );
    check("nginx", &[("f", &text)], "1 of 2 limits converted", &["f:3: not converted: limit_req zone=a"]);
}

#[test]
fn limits_of_which_a_part_is_not_converted_do_not_count_as_converted() {
    let haproxy = "frontend f\n mode http\n bind :80\n stick-table type ip size 1m expire 1m store http_req_rate(10s),bytes_out_rate(1s)\n \
                   http-request track-sc0 src\n http-request deny if { sc_http_req_rate(0) gt 20 } or { sc_bytes_out_rate(0) gt 30 }\n \
                   default_backend b\nbackend b\n server a 10.0.0.1:80\n";
    let listed = ["f:6: not converted: http-request deny if"];
    check("haproxy", &[("f", haproxy)], "0 of 1 limit converted", &listed);
    let traefik = "http:\n  routers:\n    a: { rule: \"Host(`a.test`)\", service: a, middlewares: [limit] }\n    \
                   b: { rule: \"HostRegexp(`x`)\", service: a, middlewares: [chain] }\n  middlewares:\n    \
                   limit: { rateLimit: { average: 5 } }\n    chain: { chain: { middlewares: [limit] } }\n  \
                   services: { a: { loadBalancer: { servers: [{ url: \"http://10.0.0.1\" }] } } }\n";
    let listed = ["f:6: not converted: limit: rateLimit", "the router b, which has it, is not converted"];
    check("traefik", &[("f", traefik)], "0 of 1 limit converted", &listed);
    // Two routers for the same requests on two entry points: the first one has no limit.
    let points = traefik
        .replace("HostRegexp(`x`)", "Host(`a.test`)")
        .replace("middlewares: [limit] }\n    b", "}\n    b");
    let listed = ["f:6: not converted: limit: rateLimit", "an earlier route for the same host and path"];
    check("traefik", &[("f", &points)], "0 of 1 limit converted", &listed);
    let kong = |other: &str| {
        format!(
            "services:\n- name: a\n  url: http://10.0.0.1\n  plugins: [{{ name: rate-limiting, config: {{ hour: 9 }} }}]\n  routes:\n  \
             - {{ name: r, paths: [/a, \"~/b[0-9]\"], plugins: [{{ name: rate-limiting, config: {{ minute: 1 }} }}] }}\n{other}"
        )
    };
    let listed = ["f:6: not converted: rate-limiting, minute: 1"];
    let other = "  - { name: s, paths: [/] }\n";
    check("kong", &[("f", &kong(other))], "1 of 2 limits converted", &listed);
    // Without another route they get 404.
    check(
        "kong",
        &[("f", &kong(""))],
        "1 of 2 limits converted",
        &["no route that was converted has this plugin"],
    );
}

#[test]
fn limits_of_connections_are_converted_or_listed() {
    let haproxy = "global\n maxconn 9\ndefaults\n mode http\n maxconn 8\nfrontend f\n bind :80\n maxconn 7\n default_backend b\n\
                   backend b\n default-server maxconn 6\n server a 10.0.0.1:80 maxconn 5\n server b 10.0.0.2:80 maxconn 5\n\
                   frontend g\n bind :81\n bind :82\n maxconn 7\n use_backend c if { path /c }\nbackend c\n \
                   server a 10.0.0.1:80 maxconn 5\n server b 10.0.0.2:80\n server c 10.0.0.2:80 maxconn 0\n";
    let listed = ["f:2: not", "f:5: for information", "f:11: not", "f:17: not", "f:20: not"];
    let toml = check("haproxy", &[("f", haproxy)], "3 of 8 limits converted", &listed);
    let listener = "address = \"0.0.0.0:80\"\nname = \"f\"\nmax_connections = 7\n";
    for text in
        [listener, "servers = [\"http://10.0.0.1:80\", \"http://10.0.0.2:80\"]\nmax_connections = 5\n"]
    {
        assert_eq!(toml.matches(text).count(), 1, "{text}: {toml}");
    }
    assert_eq!(toml.matches("max_connections = ").count(), 2, "{toml}");
    let nginx = "upstream a { server 10.0.0.1 max_conns=5; server 10.0.0.2 max_conns=5; server 10.0.0.3 max_conns=6 down; }\n\
                 upstream b { server 10.0.0.1 max_conns=5; server 10.0.0.2 max_conns=6; server 10.0.0.3 max_conns=0; }\n\
                 upstream c { server 10.0.0.1 max_conns=5; }\n\
                 server { location / { proxy_pass http://a; } location /b { proxy_pass http://b; } }";
    let listed = [
        "f:1: not converted: server 10.0.0.3",
        "f:2: not converted: server 10.0.0.2",
        "f:3: not converted: upstream c",
    ];
    let toml = check("nginx", &[("f", nginx)], "2 of 6 limits converted", &listed);
    assert_eq!(toml.matches("max_connections = 5\n").count(), 1, "{toml}");
}

#[test]
fn directories_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let found = tidegate(directory.path(), &["convert", "nginx", "."]);
    assert_eq!(found.status, 2);
    assert!(found.stderr.starts_with("error: . has no files that end with .conf"), "{}", found.stderr);
    write("b.conf", "server { location / { limit_req zone=a; proxy_pass http://x; } }");
    write("a.conf", "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;");
    write("readme.txt", "no configuration");
    let found = tidegate(directory.path(), &["convert", "nginx", "."]);
    assert_eq!(found.stderr.lines().last(), Some("1 of 1 limit converted"), "{}", found.stderr);
    let missing = tidegate(Path::new("/"), &["convert", "nginx", "no/such/file", "other"]);
    assert_eq!(missing.status, 2);
}

#[test]
fn certificates_of_clients_are_required() {
    let text = "server { listen 443 ssl; ssl_certificate cert.pem; ssl_certificate_key cert.pem; ssl_client_certificate cert.pem;\n\
                ssl_verify_client on; location / { proxy_pass http://x; } }";
    let found = run(&["nginx"], &[("f", text), ("cert.pem", "")]);
    assert!(found.stdout.contains("client_ca = \""), "{}", found.stdout);
    assert!(found.stdout.contains("upstream = \"http://x\""), "{}", found.stdout);
    let last = found.stderr.lines().last();
    assert_eq!(last, Some("0 of 0 limits converted, 1 of 1 other restriction"), "{}", found.stderr);
    // Another server without them has a listener of its own.
    let other = format!("{text}\nserver {{ listen 80; location / {{ proxy_pass http://y; }} }}");
    let found = run(&["nginx"], &[("f", &other), ("cert.pem", "")]);
    assert!(!found.stdout.contains("status = 501"), "{}", found.stdout);
    for route in [
        "listener = \"port-443\"\npath = \"/*\"\nupstream = \"http://x\"",
        "listener = \"port-80\"\npath = \"/*\"\nupstream = \"http://y\"",
    ] {
        assert!(found.stdout.contains(route), "{}", found.stdout);
    }
    let open = text.replace("listen 443 ssl;", "listen 443 ssl; listen 80;");
    let found = run(&["nginx"], &[("f", &open), ("cert.pem", "")]);
    assert!(found.stdout.contains("status = 501"), "{}", found.stdout);
}

#[test]
fn a_redirect_to_https_does_not_hide_the_server_that_it_leads_to() {
    let text = "server { listen 80; server_name _; location /.well-known/ { root /x; }\n\
                location / { return 301 https://$host$request_uri; } }\n\
                server { listen 443 ssl; server_name _; location / { allow 10.0.0.0/8; proxy_pass http://x; } }";
    let listed = ["f:1: not converted: location /.well-known/"];
    let toml = check("nginx", &[("f", text)], "0 of 0 limits converted, 0 of 1 other restriction", &listed);
    let redirect = "listener = \"port-80\"\npath = \"/*\"\nrespond = { redirect = \"https://{host}{path_and_query}\", status = 301 }";
    assert!(toml.contains(redirect) && toml.contains("listener = \"port-443\"\npath = \"/*\""), "{toml}");
    assert_eq!(toml.matches("[[routes]]").count(), 3, "{toml}");
}
