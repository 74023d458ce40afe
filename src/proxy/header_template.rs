//! Values of request headers that are made of parts of the request.

use std::net::IpAddr;

use http::HeaderValue;

use super::redirect::port;
use crate::gate::requested_host;
use crate::http1::RequestHead;
use crate::http1::names::HOST;

/// The value of a request header with placeholders for parts of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTemplate(Box<[HeaderPart]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum HeaderPart {
    Text(HeaderValue),
    ClientIp,
    Scheme,
    Host,
    Port,
    Authority,
}

/// The placeholders of the values of request headers.
pub const HEADER_PLACEHOLDERS: &str = "{client_ip}, {scheme}, {host}, {port}, {authority}";

/// What a template of headers needs besides the head of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderFacts {
    /// The address of the client, behind trusted proxies.
    pub client: IpAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
}

impl HeaderTemplate {
    /// Parses a value. `None` if it has no placeholders: braces around anything but lower-case letters and `_`, as in JSON, are text.
    ///
    /// # Errors
    /// The name of a placeholder that does not exist.
    pub fn parse(value: &HeaderValue) -> Result<Option<Self>, String> {
        let Ok(text) = value.to_str() else { return Ok(None) };
        let (mut parts, mut rest, mut has_placeholder) = (Vec::new(), text, false);
        let mut plain = String::new();
        while let Some(open) = rest.find('{') {
            let after = &rest[open + 1..];
            let end = after.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(after.len());
            plain.push_str(&rest[..open]);
            if end == 0 || !after[end..].starts_with('}') {
                plain.push('{');
                rest = after;
                continue;
            }
            let part = match &after[..end] {
                "client_ip" => HeaderPart::ClientIp,
                "scheme" => HeaderPart::Scheme,
                "host" => HeaderPart::Host,
                "port" => HeaderPart::Port,
                "authority" => HeaderPart::Authority,
                unknown => return Err(unknown.to_owned()),
            };
            has_placeholder = true;
            parts.extend(text_part(&std::mem::take(&mut plain)));
            parts.push(part);
            rest = &after[end + 1..];
        }
        plain.push_str(rest);
        parts.extend(text_part(&plain));
        Ok(has_placeholder.then(|| Self(parts.into())))
    }

    /// The value for a request; `None` if it needs a host, and the request names none.
    pub(super) fn fill(&self, facts: &HeaderFacts, head: &RequestHead) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for part in &self.0 {
            match part {
                HeaderPart::Text(text) => value.extend_from_slice(text.as_bytes()),
                HeaderPart::ClientIp => value.extend_from_slice(facts.client.to_string().as_bytes()),
                HeaderPart::Scheme => value.extend_from_slice(facts.scheme.as_bytes()),
                HeaderPart::Host => {
                    let host = requested_host(head).ok().filter(|host| !host.is_empty())?;
                    value.extend_from_slice(host.as_bytes());
                }
                HeaderPart::Port => value.extend_from_slice(port(facts.scheme, head).as_bytes()),
                HeaderPart::Authority => value.extend_from_slice(head.fields.get(HOST)?),
            }
        }
        Some(value)
    }
}

/// A text within a value; no part for an empty one.
fn text_part(text: &str) -> Option<HeaderPart> {
    HeaderValue::from_str(text).ok().filter(|text| !text.is_empty()).map(HeaderPart::Text)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn parse(text: &str) -> Result<Option<HeaderTemplate>, String> {
        HeaderTemplate::parse(&HeaderValue::from_str(text).unwrap())
    }

    #[test]
    fn parts_of_the_request_are_filled_in() {
        let mut head = RequestHead::new(Method::GET, "/a".parse().unwrap());
        head.fields.push(HOST, b"A.test:8080");
        let facts = HeaderFacts { client: "2001:db8::1".parse().unwrap(), scheme: "https" };
        for (text, expected) in [
            ("{client_ip}", "2001:db8::1"),
            ("{scheme}://{host}:{port}/", "https://a.test:8080/"),
            ("{authority}", "A.test:8080"),
            ("{{host}}{", "{a.test}{"),
        ] {
            let filled = parse(text).unwrap().unwrap().fill(&facts, &head);
            assert_eq!(filled.as_deref(), Some(expected.as_bytes()), "{text}");
        }
        let nameless = RequestHead::new(Method::GET, "/".parse().unwrap());
        assert_eq!(parse("{authority}").unwrap().unwrap().fill(&facts, &nameless), None);
    }

    #[test]
    fn other_braces_are_text() {
        for text in ["plain", "{\"a\":{}}", "{A}", "{", "{}"] {
            assert_eq!(parse(text), Ok(None), "{text}");
        }
        assert_eq!(parse("x-{path}"), Err("path".to_owned()));
    }
}
