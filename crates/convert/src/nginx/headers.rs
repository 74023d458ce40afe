//! Headers that locations set.

use super::scope::Scope;
use super::template::is_constant;
use super::upstreams::Passed;
use crate::model::TomlRoute;
use crate::note::Note;

/// Headers that tidegate sets itself, with the values of nginx that mean the same.
const OWN: [(&str, &[&str]); 4] = [
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$remote_addr"]),
    ("x-forwarded-proto", &["$scheme", "https", "http"]),
    ("x-forwarded-host", &["$host", "$http_host"]),
    ("upgrade", &["$http_upgrade"]),
];

/// Sets the headers of requests on their way to a server.
pub(super) fn set_request_headers(route: &mut TomlRoute, passed: &Passed, scope: &Scope<'_>) {
    route.rewrite_host.clone_from(&passed.host);
    for directive in scope.all("proxy_set_header") {
        let (name, value) = (directive.arg(0).to_ascii_lowercase(), directive.arg(1));
        let is_own = OWN.iter().any(|(own, values)| name == *own && values.contains(&value));
        match (&*name, value) {
            ("host", "$host" | "$http_host") => route.rewrite_host = None,
            // The first is the default; tidegate forwards WebSockets without the second.
            ("host", "$proxy_host") | ("connection", _) => {}
            ("host", _) if is_constant(value) && !value.is_empty() => {
                route.rewrite_host = Some(value.to_owned());
            }
            _ if is_own => {}
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

/// The size of the largest body, such as `"10MiB"`; none for no limit.
pub(super) fn max_body(scope: &Scope<'_>) -> Result<Option<String>, Note> {
    let Some(directive) = scope.last("client_max_body_size") else { return Ok(None) };
    let text = directive.arg(0).to_ascii_lowercase();
    let digits = text.trim_end_matches(['k', 'm', 'g']);
    let unit = match &text[digits.len()..] {
        "" => Some("B"),
        "k" => Some("KiB"),
        "m" => Some("MiB"),
        "g" => Some("GiB"),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().zip(unit);
    let (number, unit) = number.ok_or_else(|| directive.finding("this is no size"))?;
    Ok((number > 0).then(|| format!("{number}{unit}")))
}
