//! Every source of a cost: found, and not found.

use std::time::{Duration, Instant};

use super::setup::{
    RESERVE, case, chunked, config, events, json, logged, ok, outcome, play, play_all, settled_by,
    until_charged, upstream,
};
use crate::support::{Client, Upstream, eventually, over_both_stores};

fn cost(value: &str) -> String {
    ok(&format!("X-Cost: {value}\r\n"), "ok")
}

#[test]
fn a_header_of_the_response() {
    play_all(
        &settled_by("header:x-cost"),
        &[
            case("less", cost("7"), 7),
            case("nothing", cost("0"), 0),
            case("more", cost("250"), 250),
            case("exact", cost("100"), 100),
            case("twice", ok("X-Cost: 7\r\nx-cost: 7\r\n", ""), 7),
            case("chunked", chunked("X-Cost: 8\r\n", &["a", "b"], ""), 8),
            case("no-body", ok("X-Cost: 9\r\n", ""), 9),
            case("absent", ok("", "ok"), RESERVE).unknown("absent"),
            case("differing", ok("X-Cost: 7\r\nX-Cost: 8\r\n", ""), RESERVE).unknown("malformed"),
            case("list", cost("7, 7"), RESERVE).unknown("malformed"),
            case("negative", cost("-1"), RESERVE).unknown("malformed"),
            case("plus", cost("+1"), RESERVE).unknown("malformed"),
            case("fraction", cost("1.5"), RESERVE).unknown("malformed"),
            case("exponent", cost("1e2"), RESERVE).unknown("malformed"),
            case("word", cost("many"), RESERVE).unknown("malformed"),
            case("empty", cost(""), RESERVE).unknown("malformed"),
        ],
    );
}

#[test]
fn a_trailer_of_the_response() {
    let trailers = |lines: &str| chunked("", &["a", "b"], lines);
    play_all(
        &settled_by("trailer:x-cost"),
        &[
            case("less", trailers("X-Cost: 7\r\n"), 7),
            case("announced", chunked("Trailer: x-cost, x-sum\r\n", &["a"], "x-cost: 8\r\nx-sum: 1\r\n"), 8),
            case("more", trailers("X-Cost: 250\r\n"), 250),
            case("nothing", trailers("X-Cost: 0\r\n"), 0),
            case("empty-body", chunked("", &[], "X-Cost: 9\r\n"), 9),
            case("twice", trailers("X-Cost: 7\r\nX-Cost: 7\r\n"), 7),
            case("absent", trailers(""), RESERVE).unknown("absent"),
            case("in-the-head", ok("X-Cost: 7\r\n", "ok"), RESERVE).unknown("absent"),
            case("differing", trailers("X-Cost: 7\r\nX-Cost: 8\r\n"), RESERVE).unknown("malformed"),
            case("negative", trailers("X-Cost: -7\r\n"), RESERVE).unknown("malformed"),
        ],
    );
}

#[test]
fn a_number_in_the_json_of_the_response() {
    let text = |body: &str| ok("Content-Type: text/plain\r\n", body);
    play_all(
        &settled_by("json:/usage/cost"),
        &[
            case("less", json(r#"{"usage": {"cost": 7}}"#), 7).post("{}"),
            case("nothing", json(r#"{"usage": {"cost": 0}}"#), 0).post("{}"),
            case("more", json(r#"{"a": [1, {"usage": {"cost": 1}}], "usage": {"cost": 250}}"#), 250)
                .post("{}"),
            case("problem", ok("Content-Type: application/x+json\r\n", r#"{"usage": {"cost": 6}}"#), 6)
                .post("{}"),
            case(
                "chunks",
                chunked("Content-Type: application/json\r\n", &[r#"{"usage": {"cost": 1"#, "23}}"], ""),
                123,
            )
            .post("{}"),
            case("null-after", json(r#"{"usage": {"cost": 7, "cost": null}}"#), 7).post("{}"),
            case("absent", json(r#"{"usage": {}}"#), RESERVE).post("{}").unknown("absent"),
            case("null", json(r#"{"usage": {"cost": null}}"#), RESERVE).post("{}").unknown("absent"),
            case("text", json(r#"{"usage": {"cost": "7"}}"#), RESERVE).post("{}").unknown("malformed"),
            case("object", json(r#"{"usage": {"cost": {}}}"#), RESERVE).post("{}").unknown("malformed"),
            case("fraction", json(r#"{"usage": {"cost": 7.0}}"#), RESERVE).post("{}").unknown("malformed"),
            case("cut", json(r#"{"usage": {"cost": 7}"#), RESERVE).post("{}").unknown("malformed"),
            case("type", text(r#"{"usage": {"cost": 7}}"#), RESERVE).post("{}").unknown("type"),
            // A request without a body has asked for nothing that costs.
            case("free", json(r#"{"models": []}"#), 0),
            case("not-free", json(r#"{"usage": {"cost": 8}}"#), 8),
            case("unfinished", json(r#"{"models": []"#), RESERVE).unknown("malformed"),
            case("stream", events(&[r#"{"a": 1}"#, r#"{"usage": {"cost": 11}}"#, "[DONE]"]), 11).post("{}"),
            case(
                "last",
                events(&[r#"{"usage": {"cost": 1}}"#, r#"{"usage": {"cost": 12}}"#, r#"{"b": 1}"#]),
                12,
            )
            .post("{}"),
            case("silent-stream", events(&[r#"{"a": 1}"#, "[DONE]"]), RESERVE).post("{}").unknown("absent"),
            case(
                "lines",
                chunked(
                    "Content-Type: application/x-ndjson\r\n",
                    &["{\"usage\":{\"cost\":1}}\n{\"usage\":{\"cost\":13}}\n"],
                    "",
                ),
                13,
            )
            .post("{}"),
        ],
    );
}

#[test]
fn bytes_of_the_bodies() {
    let long = "x".repeat(333);
    play_all(
        &settled_by("response_bytes"),
        &[
            case("length", ok("", "twelve bytes"), 12),
            case("chunked", chunked("", &["twelve ", "bytes"], ""), 12),
            case("closed", format!("HTTP/1.1 200 OK\r\n\r\n{long}"), 333).closing(),
            case("empty", ok("", ""), 0),
            // The response to HEAD has no body, whatever its head says.
            case("head", "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", 0).method("HEAD"),
        ],
    );
    play_all(
        &settled_by("request_bytes"),
        &[
            case("none", ok("", "ok"), 0),
            case("length", ok("", "ok"), 13).post(r#"{"number": 1}"#),
            case("chunked", ok("", "ok"), 5)
                .method("POST")
                .request("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
            case("long", ok("", "ok"), 333).post(&long),
        ],
    );
}

#[test]
fn seconds_until_the_last_byte() {
    play_all(&settled_by("seconds"), &[case("quick", ok("", "ok"), 1), case("empty", ok("", ""), 1)]);
    // A response that takes more than a second is charged at least two.
    let slow = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            let start = Instant::now();
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
            eventually("a second is over", || start.elapsed() > Duration::from_millis(1_010));
            let _ = caller.try_send("k");
        }
    });
    over_both_stores(&config(&settled_by("seconds"), &slow.url()), |proxy| {
        let start = Instant::now();
        let mut client = Client::connect(proxy.addr());
        let response = client.get("/slow", &["X-Key: slow"]);
        let most = start.elapsed().as_secs() + 1;
        assert_eq!(response.text(), "ok");
        let charged = logged(proxy, "/slow")["cost"]["units"].as_u64().unwrap();
        assert!((2..=most).contains(&charged), "{charged} of {most}");
        until_charged(proxy, "slow", charged);
    });
}

#[test]
fn what_exceeds_cost_max_is_cut() {
    let cases = [
        case("at-most", cost("400"), 400),
        case("above", cost("401"), 400),
        case("far-above", cost("9007199254740993"), 400),
        case("longest", cost("18446744073709551615"), 400),
    ];
    let upstream = upstream(&cases);
    let limit = format!("{}\ncost_max = 400", settled_by("header:x-cost"));
    over_both_stores(&config(&limit, &upstream.url()), |proxy| {
        let _ = play(proxy, &cases[0]);
        assert_eq!(outcome(proxy, "cut"), 0);
        let _ = play(proxy, &cases[1]);
        assert_eq!(outcome(proxy, "cut"), 1);
        let _ = play(proxy, &cases[2]);
        assert_eq!(outcome(proxy, "cut"), 1 + 9_007_199_254_740_993 - 400);
        let _ = play(proxy, &cases[3]);
        assert_eq!((outcome(proxy, "settled"), outcome(proxy, "extra")), (1_600, 1_200));
        proxy.wait_log("was cut");
    });
}

#[test]
fn sources_are_removed_unless_they_are_kept() {
    let cases = |charged| {
        [
            case("head", ok("X-Cost: 7\r\nX-Other: 1\r\n", "ok"), charged),
            case(
                "both",
                chunked("X-Cost: 7\r\nTrailer: x-cost\r\n", &["a"], "X-Cost: 7\r\nX-Other: 1\r\n"),
                charged,
            ),
        ]
    };
    for (source, keeps) in [("header", false), ("trailer", false), ("header", true), ("trailer", true)] {
        let limit = format!("{}\nkeep_cost_header = {keeps}", settled_by(&format!("{source}:x-cost")));
        let cases = cases(7);
        let upstream = upstream(&cases);
        over_both_stores(&config(&limit, &upstream.url()), |proxy| {
            if source == "header" {
                let response = play(proxy, &cases[0]).unwrap();
                assert_eq!(response.header("x-cost").is_some(), keeps);
                assert_eq!(response.header("x-other"), Some("1"));
            }
            let response = play(proxy, &cases[1]).unwrap();
            assert_eq!(response.header("x-cost").is_some(), keeps || source == "trailer");
            let has =
                |trailer: &str| response.trailers.iter().any(|(name, _)| name.eq_ignore_ascii_case(trailer));
            if source == "trailer" {
                assert!(keeps || !has("x-cost"));
            }
        });
    }
}
