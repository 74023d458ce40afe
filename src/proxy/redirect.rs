//! Redirects: where a response sends the client, made of parts of its request.
//!
//! No header of a client can make one an open redirect: the host is a normalized one, values are escaped for their place, and a
//! target without a host never begins with two slashes, which a browser would read as a host.

use http::StatusCode;

use crate::gate::{PathPattern, normalize, requested_host};
use crate::http1::names::HOST;
use crate::http1::{RequestHead, UPPER_HEX};

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The status of the response.
    pub status: StatusCode,
    /// Its Location.
    pub location: LocationTemplate,
}

/// The text of a Location with placeholders for parts of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationTemplate(Box<[LocationPart]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum LocationPart {
    Text(Box<str>),
    Scheme,
    Host,
    Port,
    Path,
    Query,
    PathAndQuery,
    /// The segment of the path that a parameter of the route matches, and whether it is written into the query.
    Param(Box<str>, bool),
}

/// Why a text is not the target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// It begins with something else than a path or a URL.
    #[error("it begins with a slash, with http:// or https://, or with {{scheme}}://")]
    Start,
    /// It has no such placeholder.
    #[error("`{{{0}}}` is no placeholder")]
    Unknown(String),
    /// The host of a URL would come from the request.
    #[error("`{{{0}}}` would select the host, so that any client could write a link to another site")]
    InHost(String),
    /// It is a URL without a host.
    #[error("it is a URL without a host")]
    NoHost,
    /// It has a character that no URL has.
    #[error("it has a space, a control character or a character that is not ASCII")]
    Character,
}

/// The placeholders that begin with a slash.
const PATHS: [&str; 2] = ["{path}", "{path_and_query}"];
/// The placeholders besides the parameters of the path.
pub const LOCATION_PLACEHOLDERS: &str = "{scheme}, {host}, {port}, {path}, {query}, {path_and_query}";

impl LocationTemplate {
    /// Parses the target of a redirect. `params` are the parameters of the route's path.
    ///
    /// # Errors
    /// A target that is not one, or that any client could lead to another site.
    pub fn parse(text: &str, params: &[&str]) -> Result<Self, LocationError> {
        if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(LocationError::Character);
        }
        let begins = ["http://", "https://", "{scheme}://"].iter().find(|start| text.starts_with(**start));
        let is_path = text.starts_with('/') && !text.starts_with("//")
            || PATHS.iter().any(|path| text.starts_with(path));
        // A path begins with a slash, so it ends the host.
        let end_of_host = |rest: &str| PATHS.iter().chain(&["/", "?"]).filter_map(|end| rest.find(end)).min();
        let authority = match begins {
            Some(start) => {
                let end = end_of_host(&text[start.len()..]).map_or(text.len(), |end| start.len() + end);
                if end == start.len() {
                    return Err(LocationError::NoHost);
                }
                start.len()..end
            }
            None if is_path => 0..0,
            None => return Err(LocationError::Start),
        };
        let query = text.find('?').or(text.find("{path_and_query}")).unwrap_or(text.len());
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(open) = text[at..].find('{').map(|open| at + open) {
            let Some(close) = text[open..].find('}').map(|close| open + close) else { break };
            let name = &text[open + 1..close];
            if open > at {
                parts.push(LocationPart::Text(text[at..open].into()));
            }
            let part = match name {
                "scheme" => LocationPart::Scheme,
                "host" => LocationPart::Host,
                "port" => LocationPart::Port,
                "path" => LocationPart::Path,
                "query" => LocationPart::Query,
                "path_and_query" => LocationPart::PathAndQuery,
                _ if params.contains(&name) => LocationPart::Param(name.into(), open > query),
                _ => return Err(LocationError::Unknown(name.to_owned())),
            };
            let is_of_host = matches!(part, LocationPart::Host | LocationPart::Port);
            if authority.contains(&open) && !is_of_host {
                return Err(LocationError::InHost(name.to_owned()));
            }
            parts.push(part);
            at = close + 1;
        }
        if at < text.len() {
            parts.push(LocationPart::Text(text[at..].into()));
        }
        Ok(Self(parts.into()))
    }

    /// The same URL by HTTPS on this port.
    #[must_use]
    pub fn https(port: u16) -> Self {
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let start = [LocationPart::Text("https://".into()), LocationPart::Host];
        let end = [LocationPart::Text(port.into()), LocationPart::PathAndQuery];
        Self(start.into_iter().chain(end).collect())
    }

    /// Whether the host is that of the request.
    #[must_use]
    pub fn has_host(&self) -> bool {
        self.0.contains(&LocationPart::Host)
    }

    /// The target for a request by this scheme that the pattern of a route matches; none if the request names no host and the
    /// target needs one.
    #[must_use]
    pub fn fill(&self, scheme: &str, head: &RequestHead, pattern: Option<&PathPattern>) -> Option<String> {
        let path = normalize(head.uri.path()).ok()?;
        // `OPTIONS *` has no path.
        let sent = if path.sent == "*" { "/" } else { &*path.sent };
        let query = head.uri.query().unwrap_or_default();
        let mut location = String::new();
        for part in &self.0 {
            match part {
                LocationPart::Text(text) => location.push_str(text),
                LocationPart::Scheme => location.push_str(scheme),
                LocationPart::Host => {
                    let host = requested_host(head).ok().filter(|host| !host.is_empty())?;
                    location.push_str(&host);
                }
                LocationPart::Port => location.push_str(&port(scheme, head)),
                LocationPart::Path => location.push_str(sent),
                LocationPart::Query => push_escaped(query, b"", &mut location),
                LocationPart::PathAndQuery => {
                    location.push_str(sent);
                    if !query.is_empty() {
                        location.push('?');
                        push_escaped(query, b"", &mut location);
                    }
                }
                LocationPart::Param(name, is_in_query) => {
                    let value =
                        pattern.and_then(|pattern| pattern.param(name, path.matched())).unwrap_or_default();
                    push_escaped(value, if *is_in_query { b"&=+;?/#" } else { b"?#/" }, &mut location);
                }
            }
        }
        while location.starts_with("//") {
            location.remove(0);
        }
        Some(location)
    }
}

/// The port of a request by this scheme, as its client has named it.
pub(super) fn port(scheme: &str, head: &RequestHead) -> String {
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    let named = authority.or_else(|| head.fields.get_str(HOST)).unwrap_or_default();
    let after_address = named.rsplit(']').next().unwrap_or_default();
    let port = after_address.rsplit_once(':').map(|(_, port)| port).and_then(|port| port.parse::<u16>().ok());
    let default = if scheme == "https" { 443 } else { 80 };
    port.unwrap_or(default).to_string()
}

/// Adds a text, with the bytes that are `special` at its place, or that no URL has, as escapes.
fn push_escaped(text: &str, special: &[u8], location: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !special.contains(&byte) && !b"\"<>\\^`{|}".contains(&byte) {
            location.push(char::from(byte));
        } else {
            location.push('%');
            location.push(char::from(UPPER_HEX[usize::from(byte >> 4)]));
            location.push(char::from(UPPER_HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn head(target: &str, host: &str) -> RequestHead {
        let mut head = RequestHead::new(Method::GET, target.parse().unwrap());
        head.fields.push(HOST, host.as_bytes());
        head
    }

    #[test]
    fn parts_of_the_request_are_filled_in_and_escaped() {
        let pattern = PathPattern::parse("/old/{id}/{name}").unwrap();
        let params: Vec<&str> = pattern.params().collect();
        let request = head("/old/7%2B&x/a=b?q=1&r=%2F", "A.test:8080");
        for (template, location) in [
            ("https://{host}{path_and_query}", "https://a.test/old/7%2B&x/a=b?q=1&r=%2F"),
            ("{scheme}://{host}:{port}/new", "http://a.test:8080/new"),
            ("/new/{name}/{id}", "/new/a=b/7+&x"),
            ("/new?id={id}&name={name}&{query}", "/new?id=7%2B%26x&name=a%3Db&q=1&r=%2F"),
            ("/{path}", "/old/7%2B&x/a=b"),
            ("{path}/", "/old/7%2B&x/a=b/"),
        ] {
            let parsed = LocationTemplate::parse(template, &params).unwrap();
            assert_eq!(
                parsed.fill("http", &request, Some(&pattern)).as_deref(),
                Some(location),
                "{template}"
            );
        }
    }

    #[test]
    fn no_request_leads_to_another_site() {
        let pattern = PathPattern::parse("/{a}/{b}").unwrap();
        let fill = |template: &str, target: &str| {
            let parsed = LocationTemplate::parse(template, &["a", "b"]).unwrap();
            parsed.fill("http", &head(target, "a.test"), Some(&pattern)).unwrap()
        };
        assert_eq!(fill("{path}", "//evil.test/x"), "/evil.test/x");
        assert_eq!(fill("/{path}", "/evil.test/x"), "/evil.test/x");
        assert_eq!(fill("/{b}/{a}", "/evil.test/"), "/evil.test");
        assert_eq!(fill("https://a.test{path}", "/.evil.test/x"), "https://a.test/.evil.test/x");
        assert_eq!(fill("/{a}", "/%2F%2Fevil.test/x"), "/%2F%2Fevil.test");
        for (template, error) in [
            ("https://{a}.test/", LocationError::InHost("a".to_owned())),
            ("https://a.test{query}", LocationError::InHost("query".to_owned())),
            ("//{host}/", LocationError::Start),
            ("{a}", LocationError::Start),
            ("/{c}", LocationError::Unknown("c".to_owned())),
            ("/a b", LocationError::Character),
            ("https://{path_and_query}", LocationError::NoHost),
            ("{path_name}", LocationError::Start),
        ] {
            assert_eq!(LocationTemplate::parse(template, &["a", "b"]), Err(error), "{template}");
        }
    }

    #[test]
    fn the_port_of_https_is_named_unless_it_is_the_default() {
        let request = head("/a?b", "[::1]:80");
        for (port, location) in [(443, "https://[::1]/a?b"), (8443, "https://[::1]:8443/a?b")] {
            let filled = LocationTemplate::https(port).fill("http", &request, None);
            assert_eq!(filled.as_deref(), Some(location));
        }
        assert_eq!(
            LocationTemplate::https(443).fill(
                "http",
                &RequestHead::new(Method::GET, "/".parse().unwrap()),
                None
            ),
            None
        );
    }
}
