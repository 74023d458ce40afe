//! Headers of requests on their way to a server, and of responses.

use super::authorization::set_by_server;
use super::scope::Scope;
use super::template::is_constant;
use super::tree::Directive;
use super::upstreams::Passed;
use crate::model::{TomlRoute, TomlTarget};

/// Headers that tidegate sets itself, with the values of nginx that mean the same.
const OWN: [(&str, &[&str]); 4] = [
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$remote_addr"]),
    ("x-forwarded-proto", &["$scheme"]),
    ("x-forwarded-host", &["$host", "$http_host"]),
    ("upgrade", &["$http_upgrade"]),
];

/// Sets the headers of requests on their way to a server.
pub(super) fn set_request_headers(route: &mut TomlRoute, passed: &Passed, scope: &Scope<'_>) {
    route.rewrite_host.clone_from(&passed.host);
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
            _ if is_own => {}
            _ if by_server.is_some() => copy_header(route, directive, &name, by_server.as_deref()),
            (_, "") => route.remove_headers.push(name),
            _ if is_constant(value) && name != "host" => route.set_headers.push((name, value.to_owned())),
            ("x-real-ip", "$remote_addr") => {
                let reason =
                    "servers find the address of the client in X-Forwarded-For and Forwarded instead";
                route.notes.push(directive.finding(reason));
            }
            _ => route.notes.push(directive.finding("headers of a route have constant values")),
        }
    }
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
            route.notes.push(directive.finding("headers of a route have constant values"));
        } else if !value.is_empty() {
            route.set_response_headers.push((name, value.to_owned()));
        }
    }
}
