//! Logs of real servers: nginx 1.22, Apache httpd 2.4, `HAProxy` 2.6, Caddy 2.6 and Traefik 3.7, each with its default
//! format, after the same requests with quotes, backslashes, invalid UTF-8 and invalid request lines.

use std::net::IpAddr;

use super::*;
use crate::time::Micros;

/// What a server logs of the requests.
#[derive(Clone, Copy)]
struct Logged {
    has_host: bool,
    has_agent: bool,
    has_duration: bool,
}

/// The requests that every server has answered: method, target, status, in the order of their lines.
const REQUESTS: [(&str, &str, u16); 3] =
    [("GET", "/", 200), ("GET", "/a?b=%22c%22&d=1", 200), ("POST", "/slow", 200)];
const AGENT: &str = r#"Mozilla/5.0 (X11; Linux x86_64) "quoted" \back"#;

/// Reads all lines, of which none may be malformed; returns the entries, and how many lines have no request.
fn read(format: &Format, log: &'static [u8]) -> (Vec<LoggedRequest<'static>>, usize) {
    let lines = lines(log);
    assert_eq!(detect_format(&lines, &TimeZone::UTC).as_ref(), Ok(format));
    assert_eq!(check_format(format, &lines, &TimeZone::UTC), Ok(()));
    let mut reader = reader(format.clone());
    let (mut entries, mut others) = (Vec::new(), 0);
    for line in lines {
        match reader.read(line) {
            Ok(entry) => entries.push(entry),
            Err(LineError::NoRequest) => others += 1,
            Err(error) => panic!("{error}: {}", text(line)),
        }
    }
    (entries, others)
}

/// Checks a log of which these lines have no request, and returns its entries.
fn check_log(
    format: &Format,
    log: &'static [u8],
    without: usize,
    logged: Logged,
) -> Vec<LoggedRequest<'static>> {
    let (entries, others) = read(format, log);
    assert_eq!(others, without, "{format}");
    let mut requests = entries.iter();
    for (method, target, status) in REQUESTS {
        let found = requests.find(|entry| &*entry.target == target.as_bytes()).unwrap();
        let expected = (method.to_owned(), Some(status));
        assert_eq!((text(&found.method), found.status), expected, "{format}");
        assert_eq!(found.client, Some(IpAddr::from([127, 0, 0, 1])), "{format}");
        assert!(found.bytes >= Some(6), "{format}");
        let host = logged.has_host.then(|| "api.example.com".to_owned());
        assert_eq!(optional(found.host.as_deref()), host, "{format}");
    }
    if logged.has_agent {
        let agents = [optional(entries[0].header(b"user-agent")), optional(entries[1].header(b"user-agent"))];
        assert_eq!(agents, [Some("curl/8.5.0".to_owned()), Some(AGENT.to_owned())], "{format}");
        let referer = optional(entries[1].header(b"referer"));
        assert_eq!(referer.as_deref(), Some(r#"https://example.com/?q="x""#), "{format}");
    }
    let slow = entries.iter().find(|entry| &*entry.target == b"/slow").unwrap();
    assert_eq!(slow.duration > Some(Micros(240_000)), logged.has_duration, "{format}");
    assert!(entries.iter().any(|entry| entry.client == Some("::1".parse().unwrap())), "{format}");
    let year = 1_790_000_000_000_000..1_800_000_000_000_000;
    assert!(entries.iter().all(|entry| year.contains(&entry.arrival.0)), "{format}");
    entries
}

fn targets(entries: &[LoggedRequest<'_>]) -> Vec<String> {
    entries.iter().map(|entry| text(&entry.target)).collect()
}

const TEXT: Logged = Logged { has_host: false, has_agent: true, has_duration: false };

#[test]
fn nginx_combined() {
    let entries = check_log(&Format::Combined, log!("nginx-combined"), 3, TEXT);
    assert_eq!(&*entries[2].target, b"/caf\xc3\xa9/\xff?x=\xe2\x82\xac");
    assert_eq!(entries[2].user_agent.as_deref(), Some(&b"\xc3\xa9\xff\ttab"[..]));
    assert_eq!(targets(&entries)[3], r#"/q"uote\x41|{}<>"#);
    assert_eq!(optional(entries[4].user.as_deref()), Some("john doe".to_owned()));
    let absolute = entries.iter().find(|entry| &*entry.target == b"/abs?x=1").unwrap();
    assert_eq!(optional(absolute.host.as_deref()), Some("other.example.com:8080".to_owned()));
    assert!(entries.iter().all(|entry| entry.second.is_some()));
    let escaped_as_json = check_log(&Format::Combined, log!("nginx-combined-escape-json"), 3, TEXT);
    assert_eq!(targets(&entries)[3..], targets(&escaped_as_json)[3..]);
}

#[test]
fn nginx_combined_with_further_fields() {
    let entries = check_log(&Format::Combined, log!("nginx-main"), 3, TEXT);
    assert_eq!(optional(entries[0].field("extra1")), Some("-".to_owned()));
    assert_eq!(optional(entries[0].field("extra2")), Some("0.004".to_owned()));
}

#[test]
fn nginx_json() {
    let logged = Logged { has_host: true, has_agent: true, has_duration: true };
    let entries = check_log(&Format::NginxJson, log!("nginx-json"), 4, logged);
    assert_eq!(optional(entries[1].header(b"x-key")), Some("k-1".to_owned()));
    assert_eq!(entries[0].arrival.0, 1_795_375_447_029_000 - 4_000);
    assert_eq!(entries[0].second, None, "msec takes precedence over the other times");
}

#[test]
fn apache() {
    check_log(&Format::Common, log!("apache-common"), 2, Logged { has_agent: false, ..TEXT });
    let entries = check_log(&Format::Combined, log!("apache-combined"), 2, TEXT);
    assert_eq!(&*entries[2].target, b"/caf\xc3\xa9/\xff?x=\xe2\x82\xac");
    assert_eq!(targets(&entries)[3], r#"/q"uote\x41|{}<>"#);
    let (entries, _) = read(&Format::VhostCombined, log!("apache-vhost-combined"));
    assert_eq!(optional(entries[0].host.as_deref()), Some("vhost.example.com".to_owned()));
    assert_eq!(optional(entries[1].user_agent.as_deref()), Some(AGENT.to_owned()));
}

#[test]
fn haproxy() {
    let logged = Logged { has_host: false, has_agent: false, has_duration: true };
    let entries = check_log(&Format::HaproxyHttp, log!("haproxy-httplog"), 11, logged);
    assert_eq!(optional(entries[0].field("capture.req.0")), Some("api.example.com".to_owned()));
    assert_eq!(optional(entries[1].field("capture.req.1")), Some(AGENT.to_owned()));
    assert_eq!(targets(&entries)[2], r#"/q"uote\x41|{}<>"#);
    let cut = entries.iter().find(|entry| &*entry.method == b"HEAD").unwrap();
    assert!(cut.target.starts_with(b"/xxx") && cut.target.len() < 1_000, "the line is cut");
}

#[test]
fn caddy() {
    let logged = Logged { has_host: true, has_agent: true, has_duration: true };
    for log in [&log!("caddy")[..], log!("caddy-iso8601")] {
        let entries = read(&Format::CaddyJson, log).0;
        assert_eq!(optional(entries[1].header(b"x-key")), Some("k-1".to_owned()));
        assert!(entries.iter().all(|entry| entry.second.is_none()));
    }
    check_log(&Format::CaddyJson, log!("caddy"), 0, logged);
}

#[test]
fn traefik() {
    let text = Logged { has_host: false, has_agent: false, has_duration: true };
    check_log(&Format::TraefikClf, log!("traefik-clf"), 0, text);
    let json = Logged { has_host: true, has_agent: true, has_duration: true };
    let entries = check_log(&Format::TraefikJson, log!("traefik-json"), 0, json);
    assert_eq!(optional(entries[1].header(b"X-Key")), Some("k-1".to_owned()));
    assert_eq!(entries[0].arrival.0 % 1_000_000, 96_316);
}
