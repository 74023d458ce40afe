//! Limits over real sockets: counted in the process and in Redis.

use std::net::SocketAddr;

use crate::support::{Client, Message, RedisServer, Tidegate, get};

/// Runs a test over both stores; a Redis has nothing in it.
fn over_both_stores(config: &str, test: impl Fn(&Tidegate)) {
    test(&Tidegate::start(config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, config));
}

/// Sends a GET and says its status.
fn status(address: SocketAddr, target: &str, headers: &[&str]) -> u16 {
    get(address, target, headers).status()
}

/// The same from another address.
fn status_from(source: &str, address: SocketAddr, target: &str, headers: &[&str]) -> u16 {
    Client::connect_from(source, address).get(target, headers).status()
}

#[test]
fn so_many_pass_and_no_more() {
    let config = r#"
        [limits.bucket]
        rate = "1/hour"
        burst = 5
        [limits.spaced]
        algorithm = "gcra"
        rate = "1/hour"
        burst = 3
        [limits.dear]
        rate = "10/hour"
        cost = 4
        [[routes]]
        path = "/bucket"
        limits = ["bucket"]
        respond = { status = 200 }
        [[routes]]
        path = "/spaced"
        limits = ["spaced"]
        respond = { status = 200 }
        [[routes]]
        path = "/dear"
        limits = ["dear"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let mut client = Client::connect(proxy.addr());
        let mut counts = |path: &str| {
            let answers: Vec<Message> = (0..7).map(|_| client.get(path, &[])).collect();
            let passed = answers.iter().take_while(|answer| answer.status() == 200).count();
            assert!(answers[passed..].iter().all(|answer| answer.status() == 429), "{path}");
            let left = answers.iter().map(|answer| answer.header("x-ratelimit-remaining").unwrap());
            (passed, left.map(str::to_owned).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(counts("/bucket"), (5, "4 3 2 1 0 0 0".to_owned()));
        assert_eq!(counts("/spaced"), (4, "3 2 1 0 0 0 0".to_owned()));
        assert_eq!(counts("/dear"), (2, "6 2 2 2 2 2 2".to_owned()));
    });
}

#[test]
fn what_is_spent_comes_back() {
    let config = r#"
        [limits.quick]
        rate = "20/s"
        burst = 1
        [[routes]]
        path = "/*"
        limits = ["quick"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        let mut client = Client::connect(proxy.addr());
        let mut passed = 0;
        crate::support::eventually("three pass, one at a time", || {
            passed += usize::from(client.get("/", &[]).status() == 200);
            passed == 3
        });
    });
}

/// A limit that lets one request pass, by this key.
fn once_by(key: &str) -> String {
    format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.9\"]\n\
         [limits.once]\nrate = \"1/hour\"\nkey = {key}\n\
         [[routes]]\nname = \"user\"\npath = \"/users/{{id}}/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\nname = \"group\"\npath = \"/groups/{{id}}/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// A request that counts: method, target and headers.
type Asked = (&'static str, &'static str, &'static [&'static str]);

fn ask(address: SocketAddr, (method, target, headers): Asked) -> u16 {
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    let has_host = headers.iter().any(|line| line.starts_with("Host:"));
    for line in headers.iter().chain((!has_host).then_some(&"Host: localhost")) {
        request.push_str(line);
        request.push_str("\r\n");
    }
    Client::connect(address).ask(&(request + "\r\n")).status()
}

#[test]
fn requests_are_counted_apart_by_their_key() {
    const PLAIN: Asked = ("GET", "/users/7/a", &[]);
    // A key, requests that all share one count, and requests that each have another.
    let cases: [(&str, &[Asked], &[Asked]); 11] = [
        ("\"client_ip\"", &[PLAIN, ("POST", "/groups/8/b?c", &["X-Api-Key: k", "Cookie: a=b"])], &[]),
        (
            "\"header:x-api-key\"",
            &[
                ("GET", "/users/7/a", &["X-Api-Key: alpha"]),
                ("GET", "/users/8/a", &["x-api-key:   alpha  "]),
                ("GET", "/users/8/a", &["x-api-key: alpha", "x-api-key: alpha"]),
            ],
            &[
                ("GET", "/users/7/a", &[]),
                ("GET", "/users/7/a", &["X-Api-Key: beta"]),
                ("GET", "/users/7/a", &["X-Api-Key: ALPHA"]),
            ],
        ),
        (
            "\"query:key\"",
            &[
                ("GET", "/users/7/a?key=al+pha", &[]),
                ("GET", "/users/7/a?x=1&key=al%20pha", &[]),
                ("GET", "/users/7/a?%6bey=%61l+pha&key=al+pha", &[]),
            ],
            &[
                ("GET", "/users/7/a?key=beta", &[]),
                ("GET", "/users/7/a?key=al%2Bpha", &[]),
                ("GET", "/users/7/a?key=beta&key=gamma", &[]),
            ],
        ),
        (
            "\"cookie:sid\"",
            &[
                ("GET", "/users/7/a", &["Cookie: sid=1"]),
                ("GET", "/users/7/a", &["Cookie: other=2; sid=1; more=3"]),
                ("GET", "/users/7/a", &["Cookie: other=2", "Cookie: sid=1"]),
            ],
            &[("GET", "/users/7/a", &["Cookie: sid=2"]), ("GET", "/users/7/a", &["Cookie: sid=10"])],
        ),
        (
            "\"path\"",
            &[PLAIN, ("GET", "/users/7//a?x", &[]), ("GET", "/users/./x/../7/%61", &[])],
            &[("GET", "/users/7/b", &[]), ("GET", "/users/7/a/", &[])],
        ),
        (
            "\"path_param:id\"",
            &[PLAIN, ("GET", "/users/7/b", &[]), ("GET", "/groups/7/c", &[]), ("GET", "/users/%37/d", &[])],
            &[("GET", "/users/8/a", &[])],
        ),
        (
            "\"host\"",
            &[
                ("GET", "/users/7/a", &["Host: one.test"]),
                ("GET", "/users/7/a", &["Host: ONE.test.:8080"]),
                ("GET", "http://one.test/users/7/a", &["Host: two.test"]),
            ],
            &[("GET", "/users/7/a", &["Host: two.test"])],
        ),
        (
            "\"method\"",
            &[PLAIN, ("GET", "/groups/8/b", &[])],
            &[("POST", "/users/7/a", &[]), ("HEAD", "/users/7/a", &[])],
        ),
        ("\"route\"", &[PLAIN, ("POST", "/users/8/b", &[])], &[("GET", "/groups/7/a", &[])]),
        ("\"global\"", &[PLAIN, ("POST", "/groups/8/b", &["Host: x", "X-Api-Key: k"])], &[]),
        (
            "[\"header:x-api-key\", \"method\"]",
            &[("GET", "/users/7/a", &["X-Api-Key: alpha"]), ("GET", "/users/8/b", &["X-Api-Key: alpha"])],
            &[
                ("POST", "/users/7/a", &["X-Api-Key: alpha"]),
                ("GET", "/users/7/a", &["X-Api-Key: beta"]),
                ("POST", "/users/7/a", &["X-Api-Key: beta"]),
            ],
        ),
    ];
    let redis = RedisServer::start();
    for (key, same, others) in cases {
        // In a Redis the case before this one left its counts.
        redis.cli(&["FLUSHALL"]);
        for proxy in [Tidegate::start(&once_by(key)), Tidegate::start_with(&redis, &once_by(key))] {
            for (place, request) in same.iter().enumerate() {
                let expected = if place == 0 { 200 } else { 429 };
                assert_eq!(ask(proxy.addr(), *request), expected, "{key}: {request:?}");
            }
            for request in others {
                assert_eq!(ask(proxy.addr(), *request), 200, "{key}: {request:?}");
                assert_eq!(ask(proxy.addr(), *request), 429, "{key}: {request:?} again");
            }
        }
    }
}

#[test]
fn everybody_has_a_count_by_address_and_all_share_a_global_one() {
    let by_address = Tidegate::start(&once_by("\"client_ip\""));
    let global = Tidegate::start(&once_by("\"global\""));
    let ask = |proxy: &Tidegate, source| status_from(source, proxy.addr(), "/users/7/a", &[]);
    assert_eq!(ask(&by_address, "127.0.0.1"), 200);
    assert_eq!(ask(&by_address, "127.0.0.2"), 200);
    assert_eq!(ask(&by_address, "127.0.0.2"), 429);
    assert_eq!(ask(&by_address, "127.0.0.1"), 429);
    assert_eq!(ask(&global, "127.0.0.1"), 200);
    assert_eq!(ask(&global, "127.0.0.2"), 429);
}

#[test]
fn a_part_that_is_missing_means_what_the_limit_says() {
    let limit = |on_missing: &str| {
        format!(
            "[limits.once]\nrate = \"1/hour\"\nkey = \"header:x-api-key\"\n{on_missing}\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
        )
    };
    for by_address in ["", "on_missing = \"client_ip\""] {
        over_both_stores(&limit(by_address), |proxy| {
            assert_eq!(status(proxy.addr(), "/", &[]), 200);
            assert_eq!(status(proxy.addr(), "/", &[]), 429);
            assert_eq!(status(proxy.addr(), "/", &["X-Api-Key:  "]), 429);
            assert_eq!(status_from("127.0.0.2", proxy.addr(), "/", &[]), 200);
            // Nobody meets the count of an address by naming it.
            assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: 127.0.0.1"]), 200);
        });
    }
    over_both_stores(&limit("on_missing = \"skip\""), |proxy| {
        for _ in 0..3 {
            let answer = get(proxy.addr(), "/", &[]);
            assert_eq!((answer.status(), answer.header("x-ratelimit-limit")), (200, None));
        }
        assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: k"]), 200);
        assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: k"]), 429);
    });
    over_both_stores(&limit("on_missing = \"deny\""), |proxy| {
        let answer = get(proxy.addr(), "/", &[]);
        assert_eq!(answer.start, "HTTP/1.1 403 Forbidden");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let expected = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"the request needs one x-api-key header"}"#;
        assert_eq!(answer.text(), format!("{expected}\n"));
        assert_eq!(status(proxy.addr(), "/", &["X-Api-Key: k"]), 200);
    });
}

#[test]
fn a_strangers_word_for_its_address_is_nothing() {
    let proxy = Tidegate::start(&once_by("\"client_ip\""));
    let target = "/users/7/a";
    assert_eq!(status(proxy.addr(), target, &["X-Forwarded-For: 203.0.113.1"]), 200);
    for spoofed in [
        &["X-Forwarded-For: 203.0.113.2"][..],
        &["X-Forwarded-For: 127.0.0.9"],
        &["X-Forwarded-For: 203.0.113.3", "X-Forwarded-For: 203.0.113.4"],
        &["Forwarded: for=203.0.113.5", "X-Real-IP: 203.0.113.6"],
    ] {
        assert_eq!(status(proxy.addr(), target, spoofed), 429, "{spoofed:?}");
    }
}

#[test]
fn a_trusted_proxys_word_is_read_from_the_right() {
    let config = |header: &str| {
        format!(
            "[client_ip]\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\nheader = \"{header}\"\n\
             ipv4_prefix = 24\nipv6_prefix = 56\n\
             [limits.once]\nrate = \"1/hour\"\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"once\"]\nrespond = {{ status = 200 }}\n"
        )
    };
    over_both_stores(&config("x-forwarded-for"), |proxy| {
        let asked = |lines: &[&str]| status(proxy.addr(), "/", lines);
        assert_eq!(asked(&["X-Forwarded-For: 203.0.113.1"]), 200);
        // What the client itself claims stands to the left.
        assert_eq!(asked(&["X-Forwarded-For: 6.6.6.6, 203.0.113.1"]), 429);
        assert_eq!(asked(&["X-Forwarded-For: 6.6.6.6, 203.0.113.1, 10.1.2.3"]), 429);
        assert_eq!(asked(&["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 203.0.113.1"]), 429);
        assert_eq!(asked(&["X-Forwarded-For: ::ffff:203.0.113.1"]), 429);
        assert_eq!(asked(&["X-Forwarded-For: 203.0.113.99:4711"]), 429, "of one network of 24 bits");
        assert_eq!(asked(&["X-Forwarded-For: 203.0.114.1"]), 200);
        assert_eq!(asked(&["X-Forwarded-For: 2001:db8:0:aa::1"]), 200);
        assert_eq!(asked(&["X-Forwarded-For: [2001:db8:0:ff::2]:80"]), 429, "of one network of 56 bits");
        assert_eq!(asked(&["X-Forwarded-For: 2001:db8:0:1aa::1"]), 200);
        // Of a word that can't be read, the hop that said it is the client.
        assert_eq!(asked(&["X-Forwarded-For: 6.6.6.6, unknown, 10.1.2.3"]), 200);
        assert_eq!(asked(&["X-Forwarded-For: 7.7.7.7, unknown, 10.1.2.3"]), 429);
        // From a stranger it counts for nothing.
        let stranger = |lines: &[&str]| status_from("127.0.0.2", proxy.addr(), "/", lines);
        assert_eq!(stranger(&["X-Forwarded-For: 198.51.100.1"]), 200);
        assert_eq!(stranger(&["X-Forwarded-For: 198.51.100.2"]), 429);
        assert_eq!(asked(&["X-Forwarded-For: 198.51.100.1"]), 200);
    });
    let proxy = Tidegate::start(&config("forwarded"));
    let asked = |lines: &[&str]| status(proxy.addr(), "/", lines);
    assert_eq!(asked(&["Forwarded: for=203.0.113.1;proto=https"]), 200);
    assert_eq!(asked(&["Forwarded: for=6.6.6.6, For=\"203.0.113.1:80\";by=10.0.0.1, for=10.1.2.3"]), 429);
    assert_eq!(asked(&["Forwarded: for=6.6.6.6", "Forwarded: proto=http;for=203.0.113.1"]), 429);
    assert_eq!(asked(&["Forwarded: for=\"[2001:db8:0:aa::1]:80\""]), 200);
    assert_eq!(asked(&["Forwarded: for=\"[2001:db8:0:aa::2]\""]), 429);
    assert_eq!(asked(&["Forwarded: for=_hidden", "X-Forwarded-For: 198.51.100.1"]), 200);
    assert_eq!(asked(&["Forwarded: for=_other", "X-Forwarded-For: 198.51.100.2"]), 429);
}

#[test]
fn what_one_limit_refuses_costs_no_other_anything() {
    let config = r#"
        [limits.wide]
        rate = "9/hour"
        [limits.narrow]
        rate = "1/hour"
        [[routes]]
        path = "/both"
        limits = ["wide", "narrow"]
        respond = { status = 200 }
        [[routes]]
        path = "/turned"
        limits = ["narrow", "wide"]
        respond = { status = 200 }
        [[routes]]
        path = "/wide"
        limits = ["wide"]
        respond = { status = 200 }
    "#;
    over_both_stores(config, |proxy| {
        assert_eq!(status(proxy.addr(), "/both", &[]), 200);
        for _ in 0..4 {
            assert_eq!(status(proxy.addr(), "/both", &[]), 429);
            assert_eq!(status(proxy.addr(), "/turned", &[]), 429);
        }
        let answer = get(proxy.addr(), "/wide", &[]);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("7"));
    });
}

#[test]
fn values_reach_redis_only_as_hashes() {
    const SECRET: &str = "sk-live-4711-secret";
    let config = r#"
        [limits.by-key]
        rate = "2/hour"
        key = ["header:x-api-key", "path", "host", "client_ip"]
        [limits.by_query]
        algorithm = "gcra"
        rate = "1/minute"
        burst = 1
        key = "query:token"
        [[routes]]
        path = "/orders/*"
        limits = ["by-key", "by_query"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    redis.cli(&["FLUSHALL"]);
    let monitor = redis.monitor();
    let target = format!("/orders/hidden-path?token={SECRET}-q");
    let header = format!("X-Api-Key: {SECRET}");
    let headers = [&*header, "Host: hidden-host.test"];
    assert_eq!(status(proxy.addr(), &target, &headers), 200);
    redis.cli(&["ECHO", "that-is-all"]);
    let commands = monitor.until("that-is-all");
    assert!(commands.iter().any(|line| line.contains("EVALSHA")), "{commands:#?}");
    let keys = redis.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    for (name, letter) in [("by-key", "b"), ("by_query", "g")] {
        let end = format!("}}:{name}:{letter}");
        let tag = keys.iter().find_map(|key| key.strip_prefix("tidegate:{")?.strip_suffix(&end));
        let tag = tag.unwrap_or_else(|| panic!("no {name} in {keys:?}"));
        assert_eq!(tag.len(), 22);
        assert!(tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{tag}");
    }
    let values: String = keys.iter().map(|key| redis.cli(&["GET", key])).collect();
    for text in commands.iter().chain(&keys).chain([&values]) {
        for secret in [SECRET, "4711", "hidden", "127.0.0.1\"", "x-api-key", "token\""] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    // Every proxy makes the same keys, but with a secret of their own others.
    let twin = Tidegate::start_with(&redis, config);
    assert_eq!(status(twin.addr(), &target, &headers), 200);
    let of_limits = || redis.keys().into_iter().filter(|key| !key.contains("ready")).collect::<Vec<_>>();
    assert_eq!(of_limits(), keys);
    let store = "timeout = \"5s\"\nprefix = \"own\"\nhash_key = \"0123456789abcdef\"";
    let keyed = Tidegate::start_with_store(&redis, store, config);
    redis.cli(&["FLUSHALL"]);
    assert_eq!(status(keyed.addr(), &target, &headers), 200);
    let own: Vec<String> = redis.keys().iter().map(|key| key.replacen("own", "tidegate", 1)).collect();
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|key| key.starts_with("tidegate:{") && !keys.contains(key)), "{own:?}");
}

#[test]
fn every_key_in_redis_ends_when_it_means_nothing_any_more() {
    let config = r#"
        [limits.slow]
        rate = "2/hour"
        [limits.spaced]
        algorithm = "gcra"
        rate = "1/minute"
        burst = 4
        [limits.quick]
        rate = "1000/s"
        [[routes]]
        path = "/*"
        limits = ["slow", "spaced", "quick"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    redis.cli(&["FLUSHALL"]);
    for (refill_of_slow, refill_of_spaced) in [(1_800_000, 60_000), (3_600_000, 120_000)] {
        assert_eq!(status(proxy.addr(), "/", &[]), 200);
        let keys = redis.keys();
        let life = |name: &str| -> Option<i64> {
            let key = keys.iter().find(|key| key.contains(name))?;
            Some(redis.cli(&["PTTL", key]).parse().unwrap())
        };
        for (name, refill) in [("slow", refill_of_slow), ("spaced", refill_of_spaced)] {
            let life = life(name).unwrap();
            // A little time has gone by since the charge; and no state outlives its meaning by much.
            assert!((refill - 20_000..refill + 1_000).contains(&life), "{name}: {life} of {refill}");
        }
        // The third key may be gone already, but it never stays for ever.
        assert!(life("quick").is_none_or(|life| life != -1));
    }
    // A refusal neither writes nor makes anything live longer.
    let key = redis.keys().into_iter().find(|key| key.contains("slow")).unwrap();
    let before: i64 = redis.cli(&["PTTL", &key]).parse().unwrap();
    assert_eq!(status(proxy.addr(), "/", &[]), 429);
    let after: i64 = redis.cli(&["PTTL", &key]).parse().unwrap();
    assert!(after <= before, "{after} after {before}");
}

#[test]
fn a_redis_that_forgets_the_script_is_told_again() {
    let config = r#"
        [limits.five]
        rate = "5/hour"
        on_store_failure = "deny"
        [[routes]]
        path = "/*"
        limits = ["five"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, config);
    for remaining in ["4", "3", "2"] {
        assert_eq!(redis.cli(&["SCRIPT", "FLUSH"]), "OK");
        let answer = get(proxy.addr(), "/", &[]);
        assert_eq!((answer.status(), answer.header("x-ratelimit-remaining")), (200, Some(remaining)));
    }
}

/// A key that is refused is refused by heart until it may pass again: Redis is hardly asked.
#[test]
fn a_hot_key_that_is_denied_costs_redis_next_to_nothing() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(
        &redis,
        r#"
        [limits.hot]
        rate = "1/hour"
        key = "header:x-key"
        [[routes]]
        path = "/*"
        limits = ["hot"]
        respond = { status = 200 }
        "#,
    );
    let calls = || -> u64 {
        let stats = redis.cli(&["info", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        line.split(['=', ',']).nth(1).unwrap().parse().unwrap()
    };
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &["X-Key: a"]).status(), 200);
    assert_eq!(client.get("/", &["X-Key: a"]).status(), 429);
    let before = calls();
    for _ in 0..300 {
        let refused = client.get("/", &["X-Key: a"]);
        assert_eq!((refused.status(), refused.header("x-ratelimit-remaining")), (429, Some("0")));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((3_500..=3_600).contains(&wait));
    }
    // One a second at most, on whatever machine this runs.
    assert!(calls() - before < 30, "{} calls", calls() - before);
    assert_eq!(client.get("/", &["X-Key: b"]).status(), 200);
}
