//! What a server reports is bounded, and nothing that a client sends makes a request cost less.

use std::fmt::Write as _;

use super::setup::{
    CAPACITY, RESERVE, all_unknown, case, config, events, json, logged, ok, outcome, own, play, play_all,
    settled_by, unknown, until_charged, upstream,
};
use crate::support::{Client, Tidegate, Upstream, eventually, get, over_both_stores};

const JSON: &str = "json:/usage/cost";

#[test]
fn numbers_that_are_no_costs() {
    let cost = |number: &str| json(&format!("{{\"usage\": {{\"cost\": {number}}}}}"));
    let bad = |name, number| case(name, cost(number), RESERVE).post("{}").unknown("malformed");
    play_all(
        &settled_by(JSON),
        &[
            bad("exponent", "1e400"),
            bad("small-exponent", "1e1"),
            bad("negative", "-1"),
            bad("minus-zero", "-0"),
            bad("fraction", "0.5"),
            bad("above-64-bits", "18446744073709551616"),
            bad("long", &"9".repeat(100_000)),
            bad("infinite", "Infinity"),
            bad("true", "true"),
            bad("array", "[7]"),
            case("duplicate", json(r#"{"usage": {"cost": 1, "cost": 7}}"#), 7).post("{}"),
            case("usage-twice", json(r#"{"usage": {"cost": 1}, "usage": {"cost": 8}}"#), 8).post("{}"),
            case("last-is-bad", json(r#"{"usage": {"cost": 1, "cost": -1}}"#), RESERVE)
                .post("{}")
                .unknown("malformed"),
        ],
    );
}

/// A usage in a text is none, and neither is one in another place.
#[test]
fn usages_in_other_places() {
    let absent = |name, body: &str| case(name, json(body), RESERVE).post("{}").unknown("absent");
    play_all(
        &settled_by(JSON),
        &[
            absent("text", r#"{"answer": "{\"usage\": {\"cost\": 0}}"}"#),
            absent("text-in-text", r#"{"answer": "\", \"usage\": {\"cost\": 0}, \""}"#),
            absent("nested", r#"{"answer": {"usage": {"cost": 0}}}"#),
            absent("array", r#"[{"usage": {"cost": 0}}]"#),
            absent("value", r#"{"usage": 0}"#),
            case("event-in-text", events(&[r#"{"a": "\n\ndata: {\"usage\": {\"cost\": 0}}\n\n"}"#]), RESERVE)
                .post("{}")
                .unknown("absent"),
        ],
    );
    let chat = |content: &str| {
        json(&format!(
            r#"{{"choices": [{{"message": {{"content": {content}}}}}], "usage": {{"prompt_tokens": 3, "completion_tokens": 4}}}}"#
        ))
    };
    play_all(
        "cost = \"llm_tokens\"",
        &[
            case("text", chat(r#""{\"usage\": {\"completion_tokens\": 0}}""#), 7).post("{}"),
            case("object", chat(r#"{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}"#), 7).post("{}"),
        ],
    );
}

/// Deep and long documents are read in bounded memory, and passed on whole.
#[test]
fn depth_bombs_and_endless_bodies() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let with_deep = |levels| json(&format!("{{\"a\": {}, \"usage\": {{\"cost\": 7}}}}", deep(levels)));
    let long = format!("{{\"a\": \"{}\", \"usage\": {{\"cost\": 7}}}}", "x".repeat(24 << 20));
    let name = format!("{{\"{}\": 1, \"usage\": {{\"cost\": 7}}}}", "x".repeat(1 << 20));
    let mut many = String::from("{");
    for number in 0..200_000 {
        let _ = write!(many, "\"k{number}\": {{\"usage\": {{\"cost\": {number}}}}},");
    }
    many.push_str("\"usage\": {\"cost\": 7}}");
    let cases = [
        case("deep", with_deep(300), 7).post("{}"),
        case("too-deep", with_deep(100_000), RESERVE).post("{}").unknown("malformed"),
        case("unclosed", json(&"[".repeat(1 << 20)), RESERVE).post("{}").unknown("malformed"),
        case("long", json(&long), 7).post("{}"),
        case("name", json(&name), 7).post("{}"),
        case("many", json(&many), 7).post("{}"),
        case("long-event", events(&[&long, "[DONE]"]), 7).post("{}"),
    ];
    let upstream = upstream(&cases);
    over_both_stores(&config(&settled_by(JSON), &upstream.url()), |proxy| {
        let before = proxy.peak_memory();
        for case in &cases {
            play(proxy, case).unwrap();
        }
        let grown = proxy.peak_memory() - before;
        assert!(grown < 8 * 1024, "{grown} KiB more");
    });
}

/// A client that reads an endless response and leaves is charged what was reserved.
#[test]
fn a_response_without_end() {
    let server = Upstream::scripted(|caller| {
        let Ok(Some(_)) = caller.request() else { return };
        let _ = caller.try_send(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"usage\": {\"cost\": 7}, \"a\": \"",
        );
        let part = vec![b'x'; 1 << 16];
        while caller.try_send(&part).is_ok() {}
    });
    over_both_stores(&config(&settled_by(JSON), &server.url()), |proxy| {
        let before = proxy.peak_memory();
        let mut client = Client::connect(proxy.addr());
        client.send("POST /endless HTTP/1.1\r\nHost: a\r\nX-Key: a\r\nContent-Length: 0\r\n\r\n");
        client.read_head().unwrap();
        for _ in 0..256 {
            client.take(1 << 16).unwrap();
        }
        drop(client);
        until_charged(proxy, "a", RESERVE);
        assert_eq!(all_unknown(proxy), 0);
        let grown = proxy.peak_memory() - before;
        assert!(grown < 8 * 1024, "{grown} KiB more");
    });
}

/// Headers, trailers and bodies of a client are not its cost.
#[test]
fn a_client_does_not_say_its_cost() {
    let lines = "X-Cost: 0\r\nTE: trailers\r\nTrailer: X-Cost\r\nTransfer-Encoding: chunked\r\n\r\n\
                 19\r\n{\"usage\": {\"cost\": 0   }}\r\n0\r\nX-Cost: 0\r\n\r\n";
    let sent = |name, response: String, charged| case(name, response, charged).method("POST").request(lines);
    play_all(
        &settled_by("header:x-cost"),
        &[
            sent("absent", ok("", "ok"), RESERVE).unknown("absent"),
            sent("more", ok("X-Cost: 250\r\n", "ok"), 250),
        ],
    );
    play_all(&settled_by("trailer:x-cost"), &[sent("absent", ok("", "ok"), RESERVE).unknown("absent")]);
    play_all(&settled_by(JSON), &[sent("absent", json("{}"), RESERVE).unknown("absent")]);
    // The header that names a reservation counts from trusted proxies alone, and at least one unit is reserved.
    play_all(
        "cost = { reserve = \"header:x-reserve\", settle = \"header:x-cost\" }",
        &[case("reserve", ok("", "ok"), 1).request("X-Reserve: 0\r\n\r\n").unknown("absent")],
    );
    // What the body says is at least one unit, and at most the capacity.
    play_all(
        "cost = { reserve = \"body:/n\", settle = \"header:x-cost\" }",
        &[
            case("zero", ok("", "ok"), 1).post(r#"{"n": 0}"#).unknown("absent"),
            case("minus", ok("", "ok"), 1).post(r#"{"n": -5}"#).unknown("absent"),
            case("absent", ok("", "ok"), 1).post("{}").unknown("absent"),
            case("twice", ok("", "ok"), 70).post(r#"{"n": 70, "n": 1}"#).unknown("absent"),
            case("text", ok("", "ok"), 1).post(r#"{"n": "many"}"#).unknown("absent"),
        ],
    );
}

/// What a key owes is bounded, however often a server reports the greatest number.
#[test]
fn the_debt_of_a_key_is_bounded() {
    let (server, release) = Upstream::gated(ok("X-Cost: 18446744073709551615\r\n", "ok"));
    let limit = "cost = { reserve = 1, settle = \"header:x-cost\" }\ncost_max = 500\ncharge_on = [200]";
    let config = config(limit, &server.url()).replace(
        "algorithm = \"fixed_window\"\nalign = \"first_request\"\nrate = \"1000/day\"",
        "algorithm = \"token_bucket\"\nrate = \"1000/1000d\"",
    );
    over_both_stores(&config, |proxy| {
        let before = server.received();
        let mut clients: Vec<Client> = (0..40)
            .map(|_| {
                let mut client = Client::connect(proxy.addr());
                client.send("GET /debt HTTP/1.1\r\nHost: a\r\nX-Key: debt\r\n\r\n");
                client
            })
            .collect();
        eventually("all are at the server", || server.received() == before + 40);
        assert_eq!(own(proxy, "debt"), (CAPACITY - 40, 40));
        for _ in &clients {
            release.send(()).unwrap();
        }
        for client in &mut clients {
            assert_eq!(client.read().status(), 200);
        }
        eventually("all are settled", || own(proxy, "debt") == (0, 0) && outcome(proxy, "settled") == 20_000);
        // A unit comes back in a day: 16 times cost_max are owed beyond the limit.
        let days = || wait(proxy).div_ceil(86_400);
        assert!((8_000..=8_001).contains(&days()), "{} days", days());
        assert!(unknown(proxy, "malformed") == 0);
        proxy.wait_log("cost_max of 500");
    });
}

/// The seconds until a request of the key is allowed.
fn wait(proxy: &Tidegate) -> u64 {
    let denied = get(proxy.addr(), "/debt", &["X-Key: debt"]);
    assert_eq!(denied.status(), 429);
    denied.header("retry-after").unwrap().parse().unwrap()
}

/// Usages beyond all bounds are cut to `cost_max`.
#[test]
fn tokens_beyond_all_bounds() {
    let usage = |input: &str, output: &str| {
        json(&format!(r#"{{"usage": {{"prompt_tokens": {input}, "completion_tokens": {output}}}}}"#))
    };
    let most = u64::MAX.to_string();
    let cases = [
        case("both", usage(&most, &most), 600).post("{}"),
        case("input", usage(&most, "0"), 600).post("{}"),
        case("zero", usage("0", "0"), 0).post("{}"),
    ];
    let upstream = upstream(&cases);
    let limit = "cost = \"llm_tokens\"\ncost_max = 600\ndefault_output = 10";
    over_both_stores(&config(limit, &upstream.url()), |proxy| {
        for case in &cases {
            play(proxy, case).unwrap();
            assert_eq!(logged(proxy, &format!("/{}", case.name))["status"], 200);
        }
    });
}
