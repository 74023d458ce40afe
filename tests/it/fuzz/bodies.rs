//! Properties of every input: functions of bytes that panic if a property does not hold. The tests run them over a corpus and over
//! generated input, and so does cargo-fuzz.

use std::net::IpAddr;
use std::sync::LazyLock;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TRAILER};
use http::{HeaderMap, HeaderValue, Uri, Version};
use jiff::tz::TimeZone;
use serde_json::Value;
use tidegate::config;
use tidegate::consumers::parse_record;
use tidegate::gate::{
    BodyField, BodyFields, ClientIdentity, ClientIp, Gate, KeyPart, NoField, ValuePattern, host_of, normalize,
};
use tidegate::http1::{Fields, RequestHead, names};
use tidegate::proxy::{OriginPattern, Origins, normalize_length, remove_hop_by_hop, takes_trailers};
use tidegate::replay::{FieldMap, Format, LineReader, detect_format};
use tidegate::server::parse_proxy_header;

/// A gate with every kind of key that depends on the head alone.
const GATE: &str = r#"
listen = "127.0.0.1:0"
[client_ip]
trusted_proxies = ["10.0.0.0/8"]
[limits]
ip = { rate = "9/s", key = "client_ip" }
header = { rate = "9/s", key = "header:x-key" }
cookie = { rate = "9/s", key = "cookie:sid" }
query = { rate = "9/s", key = "query:key" }
path = { rate = "9/s", key = ["path", "method"] }
segment = { rate = "9/s", key = ["path_param:id", "host"] }
[[routes]]
path = "/users/{id}/*"
limits = ["ip", "header", "cookie", "query", "path", "segment"]
respond = { status = 200 }
[[routes]]
path = "/*"
limits = ["ip", "header", "cookie", "query", "path"]
respond = { status = 200 }
"#;

static GATE_OF_ALL: LazyLock<Gate> = LazyLock::new(|| {
    let loaded = config::parse(GATE, "fuzz.toml", &|_| None);
    loaded.unwrap_or_else(|report| panic!("{}", report.render(false))).config.snapshot.gate
});

/// Normalization of paths is idempotent, and its result is in the grammar.
pub fn path(bytes: &[u8]) {
    let Ok(raw) = std::str::from_utf8(bytes) else { return };
    let Ok(path) = normalize(raw) else { return };
    let again = normalize(&path.sent).expect("a normal path is a path");
    assert_eq!(again.sent, path.sent);
    assert_eq!(again.matched(), path.matched());
    assert_eq!(again.encoded_slash, path.sent.contains("%2F"));
    // An encoded slash in a segment that dot segments have removed still makes a path doubtful.
    assert!(path.encoded_slash || !again.encoded_slash, "{path:?}");
    if path.sent == "*" {
        return;
    }
    assert!(path.sent.starts_with('/') && !path.sent.contains("//"), "{path:?}");
    let mut rest = path.sent.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte == b'%' {
            let digits = &rest[..2];
            let is_upper = |digit: &u8| matches!(digit, b'0'..=b'9' | b'A'..=b'F');
            assert!(digits.iter().all(is_upper), "{path:?}");
            assert!(
                u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap() >= b' ',
                "{path:?}"
            );
            rest = &rest[2..];
        } else {
            assert!(byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte), "{path:?}");
        }
    }
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    assert!(!path.sent.split('/').any(is_dots) && !path.matched().split('/').any(is_dots), "{path:?}");
}

/// Normalization of hosts is idempotent, and independent of the port.
pub fn host(bytes: &[u8]) {
    let Ok(raw) = std::str::from_utf8(bytes) else { return };
    let Some(host) = host_of(raw) else { return };
    assert!(!host.is_empty() && !host.contains("..") && !host.bytes().any(|byte| byte.is_ascii_uppercase()));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_~[]:".contains(&byte);
    assert!(host.bytes().all(is_plain), "{host}");
    assert!(host.starts_with('[') || !host.contains(':'), "{host}");
    for spelling in [host.to_string(), format!("{host}:443"), host.to_uppercase()] {
        assert_eq!(host_of(&spelling).as_deref(), Some(&*host), "{spelling}");
    }
    assert!(HeaderValue::from_str(raw).is_ok(), "what is a host can stand in a header");
}

/// An untrusted peer is the client itself, and entries to the left of the first untrusted address are ignored.
pub fn address(bytes: &[u8]) {
    let [kind, values @ ..] = bytes else { return };
    let spec = ClientIp {
        trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        header: HeaderName::from_static(if kind % 2 == 0 { "x-forwarded-for" } else { "forwarded" }),
        ipv4_prefix: kind % 33,
        ipv6_prefix: kind % 129,
        ..config::defaults::client_ip()
    };
    let mut fields = Fields::new();
    for value in values.split(|&byte| byte == b'\n').filter_map(|value| HeaderValue::from_bytes(value).ok()) {
        fields.push(&spec.header, value.as_bytes().trim_ascii());
    }
    let (stranger, proxy): (IpAddr, IpAddr) = ("192.0.2.7".parse().unwrap(), "10.0.0.1".parse().unwrap());
    assert_eq!(spec.client(stranger, &fields), stranger);
    let client = spec.client(proxy, &fields);
    assert_eq!(client, client.to_canonical());
    let counted = spec.counted(client);
    assert_eq!(spec.counted(counted), counted);
    let behind = |forged: &'static str| {
        let mut longer = Fields::new();
        longer.push(&spec.header, forged.as_bytes());
        for value in fields.get_all(&spec.header) {
            longer.push(&spec.header, value);
        }
        spec.client(proxy, &longer)
    };
    if !spec.is_trusted(client) {
        assert_eq!(behind("6.6.6.6, for=6.6.6.6"), client, "{fields:?}");
    }
    assert_eq!(
        behind("6.6.6.6, for=6.6.6.6, what"),
        client,
        "nor beyond an element that is not an address: {fields:?}"
    );
}

/// Parts of keys are displayed in the syntax that is parsed.
pub fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(part) = KeyPart::parse(text) {
        assert_eq!(KeyPart::parse(&part.to_string()), Some(part));
    }
}

/// Patterns of values are displayed in the syntax that is parsed, and match the text between their asterisks. The pattern is
/// the text before the first line end, the value all bytes after it.
pub fn pattern(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return };
    let value = bytes.get(end + 1..).unwrap_or_default();
    let pattern = ValuePattern::parse(text);
    assert_eq!(ValuePattern::parse(&pattern.to_string()), pattern);
    if let Some(exact) = pattern.exact() {
        assert_eq!(pattern.matches(value), exact == value, "{text}");
    }
    assert!(ValuePattern::parse(&format!("*{pattern}*")).matches(value) || !pattern.matches(value), "{text}");
    let any_case = pattern.clone().ignoring_case();
    assert!(any_case.matches(value) || !pattern.matches(value), "{text}");
    assert_eq!(any_case.matches(&value.to_ascii_uppercase()), any_case.matches(value), "{text}");
    // Each asterisk also matches no text, and any other.
    for filling in ["", "a*b"] {
        let filled = text.replace(r"\\", "").replace(r"\*", "").replace('*', filling);
        let bare = text.replace(r"\\", "").replace(r"\*", "");
        assert!(ValuePattern::parse(&bare).matches(filled.as_bytes()), "{text}");
    }
}

/// Every value that a parser of the whole body finds for a field is among its values. The field is the text before the first
/// line end: a JSON Pointer, or else the name of a field of a form; the body is all bytes after it.
pub fn body(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let body = bytes.get(end + 1..).unwrap_or_default();
    let Ok(name) = std::str::from_utf8(&bytes[..end]) else { return };
    let (kind, media_type) = if name.starts_with('/') {
        ("body", "application/json")
    } else {
        ("form", "application/x-www-form-urlencoded")
    };
    let Some(KeyPart::Body(field)) = KeyPart::parse(&format!("{kind}:{name}")) else { return };
    let found = body_values(&field, media_type, body);
    assert_ne!(found, Err(NoField::TooLong), "the length is for the caller to check");
    if let Ok(values) = &found {
        assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
    }
    if let BodyField::Form(_) = field {
        for (_, value) in url::form_urlencoded::parse(body).filter(|(found, _)| *found == *name) {
            let alone = format!("{}={}", encoded(name), encoded(&value));
            assert_among(&body_values(&field, media_type, alone.as_bytes()), &found);
        }
    } else if let Ok(whole) = serde_json::from_slice::<Value>(body) {
        assert_ne!(found, Err(NoField::Malformed), "{}", String::from_utf8_lossy(body));
        let Some(value) = whole.pointer(name).filter(|value| !value.is_array() && !value.is_object()) else {
            return;
        };
        let Some(KeyPart::Body(member)) = KeyPart::parse("body:/x") else {
            panic!("a pointer is a key part")
        };
        let alone = serde_json::json!({ "x": value }).to_string();
        assert_among(&body_values(&member, media_type, alone.as_bytes()), &found);
    }
}

/// The values of a field in a body of this type.
fn body_values(field: &BodyField, media_type: &str, body: &[u8]) -> Result<Vec<String>, NoField> {
    let mut head = RequestHead::new(http::Method::POST, Uri::from_static("/"));
    head.fields.push(names::CONTENT_TYPE, media_type.as_bytes());
    BodyFields::find(std::slice::from_ref(field), &head, Ok(body)).values(field).map(<[String]>::to_vec)
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The value, if there is one, is among those that were found, unless the body is malformed.
fn assert_among(value: &Result<Vec<String>, NoField>, found: &Result<Vec<String>, NoField>) {
    let (Ok(value), false) = (value, *found == Err(NoField::Malformed)) else { return };
    assert!(found.as_ref().is_ok_and(|found| found.contains(&value[0])), "{value:?} is not in {found:?}");
}

/// A normalized request has the same keys as the original.
pub fn gate(bytes: &[u8]) {
    let Some(head) = head(bytes) else { return };
    let caller = || ClientIdentity::from("10.0.0.1".parse::<IpAddr>().unwrap());
    let Ok(examined) = GATE_OF_ALL.plan(caller(), &head, None) else {
        assert!(GATE_OF_ALL.plan(caller(), &head, None).is_err(), "what is refused stays refused");
        return;
    };
    let mut normal = head.clone();
    let query = head.uri.query().map_or(String::new(), |query| format!("?{query}"));
    let Ok(uri) = format!("{}{query}", examined.matched.path.sent).parse::<Uri>() else { return };
    normal.uri = uri;
    if let Some(authority) = head.uri.authority() {
        normal.fields.set(names::HOST, authority.as_str().as_bytes());
    }
    let again = GATE_OF_ALL.plan(caller(), &normal, None).expect("what is let in is let in again");
    assert_eq!(
        (again.matched.route, &again.matched.host, again.client),
        (examined.matched.route, &examined.matched.host, examined.client)
    );
    let keys = |charges: &[tidegate::limit::Charge]| {
        charges.iter().map(|it| (it.policy, it.key)).collect::<Vec<_>>()
    };
    assert_eq!(keys(&again.charges), keys(&examined.charges), "{head:?}");
}

/// A file is valid, or has the same errors each time it is read.
pub fn file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = || config::parse(text, "fuzz.toml", &|name| (name == "SET").then(|| "value".to_owned()));
    match (read(), read()) {
        (Ok(once), Ok(again)) => assert_eq!(once.warnings.render(false), again.warnings.render(false)),
        (Err(once), Err(again)) => {
            assert!(!once.is_empty() && once.summary().is_some() && once.lines().count() > 0, "{text}");
            assert_eq!(once.render(false), again.render(false));
        }
        _ => panic!("right and wrong at once: {text}"),
    }
}

/// A file of consumers is valid, or has the same errors each time it is read.
pub fn consumers(bytes: &[u8]) {
    // A file for each thread, since tests run at the same time.
    thread_local! {
        static FILE: tempfile::NamedTempFile = tempfile::NamedTempFile::new().unwrap();
    }
    FILE.with(|file| {
        std::fs::write(file.path(), bytes).unwrap();
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[consumers]\nfile = \"{}\"\n[limits.each]\nrate = \"1/s\"\nkey = \"consumer\"\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = {{}}\n",
            file.path().display()
        );
        let read = || config::parse(&text, "fuzz.toml", &|_| None);
        match (read(), read()) {
            (Ok(once), Ok(again)) => assert_eq!(once.warnings.render(false), again.warnings.render(false)),
            (Err(once), Err(again)) => {
                assert!(!once.is_empty() && once.summary().is_some());
                assert_eq!(once.render(false), again.render(false));
            }
            _ => panic!("right and wrong at once"),
        }
    });
}

/// Lines `field=value` are the record of a consumer with these values, in any order, or of none.
pub fn consumer_record(bytes: &[u8]) {
    let line = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'=')?;
        Some((line[..at].to_vec().into(), line[at + 1..].to_vec().into()))
    };
    let mut fields: Vec<(bytes::Bytes, bytes::Bytes)> =
        bytes.split(|&byte| byte == b'\n').filter_map(line).collect();
    fields.sort();
    fields.dedup_by(|one, next| one.0 == next.0);
    let read = parse_record(&fields);
    fields.reverse();
    assert_eq!(parse_record(&fields), read);
    let Ok(consumer) = read else { return };
    let value =
        |name: &str| fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| &**value);
    assert_eq!(value("name"), Some(consumer.name.as_bytes()));
    assert_eq!(consumer.is_blocked, matches!(value("blocked"), Some(b"1" | b"true")));
    assert_eq!(consumer.expires.is_some(), value("expires").is_some_and(|text| !text.is_empty()));
    assert_eq!(consumer.tier.as_deref().unwrap_or("").as_bytes(), value("tier").unwrap_or(b""));
}

/// An origin that a pattern of subdomains contains is a subdomain.
pub fn origin(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let exact = OriginPattern::Exact("https://a.test".into());
    let below = OriginPattern::Subdomains { prefix: "https://".into(), suffix: ".b.test:8443".into() };
    if Origins::Listed(vec![exact, below]).contains(text) && text != "https://a.test" {
        let name = text.strip_prefix("https://").and_then(|rest| rest.strip_suffix(".b.test:8443")).unwrap();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        assert!(!name.is_empty() && name.bytes().all(is_name), "{text}");
    }
}

/// No hop-by-hop field or ambiguous length is forwarded, and a second removal changes nothing.
pub fn headers(bytes: &[u8]) {
    let mut headers = fields(bytes);
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
        .collect();
    let mut fields = Fields::from(&headers);
    let has_one_length = normalize_length(&mut fields, Version::HTTP_2);
    remove_hop_by_hop(&mut fields);
    headers = (&fields).into();
    let never =
        ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "expect"];
    assert!(never.iter().all(|name| !headers.contains_key(*name)), "{headers:?}");
    assert!(named.iter().all(|name| name == TRAILER || !headers.contains_key(name)), "{headers:?}");
    if has_one_length {
        let lengths: Vec<&str> =
            headers.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().expect("digits")).collect();
        let is_plain =
            |length: &&str| length.parse::<u64>().is_ok_and(|number| number.to_string() == **length);
        assert!(lengths.len() <= 1 && lengths.iter().all(is_plain), "{lengths:?}");
    }
    for name in headers.get_all(TRAILER).iter().flat_map(|names| names.to_str().expect("names").split(", ")) {
        let is_forbidden = ["content-length", "transfer-encoding", "host", "x-forwarded-for"].contains(&name);
        assert!(HeaderName::from_bytes(name.as_bytes()).is_ok() && !is_forbidden, "{name}");
    }
    let mut again = fields.clone();
    let still_has_one_length = normalize_length(&mut again, Version::HTTP_2);
    remove_hop_by_hop(&mut again);
    assert_eq!((&again, still_has_one_length), (&fields, has_one_length));
    assert!(!takes_trailers(&fields));
}

/// A PROXY header has one interpretation, and no byte may be added or removed.
pub fn proxy_header(bytes: &[u8]) {
    let Ok(client) = parse_proxy_header(bytes) else { return };
    assert!(parse_proxy_header(&bytes[..bytes.len() - 1]).is_err(), "{bytes:?}");
    assert!(parse_proxy_header(&[bytes, b"\r\n"].concat()).is_err(), "{bytes:?}");
    if let (Some(client), [b'P', ..]) = (client, bytes) {
        let text = std::str::from_utf8(bytes).expect("a line of text");
        let port = text.split(' ').nth(4).expect("the client's port");
        assert_eq!((port, text.contains("TCP4")), (&*client.port().to_string(), client.is_ipv4()), "{text}");
    }
}

/// A head: a line with method and target, and lines with fields.
fn head(bytes: &[u8]) -> Option<RequestHead> {
    let (start, rest) = bytes.split_at(bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()));
    let (method, target) = std::str::from_utf8(start).ok()?.trim_end().split_once(' ')?;
    let head = RequestHead::new(method.parse().ok()?, target.parse().ok()?);
    Some(RequestHead { fields: Fields::from(&fields(rest)), ..head })
}

fn fields(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

/// Every line of a log is read in every format, or is an error.
pub fn log(bytes: &[u8]) {
    for format in formats() {
        let mut reader = LineReader::new(format, TimeZone::UTC);
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Ok(entry) = reader.read(line) {
                assert!(!entry.method.is_empty());
                assert!(entry.end() >= entry.arrival);
                assert_eq!(entry.clone().into_owned(), entry);
            }
        }
    }
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let _ = detect_format(&lines, &TimeZone::UTC);
}

/// Every format of logs, the last one with the fields of the lines in `tests/logs/json-fields.log`.
pub fn formats() -> impl Iterator<Item = Format> {
    let fields = FieldMap::parse(include_str!("../../logs/json-fields.txt")).unwrap();
    Format::KNOWN.into_iter().chain([Format::JsonFields(fields)])
}
