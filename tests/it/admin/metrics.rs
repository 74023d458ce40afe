//! The metrics: their formats, and each series by a real request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::admin::interface::{LIMITED, with_admin};
use crate::support::{
    Authority, Client, RedisServer, Tidegate, TlsClient, Upstream, command, eventually, get,
    output_with_input,
};

const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0";

/// The values of all series, by their names with labels.
struct Series(BTreeMap<String, String>);

impl Series {
    fn of(admin: SocketAddr) -> Self {
        let response = get(admin, "/metrics", &[]);
        assert_eq!(response.status(), 200);
        let lines = response.text().lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.map(|line| line.rsplit_once(' ').unwrap());
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The value of a counter, or of a gauge that is a whole number.
    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.0)).parse().unwrap()
    }

    fn decisions(&self, limit: &str, outcome: &str, source: &str) -> u64 {
        let labels = format!("limit=\"{limit}\",outcome=\"{outcome}\",source=\"{source}\"");
        self.number(&format!("tidegate_decisions_total{{{labels}}}"))
    }

    fn requests(&self, route: &str, status: &str) -> u64 {
        self.number(&format!("tidegate_requests_total{{route=\"{route}\",status=\"{status}\"}}"))
    }

    fn durations(&self, route: &str) -> u64 {
        self.number(&format!("tidegate_request_duration_seconds_count{{route=\"{route}\"}}"))
    }

    /// The names of all series.
    fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

/// Waits until a series has this value.
#[track_caller]
fn wait_for(proxy: &Tidegate, name: &str, value: u64) {
    eventually(&format!("{name} is {value}"), || {
        Series::of(proxy.admin()).0.get(name).is_some_and(|found| *found == value.to_string())
    });
}

#[test]
fn requests_and_decisions_are_counted() {
    let proxy = Tidegate::start(&format!("workers = 2\n{}", with_admin(LIMITED)));
    let admin = proxy.admin();
    let quiet = Series::of(admin);
    assert!(quiet.0["process_start_time_seconds"].parse::<f64>().unwrap() > 1.7e9);
    assert_eq!(quiet.number(concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}")), 1);
    assert_eq!((quiet.decisions("three", "denied", "memory"), quiet.requests("free", "5xx")), (0, 0));
    // A connection for each request, so that both workers get some.
    for _ in 0..10 {
        get(proxy.addr(), "/limited", &[]);
    }
    for _ in 0..4 {
        get(proxy.addr(), "/free", &[]);
    }
    get(proxy.addr(), "/nowhere", &[]);
    get(proxy.addr(), "/a%2fb", &[]);
    let mut busy = Series::of(admin);
    // A duration is counted at the end of the response body, which may be a moment later.
    eventually("every request has its duration", || {
        busy = Series::of(admin);
        ["limited", "free", ""].iter().map(|route| busy.durations(route)).sum::<u64>() == 16
    });
    assert_eq!((busy.durations("limited"), busy.durations("free"), busy.durations("")), (10, 4, 2));
    assert_eq!(busy.decisions("three", "allowed", "memory"), 2);
    // Nothing remains after the third request.
    assert_eq!(busy.decisions("three", "near_limit", "memory"), 1);
    assert_eq!(busy.decisions("three", "denied", "memory"), 7);
    // The decision of this limit alone.
    assert_eq!(busy.decisions("wide", "allowed", "memory"), 10);
    assert_eq!(busy.decisions("wide", "denied", "memory"), 0);
    assert_eq!((busy.requests("limited", "2xx"), busy.requests("limited", "429")), (3, 7));
    assert_eq!((busy.requests("limited", "4xx"), busy.requests("free", "5xx")), (0, 4));
    assert_eq!(busy.requests("", "4xx"), 2);
    for (name, count) in [
        // Three of `limited` and four of `free`.
        ("tidegate_interface_requests_total{interface=\"proxy\",outcome=\"allowed\"}", 7),
        // Seven by the limit, and one without a route.
        ("tidegate_interface_requests_total{interface=\"proxy\",outcome=\"denied\"}", 8),
        ("tidegate_interface_requests_total{interface=\"proxy\",outcome=\"error\"}", 1),
        ("tidegate_interface_requests_total{interface=\"forward_auth\",outcome=\"allowed\"}", 0),
        ("tidegate_denied_keys{limit=\"three\"}", 1),
        ("tidegate_denied_keys{limit=\"wide\"}", 0),
        ("tidegate_request_duration_seconds_bucket{route=\"limited\",le=\"+Inf\"}", 10),
        ("tidegate_decision_duration_seconds_count", 10),
        ("tidegate_request_delay_seconds_count", 0),
        ("tidegate_memory_keys", 2),
        ("tidegate_access_log_dropped_lines_total", 0),
        ("tidegate_log_dropped_lines_total", 0),
    ] {
        assert_eq!(busy.number(name), count, "{name}");
    }
}

#[test]
fn decisions_of_the_configuration_and_of_shadow_mode_are_counted() {
    let proxy = Tidegate::start(&with_admin(
        r#"
        [limits.listed]
        rate = "1000/hour"
        key = ["header:x-key"]
        on_missing = "deny"
        allow = ["key:friend"]
        block = ["key:foe"]
        [limits.watched]
        rate = "1/hour"
        mode = "shadow"
        [limits.even]
        algorithm = "leaky_bucket"
        rate = "50/s"
        queue = 10
        [[routes]]
        path = "/"
        limits = ["listed", "watched"]
        respond = { status = 200 }
        [[routes]]
        path = "/even"
        limits = ["even"]
        respond = { status = 200 }
        "#,
    ));
    let status = |key: &[&str]| get(proxy.addr(), "/", key).status();
    assert_eq!([status(&["X-Key: friend"]), status(&["X-Key: foe"]), status(&[])], [200, 403, 403]);
    assert_eq!(status(&["X-Key: other"]), 200);
    (0..2).for_each(|_| assert_eq!(get(proxy.addr(), "/even", &[]).status(), 200));
    let series = Series::of(proxy.admin());
    assert_eq!(series.decisions("listed", "exempt", "config"), 1);
    assert_eq!(series.decisions("listed", "blocked", "config"), 1);
    assert_eq!(series.decisions("listed", "missing", "config"), 1);
    assert_eq!(series.decisions("listed", "allowed", "memory"), 1);
    assert_eq!(series.decisions("watched", "near_limit", "memory"), 1);
    assert!(series.decisions("watched", "shadow_denied", "memory") >= 1);
    // The second request came before a fiftieth of a second had passed, or machine and test were slow.
    assert!(series.number("tidegate_request_delay_seconds_count") <= 1);
}

#[test]
fn connections_and_handshakes_are_counted() {
    let authority = Authority::new();
    authority.sign("localhost");
    let proxy = Tidegate::start(&format!(
        "{}[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n{}\n{LIMITED}",
        "[admin]\nlisten = \"127.0.0.1:0\"\n",
        authority.listener("localhost"),
    ));
    let [plain, tls] = proxy.addresses(2)[..] else { unreachable!() };
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(plain)).collect();
    for client in &mut clients {
        client.get("/free", &[]);
    }
    let (open, accepted) = (
        format!("tidegate_connections{{listener=\"{plain}\"}}"),
        format!("tidegate_connections_accepted_total{{listener=\"{plain}\"}}"),
    );
    let series = Series::of(proxy.admin());
    assert_eq!((series.number(&open), series.number(&accepted)), (3, 3));
    clients.pop();
    wait_for(&proxy, &open, 2);
    assert_eq!(Series::of(proxy.admin()).number(&accepted), 3);

    let config = authority.client(None, rustls::ALL_VERSIONS);
    for _ in 0..2 {
        TlsClient::connect(&config, "localhost", tls).unwrap().get("/free").unwrap();
    }
    let handshakes = |resumed: &str| {
        let labels = format!("listener=\"{tls}\",version=\"TLSv1.3\",resumed=\"{resumed}\"");
        Series::of(proxy.admin()).number(&format!("tidegate_tls_handshakes_total{{{labels}}}"))
    };
    assert_eq!((handshakes("false"), handshakes("true")), (1, 1));
    Client::connect(tls).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let failed = format!("tidegate_handshake_failures_total{{listener=\"{tls}\",reason=\"tls\"}}");
    wait_for(&proxy, &failed, 1);
    let expiry = format!(
        "tidegate_certificate_expiry_timestamp_seconds{{listener=\"{tls}\",certificate=\"localhost\"}}"
    );
    assert!(Series::of(proxy.admin()).0[&expiry].parse::<f64>().unwrap() > 1.7e9);
}

#[test]
fn times_of_servers_and_waits_for_them_are_counted() {
    let (slow, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
    let proxy = Tidegate::start(&with_admin(&format!(
        "[upstreams.api]\nservers = [\"{}\"]\nmax_connections = 1\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n",
        slow.url()
    )));
    let mut clients = [(); 2].map(|()| Client::connect(proxy.addr()));
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        // Otherwise the second request may be read first, and get the connection.
        eventually("the first request has the connection", || slow.received() == 1);
    }
    wait_for(&proxy, "tidegate_upstream_pending_requests{upstream=\"api\"}", 1);
    release.send(()).unwrap();
    assert_eq!(clients[0].read().text(), "late");
    let server = format!("{{upstream=\"api\",server=\"{}\"}}", slow.url());
    wait_for(&proxy, "tidegate_upstream_queue_duration_seconds_count{upstream=\"api\"}", 1);
    wait_for(&proxy, &format!("tidegate_upstream_time_to_first_byte_seconds_count{server}"), 1);
    wait_for(&proxy, &format!("tidegate_upstream_request_duration_seconds_count{server}"), 1);
    release.send(()).unwrap();
    assert_eq!(clients[1].read().text(), "late");
    wait_for(&proxy, &format!("tidegate_upstream_request_duration_seconds_count{server}"), 2);
}

#[test]
fn calls_to_redis_and_decisions_without_it_are_counted() {
    let mut redis = RedisServer::start();
    let config = with_admin(
        r#"
        [limits.local]
        rate = "2/hour"
        [limits.open]
        rate = "1/hour"
        on_store_failure = "allow"
        [limits.shut]
        rate = "5/hour"
        on_store_failure = "deny"
        [limits.one]
        rate = "1/hour"
        [[routes]]
        path = "/both"
        limits = ["local", "open"]
        respond = { status = 200 }
        [[routes]]
        path = "/shut"
        limits = ["shut", "local"]
        respond = { status = 200 }
        [[routes]]
        path = "/one"
        limits = ["one"]
        respond = { status = 200 }
        "#,
    );
    let proxy = Tidegate::start_with(&redis, &config);
    let admin = proxy.admin();
    assert_eq!(get(proxy.addr(), "/both", &[]).status(), 200);
    assert_eq!([0; 3].map(|_| get(proxy.addr(), "/one", &[]).status()), [200, 429, 429]);
    let up = Series::of(admin);
    assert_eq!(up.number("tidegate_store_up"), 1);
    assert_eq!(up.decisions("local", "allowed", "store"), 1);
    assert_eq!(up.decisions("one", "near_limit", "store"), 1);
    // The first denial is repeated from the cache.
    assert_eq!((up.decisions("one", "denied", "store"), up.decisions("one", "denied", "cache")), (1, 1));
    let calls = up.number("tidegate_store_call_duration_seconds_count");
    assert!(calls >= 3, "{calls}");
    assert_eq!(up.number("tidegate_store_call_requests_count"), calls);
    assert_eq!(
        up.number("tidegate_store_call_requests_sum"),
        up.number("tidegate_store_queue_duration_seconds_count")
    );
    redis.kill();
    let statuses: Vec<u16> = (0..3).map(|_| get(proxy.addr(), "/both", &[]).status()).collect();
    // The local fallback knows that one of two is spent.
    assert_eq!(statuses, [200, 429, 429]);
    // After a loss the store counts as unreachable only when reconnecting fails.
    eventually("the store is unreachable", || {
        get(admin, "/ready", &[]).text() == "ready\nstore: unreachable\n"
    });
    assert_eq!(get(proxy.addr(), "/shut", &[]).status(), 503);
    let after = Series::of(admin);
    assert_eq!(after.decisions("local", "near_limit", "fallback"), 1);
    assert_eq!(after.decisions("local", "denied", "fallback"), 2);
    assert_eq!(after.decisions("open", "allowed", "fallback"), 3);
    assert_eq!(after.decisions("shut", "denied", "fallback"), 1);
    assert_eq!(after.number("tidegate_store_up"), 0);
    let failed = |series: &Series| -> u64 {
        let of = |outcome| series.number(&format!("tidegate_store_requests_total{{outcome=\"{outcome}\"}}"));
        ["not_connected", "connection_lost", "timeout", "error", "malformed"].into_iter().map(of).sum()
    };
    // The first failure is the loss of the connection; after that nothing is sent.
    let failures = failed(&after) - failed(&up);
    assert!((1..=4).contains(&failures), "{failures}");
    let ready = get(admin, "/ready", &[]);
    assert_eq!((ready.status(), ready.text()), (200, "ready\nstore: unreachable\n"));
    let refused = get(admin, "/v1/keys?limit=local", &[]);
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("the store is unavailable"), "{}", refused.text());
}

#[test]
fn the_client_chooses_the_format() {
    let proxy = Tidegate::start(&with_admin(LIMITED));
    let (text, open) = (
        "text/plain; version=0.0.4; charset=utf-8",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    );
    for (headers, kind) in [
        (&[][..], text),
        (&["Accept: */*"], text),
        (&["Accept: text/html"], text),
        (&[OPEN_METRICS], open),
        (&["Accept: application/openmetrics-text;q=0.5, text/plain;q=0.7"], text),
        (&["Accept: text/plain;q=0.5", "Accept: application/openmetrics-text"], open),
    ] {
        let response = get(proxy.admin(), "/metrics", headers);
        assert_eq!((response.header("content-type"), response.header("vary")), (Some(kind), Some("accept")));
        assert_eq!(response.text().ends_with("# EOF\n"), kind == open, "{headers:?}");
    }
}

/// Runs promtool with this input; it must succeed, and say nothing.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) {
    let mut command = command("promtool");
    let output = output_with_input(command.args(arguments), input.as_bytes());
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && (said.is_empty() || arguments[0] == "tsdb"), "{said}");
}

/// `OpenMetrics` with the descriptions of the other format, which is the only one that `promtool check metrics` reads: there
/// the name of a counter ends with `_total`.
fn with_described_counters(text: &str) -> String {
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let line = |line: &str| {
        let description = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        match description.and_then(|rest| rest.split(' ').next()) {
            Some(name) if counters.contains(name) => line.replacen(name, &format!("{name}_total"), 1) + "\n",
            _ => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

#[test]
fn promtool_accepts_both_formats() {
    let (redis, authority, server) = (RedisServer::start(), Authority::new(), Upstream::echo());
    authority.sign("localhost");
    let config = format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n{}\n{LIMITED}\n\
         [[routes]]\nname = 'say \"hi\"'\npath = \"/*\"\nupstream = \"{}\"\n",
        authority.listener("localhost"),
        server.url()
    );
    let proxy = Tidegate::start_with(&redis, &config);
    for path in ["/limited", "/free", "/forwarded"] {
        (0..5).for_each(|_| drop(get(proxy.addr(), path, &[])));
    }
    let of = |headers: &[&str]| get(proxy.admin(), "/metrics", headers).text().to_owned();
    promtool(&["check", "metrics"], &of(&[]));
    let open = of(&[OPEN_METRICS]);
    promtool(&["check", "metrics"], &with_described_counters(&open));
    // Prometheus' own parser of OpenMetrics, through a command that requires timestamps.
    let stamped = |line: &str| {
        if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1790000000\n") }
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("metrics");
    std::fs::write(&file, open.lines().map(stamped).collect::<String>()).unwrap();
    let paths = [file.to_str().unwrap(), directory.path().to_str().unwrap()];
    promtool(&["tsdb", "create-blocks-from", "openmetrics", paths[0], paths[1]], "");
    let names = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&open), names(&of(&[])));
}

/// The metrics that the table of docs/configuration/metrics.md lists.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../docs/configuration/metrics.md");
    let (_, table) = page.split_once("| metric | labels | what it counts |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
    let names = rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_documented() {
    // With several servers there is a metric of each.
    let servers = [RedisServer::start(), RedisServer::start()].map(|server| (server.url(), server));
    let urls = format!("[store]\nurls = [\"{}\", \"{}\"]\n", servers[0].0, servers[1].0);
    let proxy = Tidegate::start(&format!("{}\n{urls}", with_admin(LIMITED)));
    let text = get(proxy.admin(), "/metrics", &[]).text().to_owned();
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    assert_eq!(described.map(str::to_owned).collect::<BTreeSet<_>>(), documented());
}

#[test]
fn no_label_has_values_that_clients_choose() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&with_admin(&format!(
        "[limits.l]\nrate = \"20/hour\"\nkey = [\"header:x-key\"]\n\
         [[routes]]\nname = \"all\"\npath = \"/{{name}}/*\"\nlimits = [\"l\"]\nupstream = \"{}\"\n",
        server.url()
    )));
    let round = |number: usize| {
        let mark = format!("mark{number}");
        for (method, path) in
            [("GET", format!("/{mark}/x")), ("POST", format!("/{mark}")), (&*mark, "/a/b".into())]
        {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {mark}.example\r\nX-Key: {mark}\r\nUser-Agent: {mark}\r\n\
                 X-Request-Id: {mark}\r\nTraceparent: {mark}\r\nAuthorization: Bearer {mark}\r\n\
                 X-Forwarded-For: 192.0.2.{}\r\nContent-Length: 0\r\n\r\n",
                number % 256
            );
            Client::connect(proxy.addr()).ask(&head);
        }
    };
    (0..5).for_each(round);
    wait_for(&proxy, "tidegate_request_duration_seconds_count{route=\"all\"}", 10);
    let before = Series::of(proxy.admin());
    (5..60).for_each(round);
    let after = Series::of(proxy.admin());
    assert_eq!(before.names(), after.names());
    assert!(!after.names().iter().any(|name| name.contains("mark")), "{:?}", after.names());
}
