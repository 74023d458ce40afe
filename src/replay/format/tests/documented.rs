//! Lines of the documentation of servers, some of them in `tests/logs`, and errors.

use super::*;
use crate::replay::fields::FieldMap;
use crate::time::{Micros, Timestamp};

#[test]
fn haproxy_behind_syslog() {
    let line = line(log!("haproxy-syslog"), 0);
    let entry = entry(Format::HaproxyHttp, line);
    assert_eq!(entry.arrival, Timestamp(1_233_922_454_665_000), "the date and the time of the head");
    assert_eq!(entry.duration, Some(Micros(99_000)));
    assert_eq!((entry.status, entry.bytes), (Some(200), Some(2_750)));
    assert_eq!(entry.client, Some([10, 0, 1, 2].into()));
    assert_eq!(optional(entry.field("capture.req.0")), Some("1wt.eu".to_owned()));
    assert_eq!(entry.fields.len(), 1);
}

#[test]
fn captured_cookies_of_haproxy_may_have_spaces_and_quotes() {
    let rest = r#"---- 2/2/1/1/0 0/0 {a.example} {} "GET /a HTTP/1.1""#;
    for cookies in [r#"sid=" 200 5 "x sid="b c""#, "- sid=[a] {b}", "sid=---- 1/1/1/1/0 -"] {
        let line = format!(
            "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 {cookies} {rest}"
        );
        let entry = entry(Format::HaproxyHttp, &line);
        assert_eq!(text(&entry.target), "/a", "{line}");
        assert_eq!(optional(entry.field("capture.req.0")), Some("a.example".to_owned()), "{line}");
    }
}

#[test]
fn names_of_users_may_have_dates() {
    let line = r#"192.0.2.7 - a [22/Nov/2020:19:24:07 +0000] \x22GET / HTTP/1.1\x22 b [22/Nov/2026:19:24:07 +0000] "GET /a HTTP/1.1" 200 6 "-" "-""#;
    let entry = entry(Format::Combined, line);
    assert_eq!((entry.second, text(&entry.target)), (Some(1_795_375_447), "/a".to_owned()));
    let user = r#"a [22/Nov/2020:19:24:07 +0000] "GET / HTTP/1.1" b"#;
    assert_eq!(optional(entry.user.as_deref()), Some(user.to_owned()));
}

#[test]
fn names_of_many_brackets_take_no_longer_than_others() {
    // In quadratic time this would take minutes.
    let user = "[".repeat(1_000_000);
    let line = format!(r#"192.0.2.7 - {user} [22/Nov/2026:19:24:07 +0000] "GET /a HTTP/1.1" 200 6 "-" "-""#);
    assert_eq!(entry(Format::Combined, &line).user.as_deref(), Some(user.as_bytes()));
}

#[test]
fn traefik_clf() {
    let line = r#"10.0.0.1 - bob [28/Feb/2019:10:15:20 +0100] "GET /q"uote HTTP/2.0" 502 11 "https://a.example/" "caf\u00e9" 7 "api@docker" "http://10.0.0.2:80" 1500ms"#;
    let entry = entry(Format::TraefikClf, line);
    assert_eq!(entry.arrival, Timestamp(1_551_345_320_000_000), "its date is that of the arrival");
    assert_eq!(entry.second, Some(1_551_345_320));
    assert_eq!(entry.duration, Some(Micros(1_500_000)));
    assert_eq!(text(&entry.target), "/q\"uote");
    assert_eq!(optional(entry.user_agent.as_deref()), Some("café".to_owned()));
    assert_eq!(optional(entry.user.as_deref()), Some("bob".to_owned()));
}

#[test]
fn envoy_text() {
    let line = line(log!("envoy-text"), 0);
    let entry = entry(Format::EnvoyText, line);
    assert_eq!(entry.arrival, Timestamp(1_460_751_420_310_000));
    assert_eq!((entry.status, entry.bytes, entry.duration), (Some(204), Some(0), Some(Micros(226_000))));
    assert_eq!(entry.client, Some([10, 0, 35, 28].into()));
    assert_eq!(optional(entry.host.as_deref()), Some("locations".to_owned()));
    assert_eq!(optional(entry.header(b"x-forwarded-for")), Some("192.0.2.1, 10.0.35.28".to_owned()));
}

#[test]
fn istio_text() {
    let line = line(log!("envoy-text"), 1);
    let entry = entry(Format::EnvoyText, line);
    assert_eq!(entry.client, Some([10, 44, 1, 23].into()));
    assert_eq!((entry.status, entry.bytes, entry.duration), (Some(418), Some(135), Some(Micros(4_000))));
    assert_eq!(optional(entry.host.as_deref()), Some("httpbin:8000".to_owned()));
}

#[test]
fn envoy_json() {
    let line = line(log!("envoy-json"), 0);
    let entry = entry(Format::EnvoyJson, line);
    assert_eq!(entry.client, Some([10, 44, 1, 23].into()));
    assert_eq!((entry.status, entry.duration), (Some(418), Some(Micros(4_000))));
    assert_eq!(optional(entry.header(b"user-agent")), Some("curl/7.73.0-DEV".to_owned()));
    assert_eq!(entry.headers, []);
    assert_eq!(detect_format(&[line], &TimeZone::UTC), Ok(Format::EnvoyJson));
}

#[test]
fn alb() {
    let [whole, old, unanswered] = [0, 1, 2].map(|index| line(log!("alb"), index));
    let found = entry(Format::AlbText, whole);
    assert_eq!(found.arrival, Timestamp(1_530_570_168_364_000), "the creation of the request");
    assert_eq!(found.duration, Some(Micros(11_822_641)));
    assert_eq!(
        (text(&found.target), optional(found.host.as_deref())),
        ("/a?b".into(), Some("www.example.com:443".into()))
    );
    assert_eq!(
        optional(found.header(b"x-amzn-trace-id")),
        Some("Root=1-58337281-1d84f3d73c47ec4e58577259".into())
    );
    let old = entry(Format::AlbText, old);
    assert_eq!(old.arrival, Timestamp(1_530_570_180_186_641 - 171_000), "the end less the processing times");
    assert_eq!(error(Format::AlbText, unanswered), LineError::NoRequest);
    assert_eq!(detect_format(&[whole], &TimeZone::UTC), Ok(Format::AlbText));
}

#[test]
fn classic_load_balancers_of_aws() {
    for (index, took) in [1_178, 2_471].into_iter().enumerate() {
        let line = line(log!("elb"), index);
        let entry = entry(Format::ElbText, line);
        assert_eq!(entry.arrival, Timestamp(1_431_560_383_945_958), "the time is that of the arrival");
        assert_eq!((entry.duration, entry.status), (Some(Micros(took)), Some(200)));
        assert_eq!(entry.client, Some([192, 168, 131, 39].into()));
        assert_eq!((text(&entry.method), text(&entry.target)), ("GET".into(), "/".into()));
        assert_eq!(optional(entry.user_agent.as_deref()), Some("curl/7.38.0".to_owned()));
        assert_eq!(detect_format(&[line], &TimeZone::UTC), Ok(Format::ElbText));
    }
    let old = line(log!("elb"), 0).split(" \"curl").next().unwrap();
    assert_eq!(optional(entry(Format::ElbText, old).host.as_deref()), Some("www.example.com:80".to_owned()));
    let tcp = "2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.001069 0.000028 0.000041 - - 82 305 \"- - - \" \"-\" - -";
    assert_eq!(error(Format::ElbText, tcp), LineError::NoRequest);
}

#[test]
fn nginx_proxy_manager() {
    let expected = [
        (1_674_814_952, 200, "POST", "www.example.com", "/apps/text/session/sync", "192.0.2.67", 251),
        (1_650_008_032, 403, "GET", "x.y.com", "/vZ0zgF2G.wwwacl", "1.2.3.4", 171),
        (1_653_194_123, 307, "GET", "w.example.com", "/", "1.1.1.1", 168),
    ];
    for (index, (second, status, method, host, target, client, bytes)) in expected.into_iter().enumerate() {
        let line = line(log!("nginx-proxy-manager"), index);
        let entry = entry(Format::NginxProxyManager, line);
        assert_eq!((entry.second, entry.status, entry.bytes), (Some(second), Some(status), Some(bytes)));
        assert_eq!((text(&entry.method), text(&entry.target)), (method.to_owned(), target.to_owned()));
        assert_eq!(
            (optional(entry.host.as_deref()), entry.client),
            (Some(host.to_owned()), client.parse().ok())
        );
        assert!(entry.user_agent.is_some() && entry.referer.is_none());
        assert_eq!(detect_format(&[line], &TimeZone::UTC), Ok(Format::NginxProxyManager));
    }
    let retried = line(log!("nginx-proxy-manager"), 0).replace("- 200 200 - ", "MISS 502, 200 200 - ");
    assert_eq!(entry(Format::NginxProxyManager, &retried).status, Some(200));
}

/// The entries of a log whose lines depend on those before them.
fn entries(format: Format, log: &'static [u8]) -> Vec<Result<LoggedRequest<'static>, LineError>> {
    let mut reader = reader(format);
    lines(log).into_iter().map(|line| reader.read(line)).collect()
}

#[test]
fn cloudfront() {
    let log = log!("cloudfront");
    assert_eq!(detect_format(&lines(log), &TimeZone::UTC), Ok(Format::W3c));
    let entries = entries(Format::W3c, log);
    assert_eq!(entries[..2], [Err(LineError::Directive), Err(LineError::Directive)]);
    let entry = entries[2].as_ref().unwrap();
    assert_eq!((entry.second, entry.duration), (Some(1_575_493_351), Some(Micros(1_000))));
    assert_eq!(entry.end(), Timestamp(1_575_493_351_000_000));
    assert_eq!(
        (entry.status, entry.bytes, entry.client),
        (Some(200), Some(392), Some([192, 0, 2, 100].into()))
    );
    assert_eq!((text(&entry.method), text(&entry.target)), ("GET".into(), "/index.html".into()));
    assert_eq!(optional(entry.host.as_deref()), Some("d111111abcdef8.cloudfront.net".into()));
    let agent = optional(entry.user_agent.as_deref()).unwrap();
    assert!(agent.starts_with("Mozilla/5.0 (Windows NT 10.0; Win64; x64)"), "{agent}");
    assert_eq!(optional(entry.field("x-edge-location")), Some("LAX1".to_owned()));
}

#[test]
fn iis() {
    let log = log!("iis");
    assert_eq!(detect_format(&lines(log), &TimeZone::UTC), Ok(Format::W3c));
    let entries: Vec<_> = entries(Format::W3c, log).into_iter().filter_map(Result::ok).collect();
    let [first, second] = &*entries else { panic!("{entries:?}") };
    assert_eq!((first.arrival, first.duration), (Timestamp(1_020_361_335_000_000), None));
    assert_eq!(
        (text(&first.target), first.client),
        ("/images/picture.jpg".into(), Some([172, 22, 255, 255].into()))
    );
    let agent = optional(first.user_agent.as_deref()).unwrap();
    assert_eq!(agent, "Mozilla/4.0 (compatible;MSIE 5.5; Windows 2000 Server)");
    // The fields change within the log.
    assert_eq!((second.duration, second.bytes), (Some(Micros(15_000)), Some(17_691)));
    assert_eq!(optional(second.protocol.as_deref()), Some("HTTP/1.1".to_owned()));
    let error = |log: &str| {
        let mut reader = reader(Format::W3c);
        log.lines().map(|line| reader.read(line.as_bytes()).unwrap_err().to_string()).last().unwrap()
    };
    assert_eq!(
        error("2002-05-02 17:42:15 x"),
        "column 1: expected a line that begins with #Fields before this one"
    );
    assert_eq!(
        error("#Fields: date time cs-uri-stem\n2002-05-02 17:42:15"),
        "column 1: expected as many fields as #Fields names"
    );
    assert_eq!(error("#Fields: time cs-uri-stem\n17:42:15 /"), "column 1: expected `date` in #Fields");
}

#[test]
fn lines_of_containers_are_those_of_their_programs() {
    let bare = entry(Format::Combined, line(log!("nginx-combined"), 0));
    for log in [&log!("docker-json-file")[..], log!("containerd")] {
        let line = line(log, 0);
        assert_eq!(detect_format(&[line], &TimeZone::UTC), Ok(Format::Combined));
        assert_eq!(entry(Format::Combined, line), bare);
    }
    // Around JSON, too.
    let caddy = line(log!("caddy"), 0);
    let docker = serde_json::json!({ "log": format!("{caddy}\n"), "stream": "stderr", "time": "2026-11-22T19:24:07Z" });
    let bare = entry(Format::CaddyJson, caddy);
    let docker =
        format!("{{\"log\":{},\"stream\":\"stderr\",\"time\":\"2026-11-22T19:24:07Z\"}}", docker["log"]);
    assert_eq!(entry(Format::CaddyJson, &docker), bare);
    assert_eq!(entry(Format::CaddyJson, &format!("2026-11-22T19:24:07.1Z stderr F {caddy}")), bare);
    let unknown = r#"{"log":"{\"a\":1}\n","stream":"stdout","time":"2026-11-22T19:24:07Z"}"#;
    assert_eq!(detect_format(&[unknown], &TimeZone::UTC), Err(FormatError::UnknownJson("a".to_owned())));
}

#[test]
fn cloudflare() {
    let seconds = [None, None, Some(1_545_155_129), Some(1_545_155_129)];
    for (index, second) in seconds.into_iter().enumerate() {
        let line = line(log!("cloudflare-json"), index);
        let entry = entry(Format::CloudflareJson, line);
        assert_eq!(entry.second, second);
        let micros = if second.is_some() { (0, 0) } else { (696_000, 7_000) };
        assert_eq!(entry.arrival, Timestamp(1_545_155_129_000_000 + micros.0));
        assert_eq!(entry.duration, Some(Micros(micros.1)));
        assert_eq!((entry.status, entry.bytes), (Some(403), Some(1_935)));
        assert_eq!(entry.client, Some("2001:db8::7".parse().unwrap()));
        assert_eq!(detect_format(&[line], &TimeZone::UTC), Ok(Format::CloudflareJson));
    }
}

#[test]
fn tidegate() {
    let json = line(log!("tidegate-json"), 0);
    let text = line(log!("tidegate-text"), 0);
    let sorted = |mut entry: LoggedRequest<'static>| {
        entry.fields.sort();
        entry
    };
    let entries = [(Format::TidegateJson, json), (Format::TidegateText, text)];
    let [json, text] = entries.map(|(format, line)| {
        assert_eq!(detect_format(&[line], &TimeZone::UTC).as_ref(), Ok(&format));
        sorted(entry(format, line))
    });
    assert_eq!(json, text);
    assert_eq!((json.arrival, json.duration), (Timestamp(1_790_000_000_123_000), Some(Micros(87))));
    assert_eq!(optional(json.consumer.as_deref()), Some("acme".to_owned()));
    assert_eq!(optional(json.field("key")), Some("k \"1\"".to_owned()));
    let names: Vec<&str> = json.fields.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["denied_by", "key", "route", "shadow_denied_by"]);
}

#[test]
fn a_line_of_tidegate_without_a_method_is_an_error() {
    let line = line(log!("tidegate-text"), 0);
    for damaged in ["\" ", "\" GET "] {
        let damaged = line.replacen("\"GET ", damaged, 1);
        assert_ne!(damaged, line);
        assert!(reader(Format::TidegateText).read(damaged.as_bytes()).is_err(), "{damaged}");
    }
}

#[test]
fn long_targets_of_tidegate_are_without_their_mark() {
    let text = line(log!("tidegate-text"), 1);
    assert_eq!(&*entry(Format::TidegateText, text).target, b"/abc");
    let json = line(log!("tidegate-json"), 1);
    assert_eq!(&*entry(Format::TidegateJson, json).target, b"/abc");
}

#[test]
fn other_json_has_named_fields() {
    let map = FieldMap::parse(include_str!("../../../../tests/logs/json-fields.txt")).unwrap();
    let log = log!("json-fields");
    let found = entry(Format::JsonFields(map.clone()), line(log, 0));
    assert_eq!((text(&found.method), text(&found.target)), ("PUT".into(), "/a?b=1".into()));
    assert_eq!((found.arrival, found.duration), (Timestamp(1_795_375_447_500_000), Some(Micros(12_000))));
    assert_eq!((found.client, found.status), (Some([192, 0, 2, 7].into()), Some(201)));
    assert_eq!(optional(found.header(b"x-key")), Some("k".to_owned()));
    for (line, message) in [
        ("{", "column 1: EOF while parsing an object"),
        (r#"{"at":"now"}"#, "field `at`: expected a time"),
        (r#"{"at":1,"code":"ok"}"#, "field `code`: expected a status code"),
        (r#"{"at":1,"took":-1}"#, "field `took`: expected a duration"),
        (r#"{"at":1}"#, "field `req.verb`: expected a request"),
        ("{}", "field `at`: expected a time"),
    ] {
        assert_eq!(error(Format::JsonFields(map.clone()), line).to_string(), message, "{line}");
    }
    assert_eq!(&*entry(Format::JsonFields(map), line(log, 1)).target, b"/a");
}

#[test]
fn further_fields_of_json_are_read_on_request() {
    let line = r#"{"ts":1.5,"request":{"method":"GET","uri":"/","headers":{"X-A":["a"],"X-B":["b"]}},"user":{"plan":"gold"}}"#;
    let mut reader = reader(Format::CaddyJson).with_field("user.plan").unwrap();
    reader = reader.with_field("request.headers.X-A").unwrap();
    let entry = reader.read(line.as_bytes()).unwrap();
    assert_eq!(optional(entry.field("user.plan")), Some("gold".to_owned()));
    assert_eq!(optional(entry.field("request.headers.X-A")), Some("a".to_owned()));
    assert_eq!(optional(entry.header(b"x-b")), Some("b".to_owned()));
}

#[test]
fn errors_have_columns() {
    let rest = r#"[22/Nov/2026:19:24:07 +0000] "GET / HTTP/1.1" 200 6 "-" "curl""#;
    for (line, message) in [
        ("", "column 1: expected the client's address"),
        ("192.0.2.7 - -", "column 11: expected a date in brackets"),
        ("192.0.2.7 - - [22/Nov/2026:19:24:07 +0000] GET", "column 44: expected a request in quotes"),
        (
            r#"192.0.2.7 - - [22/Nov/2026:19:24:07 +0000] "GET / HTTP/1.1" ok 6"#,
            "column 61: expected a status code",
        ),
        (&format!("a.example:80 192.0.2.7 - - {rest}"), "column 1: expected the client's address"),
        (&format!("<190>192.0.2.7 - - {}", &rest[..50]), "column 70: expected a number of bytes"),
    ] {
        assert_eq!(error(Format::Combined, line).to_string(), message, "{line}");
    }
}

#[test]
fn a_wrong_format_names_the_right_one() {
    let lines = [r#"192.0.2.7 - - [22/Nov/2026:19:24:07 +0000] "GET / HTTP/1.1" 200 6 "-" "curl""#];
    let checked = |format: Format| check_format(&format, &lines, &TimeZone::UTC).unwrap_err().to_string();
    assert_eq!(
        checked(Format::HaproxyHttp),
        "the lines are not in the format `haproxy-http` (column 11: expected a date in brackets), but in `combined`"
    );
    let unknown = ["192.0.2.7 - - [22/Nov/2026:19:24:07 +0000] GET /"];
    assert_eq!(
        detect_format(&unknown, &TimeZone::UTC).unwrap_err().to_string(),
        "the lines are in no known format; the nearest is `common`, but column 44: expected a request in quotes"
    );
    let json = [r#"{"when":1,"what":"/"}"#];
    assert_eq!(
        detect_format(&json, &TimeZone::UTC).unwrap_err().to_string(),
        "the lines are JSON, but in no known format: name the fields with --fields; the first line has what, when"
    );
    assert_eq!(
        check_format(&Format::CaddyJson, &json, &TimeZone::UTC).unwrap_err().to_string(),
        "the lines are not in the format `caddy-json`: field `ts`: expected a time"
    );
}

#[test]
fn names_of_formats_are_unique() {
    for format in Format::KNOWN {
        assert_eq!(Format::named(format.name()), Some(format));
    }
    assert_eq!(Format::named("json"), None);
}
