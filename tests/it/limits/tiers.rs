//! Who gets which limit: tiers, overrides, allow and block, and whose headers count.

use std::net::{IpAddr, SocketAddr};

use http::{Method, Uri};
use tidegate::config::{self, Loaded};
use tidegate::gate::{Charges, Gate};
use tidegate::http1::RequestHead;
use tidegate::limit::{Charge, ChargeKind, PolicyId};

use crate::support::{Client, Message, RedisServer, Tidegate, eventually, get};

/// The only trusted proxy of these tests.
const PROXY: &str = "127.0.0.9";

/// A file whose one route has one limit with these lines.
fn limited(limit: &str) -> String {
    format!(
        "[client_ip]\ntrusted_proxies = [\"{PROXY}\"]\n[limits.one]\n{limit}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// What a request from the trusted proxy is answered; it speaks for itself, having no forwarding header.
fn by_proxy(address: SocketAddr, headers: &[&str]) -> Message {
    Client::connect_from(PROXY, address).get("/", headers)
}

fn number(answer: &Message, header: &str) -> u64 {
    answer.header(header).unwrap().parse().unwrap()
}

/// The quota that an answer shows: which numbers the request has met.
fn quota(answer: &Message) -> u64 {
    number(answer, "x-ratelimit-limit")
}

#[test]
fn tiers_go_by_headers_of_trusted_proxies() {
    let config = limited(
        "rate = \"2/hour\"\nkey = \"header:x-api-key\"\n\
         tiers = { by = \"header:x-plan\", pro = { rate = \"30/hour\" }, \"v1.Free_x-1\" = { rate = \"1/hour\" } }",
    );
    let test = |proxy: &Tidegate| {
        let key = "X-Api-Key: k";
        for (plan, wanted) in [("pro", 30), ("v1.Free_x-1", 1), ("Pro", 2), ("gold", 2), ("", 2)] {
            let plan = format!("X-Plan: {plan}");
            assert_eq!(quota(&by_proxy(proxy.addr(), &[key, &plan])), wanted, "{plan}");
        }
        // The server may read another value than we would.
        assert_eq!(by_proxy(proxy.addr(), &[key, "X-Plan: pro", "X-Plan: gold"]).status(), 400);
        // A stranger's word counts for nothing, and its own numbers are used up by now.
        let stranger = get(proxy.addr(), "/", &[key, "X-Plan: pro"]);
        assert_eq!((stranger.status(), quota(&stranger)), (429, 2));
        // Each tier counts apart: one request of this one is spent.
        assert_eq!(number(&by_proxy(proxy.addr(), &[key, "X-Plan: pro"]), "x-ratelimit-remaining"), 28);
    };
    test(&Tidegate::start(&config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, &config));
}

#[test]
fn tiers_by_what_no_client_sets_need_no_trust() {
    let config = "[limits.one]\nrate = \"5/hour\"\n\
                  tiers = { by = \"path_param:plan\", pro = { rate = \"30/hour\" } }\n\
                  [limits.two]\nrate = \"50/hour\"\n\
                  tiers = { by = \"method\", POST = { rate = \"3/hour\" } }\n\
                  [[routes]]\npath = \"/plans/{plan}\"\nlimits = [\"one\"]\nrespond = { status = 200 }\n\
                  [[routes]]\npath = \"/*\"\nlimits = [\"two\"]\nrespond = { status = 200 }\n";
    let proxy = Tidegate::start(config);
    assert_eq!(quota(&get(proxy.addr(), "/plans/pro", &[])), 30);
    assert_eq!(quota(&get(proxy.addr(), "/plans/other", &[])), 5);
    assert_eq!(quota(&get(proxy.addr(), "/", &[])), 50);
    let posted = Client::connect(proxy.addr()).ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(quota(&posted), 3);
}

#[test]
fn whoever_is_trusted_may_set_its_tier() {
    let config = limited(
        "rate = \"2/hour\"\ntrust = \"any\"\ntiers = { by = \"query:plan\", pro = { rate = \"30/hour\" } }",
    );
    let proxy = Tidegate::start(&config);
    assert_eq!(quota(&get(proxy.addr(), "/?plan=pro", &[])), 30);
    assert_eq!(quota(&get(proxy.addr(), "/?plan=%70ro", &[])), 30);
    assert_eq!(quota(&get(proxy.addr(), "/", &[])), 2);
}

#[test]
fn a_cost_from_a_header_is_clamped() {
    let config = limited("rate = \"1000/hour\"\ncost = \"header:x-cost\"\ncost_max = 40");
    let proxy = Tidegate::start(&config);
    let mut left = 1_000;
    for (headers, cost) in [
        (&["X-Cost: 7"][..], 7),
        (&["X-Cost: 41"], 40),
        (&["X-Cost: 99999999999999999999999999"], 40),
        (&["X-Cost: 0"], 1),
        (&["X-Cost: -3"], 1),
        (&["X-Cost: 2.5"], 1),
        (&["X-Cost: +3"], 1),
        (&["X-Cost:"], 1),
        (&["X-Cost: 3", "X-Cost: 3"], 3),
        (&[], 1),
    ] {
        left -= cost;
        let answer = by_proxy(proxy.addr(), headers);
        assert_eq!(number(&answer, "x-ratelimit-remaining"), left, "{headers:?}");
    }
    let stranger = get(proxy.addr(), "/", &["X-Cost: 7"]);
    assert_eq!(number(&stranger, "x-ratelimit-remaining"), 999);
}

#[test]
fn overrides_go_by_the_first_part_or_by_all() {
    let config = limited(
        r#"
        rate = "5/hour"
        key = ["header:x-api-key", "method"]
        [limits.one.overrides]
        acme = { rate = "20/hour" }
        'acme|POST' = { rate = "30/hour" }
        'a\|b' = { rate = "40/hour" }
        'a\|b|PUT' = { rate = "50/hour" }
        "127.0.0.1" = { rate = "60/hour" }
        "#,
    );
    let test = |proxy: &Tidegate| {
        let quota_of = |method: &str, key: &str| {
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 0\r\n\r\n");
            quota(&Client::connect(proxy.addr()).ask(&request))
        };
        assert_eq!(quota_of("GET", "X-Api-Key: acme\r\n"), 20);
        assert_eq!(quota_of("POST", "X-Api-Key: acme\r\n"), 30);
        assert_eq!(quota_of("GET", "X-Api-Key: a|b\r\n"), 40);
        assert_eq!(quota_of("PUT", "X-Api-Key: a|b\r\n"), 50);
        assert_eq!(quota_of("GET", "X-Api-Key: other\r\n"), 5);
        assert_eq!(quota_of("GET", "X-Api-Key: acme|POST\r\n"), 5);
        // An address that stands in for a missing part is no name for that part.
        assert_eq!(quota_of("GET", ""), 5);
        assert_eq!(quota_of("GET", "X-Api-Key: 127.0.0.1\r\n"), 60);
        // The name stands for the first part, and the count is still that of the whole key.
        let second = Client::connect(proxy.addr()).get("/", &["X-Api-Key: acme"]);
        assert_eq!(number(&second, "x-ratelimit-remaining"), 18);
    };
    test(&Tidegate::start(&config));
    let redis = RedisServer::start();
    test(&Tidegate::start_with(&redis, &config));
}

#[test]
fn a_rate_of_its_own_does_not_go_with_the_burst_of_another() {
    let config = limited(
        r#"
        rate = "100/hour"
        burst = 50
        key = "header:x-api-key"
        [limits.one.overrides]
        rate = { rate = "20/hour" }
        both = { rate = "20/hour", burst = 3 }
        burst = { burst = 70 }
        same = {}
        "#,
    );
    let proxy = Tidegate::start(&config);
    for (key, wanted) in [("none", 50), ("rate", 20), ("both", 3), ("burst", 70), ("same", 50)] {
        assert_eq!(quota(&get(proxy.addr(), "/", &[&format!("X-Api-Key: {key}")])), wanted, "{key}");
    }
}

#[test]
fn who_is_allowed_is_not_limited_and_who_is_blocked_is_refused() {
    let config = limited(
        r#"
        rate = "1/hour"
        key = "header:x-api-key"
        on_missing = "deny"
        allow = ["127.0.2.0/24", "key:friend", "key:traitor"]
        block = ["127.0.3.7", "key:stolen", "key:traitor"]
        overrides = { friend = { rate = "9/hour" }, stolen = { rate = "9/hour" }, big = { rate = "7/hour" } }
        tiers = { by = "header:x-plan", pro = { rate = "8/hour" } }
        "#,
    );
    let proxy = Tidegate::start(&config);
    let from = |source: &str, headers: &[&str]| Client::connect_from(source, proxy.addr()).get("/", headers);
    for _ in 0..3 {
        let friend = from("127.0.0.1", &["X-Api-Key: friend"]);
        assert_eq!((friend.status(), friend.header("x-ratelimit-limit")), (200, None));
        // Not even a missing part keeps it out.
        assert_eq!(from("127.0.2.77", &[]).status(), 200);
    }
    for (source, headers) in [
        ("127.0.0.1", &["X-Api-Key: stolen"][..]),
        ("127.0.0.1", &["X-Api-Key: traitor"]),
        ("127.0.2.77", &["X-Api-Key: stolen"]),
        ("127.0.3.7", &["X-Api-Key: friend"]),
        ("127.0.3.7", &[]),
    ] {
        let refused = from(source, headers);
        assert_eq!(refused.status(), 403, "{source} {headers:?}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert!(refused.text().contains("\"detail\":\"this client is blocked\""), "{}", refused.text());
        assert_eq!(refused.header("connection"), None);
    }
    // An override goes before a tier, and a tier before the limit's own numbers.
    assert_eq!(quota(&from(PROXY, &["X-Api-Key: big", "X-Plan: pro"])), 7);
    assert_eq!(quota(&from(PROXY, &["X-Api-Key: any", "X-Plan: pro"])), 8);
    assert_eq!(quota(&from(PROXY, &["X-Api-Key: any"])), 1);
    assert_eq!(from("127.0.0.1", &[]).status(), 403);
}

#[test]
fn a_limit_that_only_watches_refuses_nobody() {
    let config = limited(
        "rate = \"1/hour\"\nkey = \"header:x-api-key\"\nmode = \"shadow\"\non_missing = \"deny\"\n\
         block = [\"127.0.0.0/8\", \"key:stolen\"]",
    );
    let proxy = Tidegate::start(&config);
    for headers in [&["X-Api-Key: stolen"][..], &["X-Api-Key: stolen"], &[]] {
        assert_eq!(get(proxy.addr(), "/", headers).status(), 200, "{headers:?}");
    }
}

fn loaded(limit: &str) -> Loaded {
    let text = format!("listen = \"127.0.0.1:0\"\n{}", limited(limit));
    config::parse(&text, "tidegate.toml", &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

fn head(headers: &[(&str, &str)]) -> RequestHead {
    let fields = [("host", "a")].iter().chain(headers).copied().collect();
    RequestHead { fields, ..RequestHead::new(Method::GET, Uri::from_static("/")) }
}

fn charges(gate: &Gate, headers: &[(&str, &str)]) -> Charges {
    let peer: IpAddr = PROXY.parse().unwrap();
    gate.plan(peer.into(), &head(headers)).unwrap().charges
}

#[test]
fn a_limit_that_charges_by_status_takes_on_arrival() {
    let loaded = loaded(
        "rate = \"20/hour\"\ncharge_on = [401, 403]\ncost = \"header:x-cost\"\n\
         overrides = { \"127.0.0.9\" = { rate = \"30/hour\" } }",
    );
    let gate = &loaded.config.site.gate;
    let charges = charges(gate, &[("x-cost", "3")]);
    let [Charge { policy, cost: 3, manner: ChargeKind::Take, .. }] = charges[..] else {
        panic!("{charges:?}")
    };
    assert_eq!((policy, gate.limit_of(policy)), (PolicyId(1), PolicyId(0)));
    // An override has numbers of its own, and charges by the same statuses.
    assert_eq!(gate.limits.policies[policy.0 as usize].charge_on[..], [401, 403]);
}

#[test]
fn names_lead_to_the_keys_and_numbers_that_requests_meet() {
    let loaded = loaded(
        r#"
        rate = "5/hour"
        key = ["header:x-api-key", "method"]
        tiers = { by = "host", a = { rate = "6/hour" }, b = { rate = "7/hour" } }
        overrides = { acme = { rate = "20/hour" }, 'a\|b|GET' = { rate = "30/hour" } }
        "#,
    );
    let gate = &loaded.config.site.gate;
    let limit = gate.limit_named("one").unwrap();
    for (name, value, numbers, tiers) in
        [("acme|GET", "acme", 3, 0), (r"a\|b|GET", "a|b", 4, 0), ("other|GET", "other", 0, 2)]
    {
        let named = gate.keys(limit).named(name).unwrap();
        let [charge] = charges(gate, &[("x-api-key", value)])[..] else { panic!("one charge") };
        assert_eq!(named.key, charge.key, "{name}");
        assert_eq!((named.policy, named.tiers.len()), (PolicyId(numbers), tiers), "{name}");
        // Of a key without an override the request meets a tier.
        assert_eq!(charge.policy, if tiers > 0 { PolicyId(1) } else { named.policy }, "{name}");
    }
    let error = gate.keys(limit).named("acme").unwrap_err().to_string();
    assert_eq!(error, "the name has one part, and the key has 2: header:x-api-key|method");
}

#[test]
fn a_request_without_a_required_key_is_charged_to_its_other_limits() {
    let redis = RedisServer::start();
    let config = r#"
        listen = "127.0.0.1:0"
        [log]
        access = "json"
        [admin]
        listen = "127.0.0.1:0"
        [limits.per-address]
        rate = "3/hour"
        [limits.per-key]
        rate = "9/hour"
        key = "header:x-api-key"
        on_missing = "deny"
        missing_status = 401
        [[routes]]
        path = "/*"
        limits = ["per-address", "per-key"]
        respond = { status = 200 }
    "#;
    for proxy in [Tidegate::start(config), Tidegate::start_with(&redis, config)] {
        for left in ["2", "1", "0"] {
            let refused = get(proxy.addr(), "/", &[]);
            assert_eq!((refused.status(), refused.header("www-authenticate")), (401, Some("ApiKey")));
            assert_eq!(refused.header("x-ratelimit-remaining"), Some(left));
            assert!(refused.text().contains("\"detail\":\"the request needs one x-api-key header\""));
        }
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        // Over Redis the first request asks whether the store is ready, and is not denied.
        let denied_by = |line: &String| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["denied_by"].as_str().map(str::to_owned)
        };
        let mut denied: Vec<String> = Vec::new();
        eventually("the log has its lines", || {
            denied = proxy.accesses(0).iter().filter_map(denied_by).collect();
            denied.len() == 4
        });
        assert_eq!(denied, ["per-key", "per-key", "per-key", "per-address"]);
        let metrics = get(proxy.admin(), "/metrics", &[]);
        let counted = "tidegate_decisions_total{limit=\"per-key\",outcome=\"missing_key\"} 3";
        assert!(metrics.text().contains(counted), "{}", metrics.text());
    }
}
