//! Tests of the access log's lines.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::limit::Key;
use crate::overload::Class;
use crate::time::Timestamp;

const REQUEST: RequestText<'_> =
    RequestText { method: b"GET", target: b"/a?b=%22", request_id: b"4a5b", protocol: "HTTP/2" };

/// When the logged request was received.
const TIME: Timestamp = Timestamp(1_790_000_000_123_456);

/// A record with only the fields that every record has.
fn bare(request: RequestText<'_>) -> AccessRecord {
    let mut record = AccessRecord::new(TIME, [192, 0, 2, 7].into(), request);
    record.set_host("api.example.com");
    record.status = Some(http::StatusCode::OK);
    record.bytes = 244;
    record.took = Duration::from_micros(87);
    record
}

/// A record with all fields.
fn full(request: RequestText<'_>) -> AccessRecord {
    let mut record = bare(request);
    record.status = Some(http::StatusCode::TOO_MANY_REQUESTS);
    record.set_route("search");
    record.set_denied_by("per-key");
    record.add_note(LimitNote::ShadowDenied, "strict");
    record.add_note(LimitNote::Warned, "per-ip");
    record.add_note(LimitNote::ShadowDenied, "wide");
    record.add_note(LimitNote::Marked, "soft");
    record.error = Some("connect_failed");
    record.forwarding.start(&"search".into());
    record.forwarding.start_attempt(&"http://10.0.0.7:8080".into(), 2);
    record.forwarding.head_took = Some(Duration::from_micros(61));
    record
}

fn json(record: &AccessRecord) -> String {
    let mut line = Vec::new();
    line::push_json(&mut line, record);
    String::from_utf8(line).unwrap()
}

fn text(record: &AccessRecord) -> String {
    let mut line = Vec::new();
    line::push_text(&mut line, record);
    String::from_utf8(line).unwrap()
}

fn parsed(record: &AccessRecord) -> Value {
    let line = json(record);
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn json_is_one_object() {
    assert_eq!(
        json(&bare(REQUEST)),
        r#"{"time":"2026-09-21T14:13:20.123456Z","client":"192.0.2.7","method":"GET","host":"api.example.com","target":"/a?b=%22","status":200,"bytes":244,"took_us":87,"request_id":"4a5b","protocol":"HTTP/2"}"#
    );
    let rest = r#""request_id":"4a5b","route":"search","denied_by":"per-key","error":"connect_failed","shadow_denied_by":["strict","wide"],"marked_by":["soft"],"warned_by":["per-ip"],"protocol":"HTTP/2","upstream":"search","server":"http://10.0.0.7:8080","attempts":2,"upstream_us":61}"#;
    let line = json(&full(REQUEST));
    assert!(line.ends_with(rest), "{line}");
    let line = parsed(&full(REQUEST));
    assert_eq!(line["shadow_denied_by"], json!(["strict", "wide"]));
    assert_eq!((&line["status"], &line["took_us"]), (&json!(429), &json!(87)));
}

#[test]
fn text_is_one_line() {
    let line = r#"2026-09-21T14:13:20.123456Z 192.0.2.7 "GET api.example.com/a?b=%22" 200 244B 87us request_id="4a5b" protocol="HTTP/1.0""#;
    assert_eq!(text(&bare(RequestText { protocol: "HTTP/1.0", ..REQUEST })), line);
    let rest = r#" request_id="4a5b" route="search" denied_by="per-key" error="connect_failed" shadow_denied_by="strict,wide" marked_by="soft" warned_by="per-ip" protocol="HTTP/2" upstream="search" server="http://10.0.0.7:8080" attempts="2" upstream_us="61""#;
    let line = text(&full(REQUEST));
    assert!(line.ends_with(rest), "{line}");
}

#[test]
fn the_client_is_logged_in_both_formats() {
    let mut record = bare(REQUEST);
    record.set_route("search");
    record.set_consumer("acme");
    record.set_denied_by("per-key");
    record.set_key_tag(&Key([0xff; 16]));
    record.add_header("user-agent", b"curl/8 (x)");
    record.add_header("referer", b"a\" b=\"c\xff\n");
    let rest = r#""route":"search","consumer":"acme","denied_by":"per-key","key":"tag:_____________________w","protocol":"HTTP/2","headers":{"user-agent":"curl/8 (x)","referer":"a\" b=\"c�\n"}}"#;
    let line = json(&record);
    assert!(line.ends_with(rest), "{line}");
    assert_eq!(parsed(&record)["headers"]["referer"], "a\" b=\"c\u{fffd}\n");
    let rest = r#" route="search" consumer="acme" denied_by="per-key" key="tag:_____________________w" protocol="HTTP/2" headers.user-agent="curl/8 (x)" headers.referer="a\" b=\"c�\n""#;
    let line = text(&record);
    assert!(line.ends_with(rest), "{line}");
}

#[test]
fn settled_costs_are_logged_in_both_formats() {
    let mut record = bare(REQUEST);
    record.add_cost("tokens", 2048, Some(311));
    record.add_cost("open", 7, None);
    record.add_header("referer", b"a");
    let rest = r#""protocol":"HTTP/2","cost":{"tokens":311},"reserved":{"tokens":2048,"open":7},"headers":{"referer":"a"}}"#;
    let line = json(&record);
    assert!(line.ends_with(rest), "{line}");
    assert_eq!(parsed(&record)["cost"]["tokens"], 311);
    let rest = r#" protocol="HTTP/2" cost.tokens="311" reserved.tokens="2048" reserved.open="7" headers.referer="a""#;
    let line = text(&record);
    assert!(line.ends_with(rest), "{line}");
    let mut open = bare(REQUEST);
    open.add_cost("open", 7, None);
    assert!(json(&open).ends_with(r#""protocol":"HTTP/2","reserved":{"open":7}}"#), "{}", json(&open));
}

#[test]
fn the_admission_to_an_upstream_is_logged_in_both_formats() {
    let mut record = bare(REQUEST);
    record.forwarding.start(&"shop".into());
    record.forwarding.set_class(Class::Low);
    record.forwarding.add_queued(Duration::from_micros(1_200));
    record.forwarding.add_queued(Duration::from_micros(34));
    assert!(
        json(&record).ends_with(r#","upstream":"shop","class":"low","queue_us":1234}"#),
        "{}",
        json(&record)
    );
    assert!(text(&record).ends_with(r#" upstream="shop" class="low" queue_us="1234""#), "{}", text(&record));
    let mut shadow = bare(REQUEST);
    shadow.forwarding.start(&"shop".into());
    shadow.forwarding.set_above_limit();
    assert_eq!(parsed(&shadow)["shadow_refused_by"], json!(["shop"]));
    assert!(text(&shadow).ends_with(r#" upstream="shop" shadow_refused_by="shop""#), "{}", text(&shadow));
}

#[test]
fn no_text_can_imitate_other_fields() {
    let mut record = bare(REQUEST);
    record.set_consumer("acme denied_by=x");
    record.set_route("a\" status=\"200");
    record.forwarding.start(&"up stream\"".into());
    record.set_key_name("k|a b\" denied_by=\"x");
    record.add_header("user-agent", "é".repeat(400).as_bytes());
    let line = text(&record);
    let named = r#" route="a\" status=\"200" consumer="acme denied_by=x" key="k|a b\" denied_by=\"x" protocol="HTTP/2" upstream="up stream\"" headers"#;
    assert!(line.contains(named), "{line}");
    assert!(line.ends_with("…(800 bytes)\""), "{line}");
    assert!(line.len() < 800, "{line}");
    assert_eq!(parsed(&record)["key"], "k|a b\" denied_by=\"x");
}

#[test]
fn times_are_formatted_to_the_microsecond() {
    for (time, formatted) in [
        (0, "1970-01-01T00:00:00.000000Z"),
        (999, "1970-01-01T00:00:00.000999Z"),
        (1_709_164_799_009_000, "2024-02-28T23:59:59.009000Z"),
        (1_709_164_800_000_000, "2024-02-29T00:00:00.000000Z"),
        (1_709_164_800_070_000, "2024-02-29T00:00:00.070000Z"),
        (u64::MAX, "9999-12-31T23:59:59.551615Z"),
    ] {
        let mut record = bare(REQUEST);
        record.time = Timestamp(time);
        assert!(text(&record).starts_with(formatted), "{}", text(&record));
    }
}

#[test]
fn addresses_are_formatted_as_by_the_standard_library() {
    for octet in 0..=u8::MAX {
        let client = [octet, u8::MAX - octet, octet / 10, 0].into();
        let record = AccessRecord::new(TIME, client, REQUEST);
        assert!(text(&record).contains(&format!("Z {client} \"GET ")), "{}", text(&record));
    }
    let client: std::net::IpAddr = "2001:db8::ffff:0:7".parse().unwrap();
    assert!(text(&AccessRecord::new(TIME, client, REQUEST)).contains(&format!("Z {client} \"GET ")));
}

#[test]
fn texts_of_clients_are_truncated_and_escaped() {
    let odd = "/?\u{85}\u{2028}\u{202e}";
    let request = RequestText {
        method: &[b'M'; 5_000],
        target: odd.as_bytes(),
        request_id: &[b'i'; 5_000],
        protocol: "HTTP/1.1",
    };
    let mut record = full(request);
    record.set_host(&"h".repeat(5_000));
    let (json, text) = (json(&record), text(&record));
    assert!(json.len().max(text.len()) < 8_000);
    let line = parsed(&record);
    assert_eq!(line["target"], odd);
    for field in ["host", "method", "request_id"] {
        assert!(line[field].as_str().unwrap().ends_with("…(5000 bytes)"), "{field}");
    }
    for line in [&json, &text] {
        assert!(line.contains("/?\\u0085\\u2028\\u202e"), "{line}");
    }
}

/// Text with characters that are escaped in some format, and others.
fn odd_text() -> impl Strategy<Value = String> {
    let odd = "[\"\\\\/ -~\u{0}-\u{ff}\u{61c}\u{200e}-\u{2030}\u{2060}-\u{2070}日🦀]{0,40}";
    prop_oneof!["[ -~]{0,40}", odd, any::<String>()]
}

proptest! {
    #[test]
    fn every_json_line_has_the_logged_values(
        texts in prop::array::uniform5(odd_text()),
        names in prop::collection::vec(odd_text(), 0..4),
        client: std::net::IpAddr,
        numbers: [u32; 3],
    ) {
        let [method, target, id, host, route] = &texts;
        let request = RequestText {
            method: method.as_bytes(),
            target: target.as_bytes(),
            request_id: id.as_bytes(),
            protocol: "HTTP/1.1",
        };
        let mut record = AccessRecord::new(TIME, client, request);
        record.set_host(host);
        record.set_route(route);
        record.bytes = numbers[0].into();
        record.took = Duration::from_micros(numbers[1].into());
        record.forwarding.start(&(**route).into());
        record.forwarding.start_attempt(&(**host).into(), 2 + numbers[2] as usize / 2);
        for name in &names {
            record.add_note(LimitNote::ShadowDenied, name);
        }
        let mut expected = json!({
            "time": "2026-09-21T14:13:20.123456Z", "client": client, "method": method, "host": host, "target": target,
            "status": 499, "bytes": numbers[0], "took_us": numbers[1], "request_id": id, "route": route,
            "protocol": "HTTP/1.1", "upstream": route, "server": host, "attempts": 2 + numbers[2] / 2,
        });
        if !names.is_empty() {
            expected["shadow_denied_by"] = json!(names);
        }
        prop_assert_eq!(parsed(&record), expected);
        // No format has characters that act on a terminal or end the line.
        for line in [json(&record), text(&record)] {
            prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
        }
    }
}
