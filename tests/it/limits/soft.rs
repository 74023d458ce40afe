//! Soft limits: warnings from a share of a limit on, and limits that mark requests for the server.

use serde_json::{Value, json};

use super::setup::PROXY;
use crate::support::{Client, Message, Tidegate, Upstream, get, over_both_stores};

/// A file whose route has these limits, and a server that echoes requests.
fn forwarding(limits: &str, names: &[&str], more: &str) -> (Upstream, String) {
    let upstream = Upstream::echo();
    let route = format!("[[routes]]\npath = \"/*\"\nlimits = {names:?}\nupstream = \"{}\"\n", upstream.url());
    (upstream, format!("{limits}\n{route}{more}"))
}

/// The warning that a response has, and the warning and the mark that its server got.
fn soft(response: &Message) -> [Option<String>; 3] {
    let request = response.echoed();
    let header = |message: &Message, name| message.header(name).map(str::to_owned);
    [
        header(response, "x-ratelimit-warning"),
        header(&request, "x-ratelimit-warning"),
        header(&request, "x-ratelimit-denied"),
    ]
}

fn texts<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
    texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
}

#[test]
fn a_warning_begins_with_its_share_of_the_limit() {
    for numbers in [
        "rate = \"5/day\"\nburst = 5",
        "algorithm = \"gcra\"\nrate = \"5/day\"\nburst = 4",
        "algorithm = \"fixed_window\"\nrate = \"5/day\"\nalign = \"first_request\"",
        "algorithm = \"sliding_window\"\nrate = \"5/day\"",
        "algorithm = \"sliding_log\"\nrate = [\"5/day\", \"100/week\"]",
    ] {
        let limit = format!("[limits.few]\n{numbers}\nwarn_at = 0.8");
        let (_upstream, config) = forwarding(&limit, &["few"], "");
        over_both_stores(&config, |proxy| {
            let responses = [(); 6].map(|()| get(proxy.addr(), "/", &[]));
            for response in &responses[..3] {
                assert_eq!(soft(response), texts(["", "", ""]), "{numbers}");
            }
            for response in &responses[3..5] {
                assert_eq!(soft(response), texts(["few", "few", ""]), "{numbers}");
            }
            assert_eq!((responses[5].status(), responses[5].header("x-ratelimit-warning")), (429, None));
        });
    }
}

#[test]
fn slots_in_use_are_a_share_of_a_concurrency_limit() {
    let limit = "[limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 2\nwarn_at = 0.6";
    let (_upstream, config) = forwarding(limit, &["slots"], "");
    let (held, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let route =
        format!("[[routes]]\npath = \"/held\"\nlimits = [\"slots\"]\nupstream = \"{}\"\n", held.url());
    let proxy = Tidegate::start(&config.replacen("[[routes]]", &format!("{route}[[routes]]"), 1));
    assert_eq!(soft(&get(proxy.addr(), "/", &[])), texts(["", "", ""]));
    let address = proxy.addr();
    let waiting = std::thread::spawn(move || get(address, "/held", &[]));
    crate::support::eventually("a slot is in use", || {
        soft(&get(address, "/", &[])) == texts(["slots", "slots", ""])
    });
    release.send(()).unwrap();
    assert_eq!(waiting.join().unwrap().status(), 200);
}

#[test]
fn several_limits_are_named_in_the_order_of_the_route() {
    let limits = r#"
        [limits.per-client]
        rate = "2/day"
        warn_at = 0.5
        [limits.all]
        rate = "4/day"
        key = "global"
        warn_at = 0.5
        [limits.quiet]
        rate = "1/day"
        mode = "shadow"
        warn_at = 0.1
        [limits.plan]
        rate = "1/day"
        mode = "mark"
        warn_at = 0.5
        [limits.strict]
        rate = "1/day"
        mode = "mark"
    "#;
    let names = ["per-client", "all", "quiet", "plan", "strict"];
    let (_upstream, config) = forwarding(limits, &names, "");
    over_both_stores(&config, |proxy| {
        let responses = [(); 3].map(|()| get(proxy.addr(), "/", &[]));
        assert_eq!(soft(&responses[0]), texts(["per-client, plan", "per-client, plan", ""]));
        let warned = "per-client, all, plan";
        assert_eq!(soft(&responses[1]), texts([warned, warned, "plan, strict"]));
        assert_eq!(responses[2].status(), 429);
    });
}

#[test]
fn a_marked_request_spends_nothing_and_shows_no_limit_to_its_client() {
    let limits =
        "[limits.plan]\nrate = \"2/day\"\nmode = \"mark\"\ncost = \"header:x-cost\"\ntrust = \"any\"";
    let (_upstream, config) = forwarding(limits, &["plan"], "[admin]\nlisten = \"127.0.0.1:0\"\n");
    over_both_stores(&config, |proxy| {
        for (cost, denied) in [("1", ""), ("2", "plan"), ("1", ""), ("1", "plan"), ("2", "plan")] {
            let response = get(proxy.addr(), "/", &[&format!("X-Cost: {cost}")]);
            assert_eq!((response.status(), response.header("x-ratelimit-limit")), (200, None));
            assert_eq!(soft(&response), texts(["", "", denied]), "cost {cost}");
        }
        assert_eq!((proxy.decisions("plan", "marked"), proxy.decisions("plan", "shadow_denied")), (3, 0));
        // A quota of which less than a fifth remains is nearly used up where there is no `warn_at`.
        assert_eq!((proxy.decisions("plan", "allowed"), proxy.decisions("plan", "near_limit")), (1, 1));
        let limits = get(proxy.admin(), "/v1/limits", &[]);
        let limits: Value = serde_json::from_str(limits.text()).unwrap();
        let limits = limits["limits"].as_array().unwrap();
        let plan = limits.iter().find(|limit| limit["name"] == "plan").unwrap();
        assert_eq!(plan["mode"], json!("mark"));
        let top = get(proxy.admin(), "/v1/top?by=denials&limit=plan", &[]);
        let top: Value = serde_json::from_str(top.text()).unwrap();
        let first = &top["limits"][0];
        assert_eq!((&first["mode"], &first["keys"][0]["count"]), (&json!("mark"), &json!(3)));
    });
}

#[test]
fn warned_requests_are_counted_as_near_the_limit() {
    let limits = "[limits.few]\nrate = \"4/day\"\nwarn_at = 0.5";
    let (_upstream, config) = forwarding(limits, &["few"], "[admin]\nlisten = \"127.0.0.1:0\"\n");
    let proxy = Tidegate::start(&config);
    for _ in 0..5 {
        get(proxy.addr(), "/", &[]);
    }
    let count = |outcome| proxy.decisions("few", outcome);
    assert_eq!((count("allowed"), count("near_limit"), count("denied")), (1, 3, 1));
}

#[test]
fn tiers_and_overrides_are_warned_by_their_own_numbers() {
    let limits = r#"
        [limits.few]
        rate = "2/day"
        key = "header:x-key"
        warn_at = 0.5
        trust = "any"
        tiers = { by = "header:x-plan", pro = { rate = "4/day" } }
        overrides = { big = { rate = "6/day" } }
    "#;
    let (_upstream, config) = forwarding(limits, &["few"], "");
    let proxy = Tidegate::start(&config);
    let first_warning = |headers: &[&str]| {
        (1..=6).find(|_| soft(&get(proxy.addr(), "/", headers)) == texts(["few", "few", ""]))
    };
    assert_eq!(first_warning(&["X-Key: a"]), Some(1));
    assert_eq!(first_warning(&["X-Key: a", "X-Plan: pro"]), Some(2));
    assert_eq!(first_warning(&["X-Key: big"]), Some(3));
}

#[test]
fn the_headers_of_clients_are_removed() {
    let sent = [
        "X-RateLimit-Warning: mine",
        "X-RateLimit-Denied: mine",
        "X_RateLimit_Denied: mine",
        "X-Other: kept",
    ];
    let limits = format!(
        "[client_ip]\ntrusted_proxies = [\"{PROXY}\"]\n\
         [limits.soft]\nrate = \"1/day\"\nmode = \"mark\"\n[limits.hard]\nrate = \"9/day\""
    );
    let (_upstream, config) = forwarding(&limits, &["hard"], "");
    let proxy = Tidegate::start(&config);
    for source in ["127.0.0.1", PROXY] {
        let request = Client::connect_from(source, proxy.addr()).get("/", &sent).echoed();
        let names = request.names().into_iter().filter(|name| name.contains("limit"));
        assert_eq!(names.collect::<Vec<_>>(), [] as [String; 0], "{source}");
        assert_eq!(request.header("x-other"), Some("kept"));
    }
    // Without soft limits they are headers like others.
    let (_upstream, config) = forwarding("[limits.hard]\nrate = \"9/day\"", &["hard"], "");
    let request = get(Tidegate::start(&config).addr(), "/", &sent).echoed();
    assert_eq!(request.header("x-ratelimit-denied"), Some("mine"));
}

#[test]
fn a_server_may_warn_too_and_rate_headers_can_be_switched_off() {
    let limits = "[limits.few]\nrate = \"9/day\"\nwarn_at = 0.1";
    let answer = "HTTP/1.1 200 OK\r\nX-RateLimit-Warning: own\r\nContent-Length: 0\r\n\r\n";
    let upstream = Upstream::answering(answer);
    let route = format!("[[routes]]\npath = \"/*\"\nlimits = [\"few\"]\nupstream = \"{}\"\n", upstream.url());
    for (answers, expected) in [
        ("", vec!["own", "few"]),
        ("[answers]\nrate_headers = \"draft-11\"\n", vec!["own", "few"]),
        ("[answers]\nrate_headers = \"none\"\n", vec!["own"]),
    ] {
        let proxy = Tidegate::start(&format!("{limits}\n{route}{answers}"));
        assert_eq!(get(proxy.addr(), "/", &[]).all("x-ratelimit-warning"), expected, "{answers}");
    }
    let (_upstream, config) = forwarding(limits, &["few"], "[answers]\nrate_headers = \"none\"\n");
    let response = get(Tidegate::start(&config).addr(), "/", &[]);
    assert_eq!(soft(&response), texts(["", "few", ""]));
}

#[test]
fn the_access_log_names_soft_limits() {
    let limits =
        "[limits.few]\nrate = \"9/day\"\nwarn_at = 0.2\n[limits.plan]\nrate = \"1/day\"\nmode = \"mark\"";
    let (_upstream, config) = forwarding(limits, &["few", "plan"], "[log]\naccess = \"json\"\n");
    let proxy = Tidegate::start(&config);
    for _ in 0..2 {
        get(proxy.addr(), "/", &[]);
    }
    let lines = proxy.accesses(2);
    let fields = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        [line["warned_by"].clone(), line["marked_by"].clone(), line["shadow_denied_by"].clone()]
    };
    assert_eq!(fields(&lines[0]), [Value::Null, Value::Null, Value::Null]);
    assert_eq!(fields(&lines[1]), [json!(["few"]), json!(["plan"]), Value::Null]);
}

/// While Redis is unavailable each proxy decides by its share, and warns by it.
#[test]
fn warnings_continue_while_redis_is_unavailable() {
    let limits =
        "[limits.few]\nrate = \"8/day\"\nwarn_at = 0.5\n[limits.plan]\nrate = \"2/day\"\nmode = \"mark\"";
    let store = "[store]\nurl = \"redis://127.0.0.1:9\"\ninstances = 2\n";
    let (_upstream, config) = forwarding(limits, &["few", "plan"], store);
    let proxy = Tidegate::start(&config);
    // The share is 4 of 8 units, and 1 of 2.
    for expected in [["", "", ""], ["few", "few", "plan"]] {
        assert_eq!(soft(&get(proxy.addr(), "/", &[])), texts(expected));
    }
}
