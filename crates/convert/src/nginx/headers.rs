//! Headers of requests on their way to a server, and of responses.

use super::authorization::set_by_server;
use super::scope::Scope;
use super::template::{TextPiece, is_constant, pieces};
use super::tree::Directive;
use super::upstreams::Passed;
use crate::model::{TomlRoute, TomlTarget};
use crate::route::is_literal;

/// Headers that tidegate sets itself, with the values of nginx that mean the same.
const OWN: [(&str, &[&str]); 4] = [
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$remote_addr"]),
    ("x-forwarded-proto", &["$scheme"]),
    ("x-forwarded-host", &["$host", "$http_host"]),
    ("upgrade", &["$http_upgrade"]),
];

/// The variables with one value for all requests of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerVariables {
    /// `$server_name`: the first name.
    name: String,
    /// `$server_port`, if it has one port.
    port: Option<String>,
}

impl ServerVariables {
    /// Those of a `server` block with these addresses.
    pub fn of(server: &Directive, addresses: &[String]) -> Self {
        let names = server.directives().iter().find(|directive| directive.name == "server_name");
        let mut ports: Vec<&str> =
            addresses.iter().filter_map(|address| Some(address.rsplit_once(':')?.1)).collect();
        ports.sort_unstable();
        ports.dedup();
        let port = if let [port] = ports[..] { Some(port.to_owned()) } else { None };
        Self { name: names.map_or(String::new(), |names| names.arg(0).to_owned()), port }
    }

    /// The value of a request header with placeholders for its variables; `None` if one has no counterpart.
    fn filled(&self, value: &str) -> Option<String> {
        // The text without placeholders, which must not have others by itself.
        let (mut text, mut constant) = (String::new(), String::new());
        for piece in pieces(value) {
            let own = match &piece {
                TextPiece::Literal(text) => text,
                TextPiece::Variable(name) if name == "server_name" => &self.name,
                TextPiece::Variable(name) if name == "server_port" => self.port.as_ref()?,
                TextPiece::Variable(name) => {
                    text += match &**name {
                        "remote_addr" => "{client_ip}",
                        "scheme" => "{scheme}",
                        "host" => "{host}",
                        "http_host" => "{authority}",
                        _ => return None,
                    };
                    constant.push(' ');
                    continue;
                }
            };
            text += own;
            constant += own;
        }
        is_literal(&constant).then_some(text)
    }
}

/// Sets the headers of requests on their way to a server.
pub(super) fn set_request_headers(
    route: &mut TomlRoute,
    passed: &Passed,
    scope: &Scope<'_>,
    server: &ServerVariables,
) {
    route.rewrite_host.clone_from(&passed.host);
    let sets_host =
        scope.all("proxy_set_header").iter().any(|header| header.arg(0).eq_ignore_ascii_case("host"));
    route.notes.extend(passed.lost_host.clone().filter(|_| !sets_host));
    for directive in scope.all("proxy_set_header") {
        let (name, value) = (directive.arg(0).to_ascii_lowercase(), directive.arg(1));
        let is_own = OWN.iter().any(|(own, values)| name == *own && values.contains(&value));
        let by_server = set_by_server(scope, value);
        match (&*name, value) {
            ("host", "$host" | "$http_host") => route.rewrite_host = None,
            // The first is the default; tidegate forwards WebSockets without the second.
            ("host", "$proxy_host") | ("connection", _) => {}
            ("host", _) if is_constant(value) && !value.is_empty() => {
                route.rewrite_host = Some(value.to_owned());
            }
            _ if is_own || passes(&name, value) => {}
            _ if by_server.is_some() => copy_header(route, directive, &name, by_server.as_deref()),
            (_, "") => route.remove_headers.push(name),
            ("host", _) => route.notes.push(directive.finding("`rewrite.host` is a constant name")),
            _ => match server.filled(value) {
                // nginx sends no header with an empty value.
                Some(value) if value.is_empty() => route.remove_headers.push(name),
                Some(value) => route.set_headers.push((name, value)),
                None => lose_header(route, directive, name),
            },
        }
    }
}

/// Whether a value is the header of the client that it replaces.
fn passes(name: &str, value: &str) -> bool {
    let is_own = OWN.iter().any(|(own, _)| name == *own);
    !is_own && value.strip_prefix("$http_").is_some_and(|variable| variable == name.replace('-', "_"))
}

/// Names a header whose value is not converted. The header of a client must not pass in place of one that a server trusts, so it is
/// removed.
fn lose_header(route: &mut TomlRoute, directive: &Directive, name: String) {
    let reason =
        "a request header has the placeholders {client_ip}, {scheme}, {host}, {port} and {authority}";
    // tidegate sets these itself.
    if name == "x-request-id" || OWN.iter().any(|(own, _)| name == *own) {
        return route.notes.push(directive.finding(reason));
    }
    let reason = format!("{reason}; the header `{name}` of clients is removed");
    route.notes.push(directive.finding(reason));
    route.remove_headers.push(name);
}

/// Copies a header of the authorization server's response to requests. Without that server, or under another name, the upstream
/// could get a header of the client in its place.
fn copy_header(route: &mut TomlRoute, directive: &Directive, name: &str, by_server: Option<&str>) {
    match &mut route.authorization {
        Some(authorization) if by_server == Some(name) => authorization.copy.push(name.to_owned()),
        _ => {
            let reason = "a header of the authorization server is copied under its own name only: all requests get 501 until you \
                          replace it";
            route.notes.push(directive.finding(reason));
            route.target = TomlTarget::missing();
        }
    }
}

/// Sets the headers of responses.
pub(super) fn set_response_headers(route: &mut TomlRoute, scope: &Scope<'_>) {
    for directive in scope.all("add_header") {
        let (name, value) = (directive.arg(0).to_ascii_lowercase(), directive.arg(1));
        if !is_constant(value) {
            route.notes.push(directive.finding("headers of responses have constant values"));
        } else if !value.is_empty() {
            route.set_response_headers.push((name, value.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::note::Note;
    use crate::{SourceFile, SourceFormat, convert};

    #[test]
    fn variables_become_placeholders() {
        let server = ServerVariables { name: "a.test".to_owned(), port: Some("8080".to_owned()) };
        for (value, expected) in [
            ("$remote_addr", Some("{client_ip}")),
            ("$scheme://$http_host", Some("{scheme}://{authority}")),
            ("$host:$server_port", Some("{host}:8080")),
            ("${server_name}", Some("a.test")),
            ("{\"a\":1}", Some("{\"a\":1}")),
            ("{host}", None),
            ("{$server_name}", Some("{a.test}")),
            ("{$scheme}", Some("{{scheme}}")),
            ("$request_id", None),
        ] {
            assert_eq!(server.filled(value).as_deref(), expected, "{value}");
        }
        assert_eq!(ServerVariables::default().filled("$server_port"), None);
        assert_eq!(ServerVariables::default().filled("$server_name").as_deref(), Some(""));
    }

    /// The headers to set and to remove in a location with this directive, and how many remarks change behaviour.
    fn headers(directive: &str) -> (Vec<String>, Vec<String>, usize) {
        let text =
            format!("server {{ server_name host; location / {{ {directive} proxy_pass http://b; }} }}");
        let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
        let mut converted = convert(SourceFormat::Nginx, &[file]).unwrap();
        let route = converted.routes.remove(0);
        let set = route.set_headers.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        (set, route.remove_headers, route.notes.iter().filter(|it| matches!(it, Note::Finding(_))).count())
    }

    #[test]
    fn headers_that_are_not_set_are_removed() {
        let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        for (directive, set, removed, remarks) in [
            ("proxy_set_header X-DN $ssl_client_s_dn;", &[][..], &["x-dn"][..], 1),
            ("proxy_set_header X-User \"u:$user\";", &[], &["x-user"], 1),
            ("proxy_set_header X-J \"{$server_name}\";", &[], &["x-j"], 1),
            ("proxy_set_header X-S $server_name;", &["x-s=host"], &[], 0),
            ("proxy_set_header Authorization $http_authorization;", &[], &[], 0),
            ("proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;", &[], &[], 1),
            ("proxy_set_header X-Request-ID $request_id;", &[], &[], 1),
        ] {
            assert_eq!(headers(directive), (texts(set), texts(removed), remarks), "{directive}");
        }
    }
}
