//! Header names, values and edits.

use std::ops::Range;

use http::header::{HOST, HeaderName};
use http::{HeaderValue, Method};

use super::reader::{Item, Text};
use super::report::Problem;
use super::table::Name;
use crate::proxy::HeaderEdits;

/// Headers that belong to one connection or frame one message: the proxy writes them itself.
pub(super) const OWN: [&str; 8] = [
    "connection",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "te",
    "trailer",
    "keep-alive",
    "proxy-connection",
];

/// Which way the edited headers go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Upstream.
    Request,
    /// Back to the client.
    Response,
}

/// Reads `{ set = { NAME = "value" }, remove = ["NAME"] }`.
pub(super) fn edits(item: Option<Item<'_>>, direction: Direction) -> Option<HeaderEdits> {
    let Some(item) = item else { return Some(HeaderEdits::default()) };
    let mut table = item.table(format!("`{}`", item.name))?;
    let set = table.item("set").map_or(Some(Vec::new()), |item| {
        let mut set = Vec::new();
        for (name, item) in item.table("`set`")?.entries() {
            set.push(pair(&name, item, direction));
        }
        set.into_iter().collect()
    });
    let remove = table.item("remove").map_or(Some(Vec::new()), |item| {
        let items = item.list("put the names in brackets: [\"server\"]")?;
        let names: Vec<Option<HeaderName>> = items.into_iter().map(|item| removed(item, direction)).collect();
        names.into_iter().collect()
    });
    table.close();
    Some(HeaderEdits { set: set?, remove: remove? })
}

fn pair(key: &Name<'_>, item: Item<'_>, direction: Direction) -> Option<(HeaderName, HeaderValue)> {
    let name = name(key, item).filter(|name| may_be_edited(name, direction, "set", item, key.span.clone()));
    let value = item.string().and_then(|text| value(&text));
    Some((name?, value?))
}

fn removed(item: Item<'_>, direction: Direction) -> Option<HeaderName> {
    let text = item.string()?;
    let name = text.parsed("a header name", "", |text| text.parse::<HeaderName>().ok())?;
    may_be_edited(&name, direction, "removed", item, item.span()).then_some(name)
}

fn may_be_edited(
    name: &HeaderName,
    direction: Direction,
    verb: &str,
    item: Item<'_>,
    place: Range<usize>,
) -> bool {
    let problem = if OWN.contains(&name.as_str()) {
        Problem::error(place, format!("`{name}` can't be {verb}: tidegate writes it itself"))
    } else if direction == Direction::Request && name == HOST {
        Problem::error(place, format!("`host` can't be {verb} here"))
            .help("write rewrite = { host = \"upstream\" }, or a name in place of \"upstream\"")
    } else {
        return true;
    };
    item.reader.note(problem);
    false
}

/// The header that a key names.
pub(super) fn name(key: &Name<'_>, item: Item<'_>) -> Option<HeaderName> {
    let name = key.text.parse().ok();
    name.or_else(|| {
        item.refuse(Problem::error(key.span.clone(), format!("`{}` is not a header name", key.text)))
    })
}

/// A header's value; what comes from the environment is marked as a secret.
pub(super) fn value(text: &Text<'_>) -> Option<HeaderValue> {
    let help = "it may hold neither line ends nor control characters, and neither start nor end with a blank";
    let mut value = text.parsed("a header value", help, |text| {
        let value = HeaderValue::from_str(text).ok()?;
        (text.trim() == text).then_some(value)
    })?;
    value.set_sensitive(text.from_env);
    Some(value)
}

/// Reads a list of methods.
pub(super) fn methods(item: Item<'_>) -> Option<Vec<Method>> {
    let items = item.list("put the methods in brackets: [\"GET\"]")?;
    if items.is_empty() {
        let problem = item.error("no request could match: the list is empty");
        return item.refuse(problem.help("name a method, or leave `methods` out for all of them"));
    }
    let methods: Vec<Option<Method>> = items.into_iter().map(method).collect();
    methods.into_iter().collect()
}

fn method(item: Item<'_>) -> Option<Method> {
    let text = item.string()?;
    let method =
        text.parsed("a method", "such as \"GET\"", |text| Method::from_bytes(text.as_bytes()).ok())?;
    let upper = text.value.to_ascii_uppercase();
    if upper != text.value {
        let problem = text
            .error(format!("{} is not what clients send: methods have upper-case letters", text.quoted()));
        return text.refuse(if text.from_env { problem } else { problem.help(format!("write \"{upper}\"")) });
    }
    Some(method)
}
