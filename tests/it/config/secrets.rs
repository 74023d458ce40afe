//! Secrets of the file: what logs, metrics and `explain` show of them.

use crate::support::{Publisher, TIDEGATE, Tidegate, Upstream, command, free_address, get};

#[test]
fn paths_of_servers_and_of_keys_are_not_shown() {
    let (server, keys) = (Upstream::echo(), Publisher::new("{\"keys\":[]}"));
    let jwks = keys.url().replace("/keys?a=b", "");
    let closed = free_address();
    let config = format!(
        r#"listen = "127.0.0.1:0"
        [admin]
        listen = "127.0.0.1:0"
        [log]
        access = "json"
        [jwt]
        jwks = "{jwks}/hush-keys/jwks.json?hush=query"
        algorithms = ["ES256"]
        [upstreams.named]
        servers = ["{url}/hush-a", "{url}/hush-b"]
        [upstreams.dead]
        servers = ["http://{closed}/hush-c"]
        eject = {{ after = 1 }}
        [[routes]]
        path = "/named"
        upstream = "named"
        [[routes]]
        path = "/straight"
        upstream = "{url}/hush-d"
        [[routes]]
        path = "/straighter"
        upstream = "{url}/hush-e"
        [[routes]]
        path = "/dead"
        upstream = "dead"
        [[routes]]
        path = "/deader"
        upstream = "http://{closed}/hush-f"
        "#,
        url = server.url()
    );
    let proxy = Tidegate::start(&config);
    let paths = ["/named", "/named", "/straight", "/straighter", "/dead", "/deader"];
    for path in paths {
        get(proxy.addr(), path, &[]);
    }
    // The servers get the whole path all the same.
    let mut sent: Vec<String> =
        server.requests().iter().map(|request| request.start.split(' ').nth(1).unwrap().to_owned()).collect();
    sent.sort();
    let expected =
        ["/hush-a/named", "/hush-b/named", "/hush-d/straight", "/hush-e/straighter"].map(str::to_owned);
    assert_eq!(sent, expected);
    let accesses = proxy.accesses(paths.len());
    proxy.wait_log(&format!("{jwks} "));
    let metrics = get(proxy.admin(), "/metrics", &[]).text().to_owned();
    for text in [&proxy.lines().join("\n"), &accesses.join("\n"), &metrics] {
        assert!(!text.contains("hush"), "{text}");
    }
    assert!(accesses[0].contains(&format!("\"server\":\"{}\"", server.url())), "{}", accesses[0]);
    // Servers that look the same are counted together, and each series is there once.
    let of = |name: &str, upstream: &str, rest: &str| {
        format!("{name}{{upstream=\"{upstream}\",server=\"{}\"{rest}}}", server.url())
    };
    let series = |name: &str| {
        let found: Vec<&str> = metrics.lines().filter(|line| line.starts_with(&format!("{name} "))).collect();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0].rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    let answered = ",outcome=\"ok\"";
    assert_eq!(series(&of("tidegate_upstream_requests_total", "named", answered)), 2);
    assert_eq!(series(&of("tidegate_upstream_requests_total", &server.url(), answered)), 2);
    assert_eq!(series(&of("tidegate_upstream_addresses", "named", "")), 2);
    assert_eq!(series(&of("tidegate_upstream_healthy_addresses", &server.url(), "")), 2);
    assert_eq!(series(&format!("tidegate_upstream_pending_requests{{upstream=\"{}\"}}", server.url())), 0);
}

#[test]
fn explain_shows_variables_instead_of_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let config = r#"
        listen = "127.0.0.1:0"
        [limits.keyed]
        rate = "5/minute"
        key = "header:x-key"
        block = ["key:${BLOCKED}", "key:pre-${SHORT}"]
        allow = ["key:${ALLOWED}", "key:plain"]
        [[routes]]
        path = "/*"
        limits = ["keyed"]
        upstream = "http://127.0.0.1:9/${BASE}"
    "#;
    std::fs::write(directory.path().join("tidegate.toml"), config).unwrap();
    let explained = |key: &str| {
        let output = command(TIDEGATE)
            .args(["explain", "GET", "/a", "-H", &format!("X-Key: {key}")])
            .current_dir(directory.path())
            .envs([("BLOCKED", "hush-1"), ("SHORT", "xy"), ("ALLOWED", "hush-2"), ("BASE", "hush-base")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(explained("hush-1").contains("the key is named `${BLOCKED}`"), "{}", explained("hush-1"));
    assert!(explained("pre-xy").contains("the key is named `pre-${SHORT}`"), "{}", explained("pre-xy"));
    let allowed = explained("hush-2");
    assert!(allowed.contains("the key is named `${ALLOWED}`"), "{allowed}");
    assert!(allowed.contains("http://127.0.0.1:9/${BASE}/a") && !allowed.contains("hush-base"), "{allowed}");
    assert!(explained("plain").contains("the key is named `plain`"));
}
