//! `auth_request`: the location that nginx asks whether a request may pass, as `authorize` of a route.

use super::scope::Scope;
use super::template::is_constant;
use super::timeouts::milliseconds;
use super::tree::Directive;
use super::upstreams::Upstreams;
use crate::duration;
use crate::model::TomlAuthorization;

/// Directives of the location that say nothing about what is asked.
const NEEDLESS: [&str; 9] = [
    "access_log",
    "internal",
    "log_not_found",
    "log_subrequest",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_http_version",
];
/// Headers that tidegate sends by itself, or that say nothing, with the values that nginx gives them.
const SENT: [(&str, &[&str]); 8] = [
    ("connection", &[]),
    ("content-length", &[""]),
    ("content-type", &[""]),
    ("host", &["$proxy_host"]),
    ("x-forwarded-for", &["$proxy_add_x_forwarded_for", "$remote_addr"]),
    ("x-forwarded-host", &["$host", "$http_host"]),
    ("x-forwarded-method", &["$request_method"]),
    ("x-forwarded-proto", &["$scheme"]),
];
/// The header with path and query.
const URI: (&str, &str) = ("x-forwarded-uri", "$request_uri");
/// The longest timeout, in milliseconds, and the default of nginx.
const LONGEST: u64 = 60_000;

/// A location of a server, with the directives that apply in it.
pub(super) type Asked<'d> = (&'d Directive, Scope<'d>);

/// What the location that an `auth_request` names asks. Fails with the reason if tidegate can't ask the same.
pub(super) fn authorization<'d>(
    guard: &Directive,
    locations: &[Asked<'d>],
    upstreams: &mut Upstreams<'d>,
) -> Result<TomlAuthorization, String> {
    let uri = guard.arg(0);
    let (location, scope) = asked(uri, locations)
        .ok_or_else(|| format!("no location of its server has exactly the path {uri}"))?;
    let block = location.directives();
    let find = |name: &str| block.iter().find(|directive| directive.name == name);
    let is_off = |name: &str| find(name).is_some_and(|directive| directive.arg(0) == "off");
    let known = |name: &str| {
        let read =
            ["proxy_pass", "proxy_pass_request_body", "proxy_pass_request_headers", "proxy_set_header"];
        read.contains(&name) || name == "proxy_read_timeout" || NEEDLESS.contains(&name)
    };
    if let Some(other) = block.iter().find(|directive| !known(&directive.name)) {
        return Err(format!("its location {uri} has `{}`", other.text()));
    }
    if !is_off("proxy_pass_request_body") {
        return Err(format!("its location {uri} sends the body, without `proxy_pass_request_body off`"));
    }
    let pass = find("proxy_pass").ok_or_else(|| format!("its location {uri} has no `proxy_pass`"))?;
    if let Some(header) = scope.all("proxy_set_header").iter().find(|header| !is_sent(header)) {
        return Err(format!(
            "its server gets `{}`, and tidegate describes requests in X-Forwarded-Method, -Proto, -Host, -Uri and -For",
            header.text()
        ));
    }
    let (upstream, path) = upstreams
        .asked(pass)
        .ok_or_else(|| format!("`{}` of its location can't be converted", pass.text()))?;
    let sends_headers = !is_off("proxy_pass_request_headers");
    let read_timeout = scope.last("proxy_read_timeout").and_then(|it| milliseconds(&it.args.join(" ")));
    let read_timeout = read_timeout.filter(|it| *it > 0).unwrap_or(LONGEST);
    Ok(TomlAuthorization {
        upstream,
        path: path.unwrap_or_else(|| uri.to_owned()),
        send: sends_headers.then(|| "*".to_owned()).into_iter().collect(),
        copy: Vec::new(),
        timeout: duration::timeout(read_timeout.min(LONGEST)).unwrap_or_else(|| "60s".to_owned()),
        is_first: false,
    })
}

/// The location that has this path, and that no regular expression hides.
fn asked<'l, 'd>(uri: &str, locations: &'l [Asked<'d>]) -> Option<&'l Asked<'d>> {
    let has_regexes = locations.iter().any(|(it, _)| it.arg(0).starts_with('~'));
    let is_named = |(location, _): &&Asked<'d>| match &location.args[..] {
        [modifier, path] => matches!(&**modifier, "=" | "^~") && path == uri,
        [path] => path.strip_prefix('=') == Some(uri) || path == uri && !has_regexes,
        _ => false,
    };
    locations.iter().find(is_named).filter(|_| uri.starts_with('/') && is_constant(uri))
}

fn is_sent(header: &Directive) -> bool {
    let (name, value) = (header.arg(0).to_ascii_lowercase(), header.arg(1));
    let is_known =
        |(sent, values): &(&str, &[&str])| *sent == name && (values.is_empty() || values.contains(&value));
    (&*name, value) == URI || SENT.iter().any(is_known)
}

/// The header of the authorization server that a variable has, such as `x-user` for `$user` with
/// `auth_request_set $user $upstream_http_x_user`.
pub(super) fn set_by_server(scope: &Scope<'_>, variable: &str) -> Option<String> {
    let set = scope.all("auth_request_set").iter().rev().find(|set| set.arg(0) == variable)?;
    Some(set.arg(1).strip_prefix("$upstream_http_")?.replace('_', "-"))
}
