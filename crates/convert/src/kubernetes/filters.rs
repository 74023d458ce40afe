//! Filters of `HTTPRoute`s.

use super::paths::is_path;
use crate::document::DocNode;
use crate::model::{TomlRoute, TomlTarget};
use crate::note::Note;
use crate::route::is_literal;

/// Filters that restrict no access.
pub(super) const HARMLESS: [&str; 6] = [
    "CORS",
    "RequestHeaderModifier",
    "RequestMirror",
    "RequestRedirect",
    "ResponseHeaderModifier",
    "URLRewrite",
];

/// Does what a filter says to the requests of a route. `prefix` is that of its match.
pub(super) fn apply_filter(filter: &DocNode, prefix: Option<&String>, route: &mut TomlRoute) {
    let kind = filter.get("type").text().unwrap_or("");
    let text = format!("filter: {kind}");
    let failed = match kind {
        "RequestHeaderModifier" | "ResponseHeaderModifier" => {
            let is_request = kind == "RequestHeaderModifier";
            modify_headers(
                filter.get(if is_request { "requestHeaderModifier" } else { "responseHeaderModifier" }),
                is_request,
                route,
            );
            None
        }
        "RequestRedirect" => redirect(filter.get("requestRedirect"), route).err(),
        "URLRewrite" => rewrite(filter.get("urlRewrite"), prefix, route).err(),
        "RequestMirror" => {
            route.notes.push(filter.finding(&text, "tidegate has no counterpart"));
            None
        }
        "CORS" => {
            route.notes.push(filter.finding(&text, "set `cors` of the route"));
            None
        }
        _ => Some("it may restrict access, which is not converted"),
    };
    if let Some(reason) = failed {
        route.notes.push(filter.finding(&text, format!("{reason}: requests get 501 until you replace it")));
        route.target = TomlTarget::missing();
    }
}

fn modify_headers(node: &DocNode, is_request: bool, route: &mut TomlRoute) {
    let (set, remove) = if is_request {
        (&mut route.set_headers, &mut route.remove_headers)
    } else {
        (&mut route.set_response_headers, &mut route.remove_response_headers)
    };
    let mut notes = Vec::new();
    for key in ["set", "add"] {
        for item in node.get(key).items() {
            let name = item.get("name").text().unwrap_or("").to_ascii_lowercase();
            if key == "add" {
                let reason = "the value replaces those of the message, to which the Gateway adds it";
                notes.push(item.finding(&format!("add: {name}"), reason));
            }
            let value = item.get("value").text().unwrap_or("");
            if is_request && !is_literal(value) {
                let reason = "a text in braces would be a placeholder: servers do not get the header";
                notes.push(item.finding(&format!("{key}: {name}"), reason));
                remove.push(name);
                continue;
            }
            set.push((name, value.to_owned()));
        }
    }
    remove.extend(node.get("remove").texts().iter().map(|name| name.to_ascii_lowercase()));
    route.notes.extend(notes);
}

fn redirect(node: &DocNode, route: &mut TomlRoute) -> Result<(), &'static str> {
    let scheme = node.get("scheme").text();
    let host = node.get("hostname").text().unwrap_or("{host}");
    let path = node.get("path");
    let path = match (path.get("type").text(), path.get("replaceFullPath").text()) {
        (None, _) => "{path_and_query}".to_owned(),
        (Some("ReplaceFullPath"), Some(path)) if is_path(path) => path.to_owned(),
        _ => return Err("a redirect keeps the path, or has another whole path"),
    };
    let port = match (node.get("port").text(), scheme) {
        (None, _) | (Some("443"), Some("https")) | (Some("80"), Some("http")) => String::new(),
        (Some(port), _) => format!(":{port}"),
    };
    let is_host =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    if host != "{host}" && !is_host {
        return Err("its target has no valid host");
    }
    let status = node.get("statusCode").text().unwrap_or("302");
    let status = status.parse().ok().filter(|status| matches!(status, 301..=303 | 307 | 308));
    let status = status.ok_or("a redirect has another status")?;
    let scheme = scheme.unwrap_or("{scheme}");
    if !path.starts_with('{') {
        route.notes.push(Note::text("The redirect has no query; the Gateway keeps that of the request."));
    }
    if route.target == TomlTarget::missing() {
        return Ok(());
    }
    route.target = TomlTarget::Redirect { status, location: format!("{scheme}://{host}{port}{path}") };
    Ok(())
}

fn rewrite(node: &DocNode, prefix: Option<&String>, route: &mut TomlRoute) -> Result<(), &'static str> {
    if let Some(host) = node.get("hostname").text() {
        route.rewrite_host = Some(host.to_owned());
    }
    let path = node.get("path");
    match (path.get("type").text(), prefix) {
        (None, _) => {}
        (Some("ReplaceFullPath"), _) => {
            let whole = path.get("replaceFullPath").text().filter(|path| is_path(path));
            route.rewrite_path = Some(whole.ok_or("a route can't have this path")?.to_owned());
        }
        (Some("ReplacePrefixMatch"), Some(prefix)) => {
            let new = path.get("replacePrefixMatch").text().filter(|path| path.is_empty() || is_path(path));
            let new = new.ok_or("a route can't have this prefix")?.trim_end_matches('/');
            route.strip_prefix = Some(prefix.clone()).filter(|prefix| !prefix.is_empty());
            route.add_prefix = Some(new.to_owned()).filter(|new| !new.is_empty());
        }
        _ => return Err("a prefix is replaced where a match has it"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::DocValue;
    use crate::note::FileLine;

    #[test]
    fn texts_in_braces_are_no_values_of_request_headers() {
        let place = FileLine { order: 0, file: "f".into(), line: 1, column: 1 };
        let map = |entries: Vec<(&str, DocNode)>| {
            DocNode::map(&place, entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let text = |text: &str| DocNode::scalar(&place, text);
        for (value, is_request, is_set) in
            [("{client_ip}", true, false), ("{}", true, true), ("{client_ip}", false, true)]
        {
            let item = map(vec![("name", text("X-A")), ("value", text(value))]);
            let items = DocNode { place: place.clone(), value: DocValue::List(vec![item]) };
            let mut route = TomlRoute::default();
            modify_headers(&map(vec![("set", items)]), is_request, &mut route);
            let (set, removed) = if is_request {
                (route.set_headers, route.remove_headers)
            } else {
                (route.set_response_headers, route.remove_response_headers)
            };
            assert_eq!((set.len(), removed.len()), (usize::from(is_set), usize::from(!is_set)), "{value}");
            assert_eq!(route.notes.len(), removed.len(), "{value}");
        }
    }
}
