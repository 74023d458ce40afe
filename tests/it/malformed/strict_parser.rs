//! A parser that accepts only what the grammar allows (RFC 9110 §5.5, RFC 9112), in one interpretation. The proxy must not send a
//! message that it rejects, in either direction.

use super::cases::unescaped;

/// A whole message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strict {
    /// Request line or status line.
    pub start: String,
    /// Fields in their order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body without its chunks.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Vec<(String, String)>,
}

/// The reason why there is no message.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message is incomplete.
    Incomplete,
    /// The message is invalid.
    Wrong(String),
}

use Fault::{Incomplete, Wrong};

/// Fields that are not allowed in trailers.
const NEVER_TRAIL: [&str; 9] = [
    "transfer-encoding",
    "content-length",
    "host",
    "connection",
    "trailer",
    "authorization",
    "forwarded",
    "x-forwarded-for",
    "set-cookie",
];

impl Strict {
    /// The only value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// Whether the message has what a table expects: a start line, `name: value`, `!name` for no such field, `body: text` or
    /// `trailer: name`.
    pub fn is_so(&self, wanted: &str) -> bool {
        if let Some(name) = wanted.strip_prefix('!') {
            return self.field(name).is_none();
        }
        let wanted = String::from_utf8_lossy(&unescaped(wanted)).into_owned();
        match wanted.split_once(':').map(|(name, value)| (name, value.trim_start())) {
            Some(("body", body)) => self.body == body.as_bytes(),
            Some(("trailer", name)) => self.trailers.iter().any(|(key, _)| key == name),
            Some((name, value)) if !name.contains(' ') => self.field(name) == Some(value),
            _ => self.start == wanted,
        }
    }

    /// The status of a response.
    pub fn status(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or("")
    }
}

/// Reads a request; returns its length as well.
pub fn request(bytes: &[u8]) -> Result<(Strict, usize), Fault> {
    let (mut message, at) = head(bytes)?;
    let start = message.start.clone();
    let words: Vec<&str> = start.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { return wrong("a request line", &start) };
    let is_target = target == "*" || target.starts_with('/');
    if !is_token(method) || !is_target || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
    {
        return wrong("a request line", &start);
    }
    match message.field("host") {
        Some(host) if !host.is_empty() && host.bytes().all(|byte| !b"/?#@\\, \"<>".contains(&byte)) => {}
        host => return wrong("a host", &format!("{host:?}")),
    }
    if let Some(connection) = message.field("connection")
        && (connection, message.field("te")) != ("te", Some("trailers"))
    {
        return wrong("a connection", connection);
    }
    let at = body(&mut message, bytes, at, Some(0))?;
    Ok((message, at))
}

/// Reads a response to a request of this method; returns its length as well. `is_closed` means that no more bytes follow.
pub fn response(method: &str, bytes: &[u8], is_closed: bool) -> Result<(Strict, usize), Fault> {
    let (mut message, at) = head(bytes)?;
    let start = message.start.clone();
    let status = start.strip_prefix("HTTP/1.1 ").or(start.strip_prefix("HTTP/1.0 ")).unwrap_or("");
    let is_status = status.len() >= 4
        && status.bytes().take(3).all(|byte| byte.is_ascii_digit())
        && status.as_bytes()[3] == b' ';
    if !is_status {
        return wrong("a status line", &start);
    }
    let has_none = method == "HEAD" || matches!(message.status(), "100" | "204" | "304");
    if has_none {
        framing(&message)?;
        return Ok((message, at));
    }
    let at = body(&mut message, bytes, at, is_closed.then_some(bytes.len() - at))?;
    Ok((message, at))
}

fn wrong<T>(what: &str, text: &str) -> Result<T, Fault> {
    Err(Wrong(format!("no way to write {what}: {text:?}")))
}

fn is_token(text: &str) -> bool {
    let mark = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
}

/// The end of the line that begins at `at`.
fn line(bytes: &[u8], at: usize) -> Result<(&[u8], usize), Fault> {
    let Some(length) = bytes[at..].windows(2).position(|two| two == b"\r\n") else { return Err(Incomplete) };
    let line = &bytes[at..at + length];
    // Every byte that is no visible character, blank, tab or part of a character beyond ASCII.
    if line.iter().any(|&byte| byte == 0x7f || (byte < b' ' && byte != b'\t')) {
        return wrong("a line", &String::from_utf8_lossy(line));
    }
    Ok((line, at + length + 2))
}

fn fields(bytes: &[u8], mut at: usize) -> Result<(Vec<(String, String)>, usize), Fault> {
    let mut fields = Vec::new();
    loop {
        let (line, next) = line(bytes, at)?;
        if line.is_empty() {
            return Ok((fields, next));
        }
        let text = String::from_utf8_lossy(line);
        let Some((name, value)) = text.split_once(':') else { return wrong("a field", &text) };
        if !is_token(name) {
            return wrong("a name", name);
        }
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
        at = next;
    }
}

fn head(bytes: &[u8]) -> Result<(Strict, usize), Fault> {
    let (start, at) = line(bytes, 0)?;
    let start = String::from_utf8_lossy(start).into_owned();
    let (fields, at) = fields(bytes, at)?;
    for once in ["host", "content-length", "transfer-encoding", "connection", "te"] {
        if fields.iter().filter(|(name, _)| name == once).count() > 1 {
            return wrong("a field once", once);
        }
    }
    for never in ["keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "expect"] {
        if fields.iter().any(|(name, _)| name == never) {
            return wrong("a field", never);
        }
    }
    Ok((Strict { start, fields, ..Strict::default() }, at))
}

/// The end of a body.
enum End {
    /// The message does not define it.
    Unsaid,
    Length(usize),
    Chunks,
}

fn framing(message: &Strict) -> Result<End, Fault> {
    match (message.field("transfer-encoding"), message.field("content-length")) {
        (None, None) => Ok(End::Unsaid),
        (Some("chunked"), None) => Ok(End::Chunks),
        (None, Some(length)) => {
            let number: Option<usize> = length.parse().ok();
            // In its shortest form.
            match number.filter(|number| number.to_string() == length) {
                Some(number) => Ok(End::Length(number)),
                None => wrong("a length", length),
            }
        }
        both => wrong("an end", &format!("{both:?}")),
    }
}

/// Reads a body; `otherwise` is its length if the message does not define it.
fn body(message: &mut Strict, bytes: &[u8], at: usize, otherwise: Option<usize>) -> Result<usize, Fault> {
    match framing(message)? {
        End::Chunks => chunks(message, bytes, at),
        End::Length(length) => known(message, bytes, at, length),
        End::Unsaid => known(message, bytes, at, otherwise.ok_or(Incomplete)?),
    }
}

fn known(message: &mut Strict, bytes: &[u8], at: usize, length: usize) -> Result<usize, Fault> {
    let body = bytes.get(at..at + length).ok_or(Incomplete)?;
    message.body.extend_from_slice(body);
    Ok(at + length)
}

fn chunks(message: &mut Strict, bytes: &[u8], mut at: usize) -> Result<usize, Fault> {
    loop {
        let (digits, next) = line(bytes, at)?;
        let digits = String::from_utf8_lossy(digits);
        let is_hex = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let Some(size) = usize::from_str_radix(&digits, 16).ok().filter(|_| is_hex) else {
            return wrong("a chunk's size", &digits);
        };
        if size == 0 {
            let (trailers, end) = fields(bytes, next)?;
            if let Some((name, _)) = trailers.iter().find(|(name, _)| NEVER_TRAIL.contains(&&**name)) {
                return wrong("a trailer", name);
            }
            message.trailers = trailers;
            return Ok(end);
        }
        at = known(message, bytes, next, size)?;
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(other) => return wrong("the end of a chunk", &String::from_utf8_lossy(other)),
            None => return Err(Incomplete),
        }
    }
}

#[test]
fn the_strict_parser_is_strict() {
    let length = |text: &str| request(text.as_bytes()).map(|(message, at)| (message.body.len(), at));
    assert_eq!(length("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhiGET"), Ok((2, 49)));
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    assert_eq!(length(chunked), Ok((2, chunked.len())));
    assert_eq!(length(&chunked[..chunked.len() - 1]), Err(Incomplete));
    for wrong in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx : a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n x: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 02\r\n\r\nhi",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2, 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nhi\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nhost: b\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nhost: a\r\n\r\n",
    ] {
        assert!(matches!(length(wrong), Err(Wrong(_))), "{wrong:?}");
    }
}
