//! Routes as TOML.

use super::{TomlWriter, bare, quoted, strings, write_timeout};
use crate::model::{ConditionKind, DenyStatus, Test, TomlAuthorization, TomlRoute, TomlTarget};

/// Writes a route.
pub(super) fn write_route(out: &mut TomlWriter, route: &TomlRoute) {
    out.header(&route.notes, "[[routes]]");
    out.some("name", route.name.as_deref());
    out.some("listener", route.listener.as_deref());
    out.some("scheme", route.scheme);
    out.some("host", route.host.as_deref());
    out.string("path", &route.path);
    out.list("methods", &route.methods);
    for condition in route.conditions.iter().filter(|condition| condition.kind == ConditionKind::ClientIp) {
        match &condition.test {
            Test::Any(networks) => out.list("client_ip", networks),
            Test::Not(networks) => out.table("client_ip", &[("not".to_owned(), strings(networks))]),
            // Every request has an address.
            Test::Present(_) => {}
        }
    }
    let kinds = [
        (ConditionKind::Header, "headers"),
        (ConditionKind::Query, "query"),
        (ConditionKind::Cookie, "cookies"),
    ];
    for (kind, key) in kinds {
        let of_kind = route.conditions.iter().filter(|condition| condition.kind == kind);
        let entries: Vec<_> = of_kind.map(|it| (it.name.clone(), test(&it.test))).collect();
        out.table(key, &entries);
    }
    out.list("limits", &route.limits);
    write_target(out, &route.target);
    // That of a route that closes is written with its action.
    let is_own = |_: &DenyStatus| route.target != TomlTarget::Close && !route.limits.is_empty();
    if let Some(status) = route.deny_status.filter(is_own) {
        out.value("deny_status", status.toml());
    }
    if matches!(route.target, TomlTarget::Upstream(_)) {
        if let Some(authorization) = &route.authorization {
            write_authorization(out, authorization);
        }
        write_timeout(out, route.timeout.as_deref());
        out.some("total_timeout", route.total_timeout.as_deref());
        if let Some(retries) = route.retries {
            out.value("retries", retries);
        }
        write_request_changes(out, route);
    }
    out.table("response_headers", &changes(&route.set_response_headers, &route.remove_response_headers));
    out.some("max_body", route.max_body.as_deref());
}

/// Writes what a route does with its requests.
fn write_target(out: &mut TomlWriter, target: &TomlTarget) {
    match target {
        TomlTarget::Upstream(upstream) => out.string("upstream", upstream),
        TomlTarget::Respond { status, body } => {
            let mut entries = vec![("status".to_owned(), status.to_string())];
            if !body.is_empty() {
                entries.push(("body".to_owned(), quoted(body)));
            }
            out.table("respond", &entries);
        }
        TomlTarget::Redirect { status, location } => {
            let mut entries = vec![("redirect".to_owned(), quoted(location))];
            if *status != 308 {
                entries.push(("status".to_owned(), status.to_string()));
            }
            out.table("respond", &entries);
        }
        TomlTarget::Block => out.value("block", true),
        TomlTarget::Close => {
            out.value("block", true);
            out.string("deny_status", "close");
        }
    }
}

fn write_authorization(out: &mut TomlWriter, authorization: &TomlAuthorization) {
    let TomlAuthorization { upstream, path, send, copy, timeout, is_first } = authorization;
    let mut entries = vec![("upstream", quoted(upstream)), ("path", quoted(path)), ("send", strings(send))];
    entries.extend((!copy.is_empty()).then(|| ("copy", strings(copy))));
    entries.push(("timeout", quoted(timeout)));
    entries.extend(is_first.then(|| ("order", quoted("before_limits"))));
    let entries: Vec<_> = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    out.table("authorize", &entries);
}

fn write_request_changes(out: &mut TomlWriter, route: &TomlRoute) {
    let rewrite = [
        ("strip_prefix", &route.strip_prefix),
        ("add_prefix", &route.add_prefix),
        ("path", &route.rewrite_path),
        ("host", &route.rewrite_host),
    ];
    let rewrite =
        rewrite.into_iter().filter_map(|(key, value)| Some((key.to_owned(), quoted(value.as_ref()?))));
    out.table("rewrite", &rewrite.collect::<Vec<_>>());
    out.table("request_headers", &changes(&route.set_headers, &route.remove_headers));
}

/// The entries of a table of changes of headers.
fn changes(set: &[(String, String)], remove: &[String]) -> Vec<(String, String)> {
    let set = (!set.is_empty()).then(|| ("set".to_owned(), inline(set)));
    let remove = (!remove.is_empty()).then(|| ("remove".to_owned(), strings(remove)));
    set.into_iter().chain(remove).collect()
}

fn inline(entries: &[(String, String)]) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(name, value)| format!("{} = {}", bare(name), quoted(value))).collect();
    format!("{{ {} }}", entries.join(", "))
}

fn test(test: &Test) -> String {
    let list = |patterns: &[String]| match patterns {
        [single] => quoted(single),
        _ => strings(patterns),
    };
    match test {
        Test::Any(patterns) => list(patterns),
        Test::Not(patterns) => format!("{{ not = {} }}", list(patterns)),
        Test::Present(is_present) => is_present.to_string(),
    }
}
