//! Header names, values and edits.

use std::ops::Range;

use http::header::{HOST, HeaderName};
use http::{HeaderValue, Method};

use super::item::{Item, TextItem};
use super::keys::{DeclaredKeys, TableKeys, keys};
use super::report::Problem;
use super::table::{Name, Reported, Table, entries};
use crate::proxy::{HEADER_PLACEHOLDERS, HeaderEdits, HeaderTemplate};

/// Headers of one connection, or of the framing of one message: the proxy writes them itself.
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

/// Matches everything in a list.
pub(super) const ALL: &str = "*";

keys! {
    /// The keys of `response_headers`.
    ResponseEditsKeys {
        /// Headers to set, as `{ name = "value" }`
        set: NamedTable<Text>;
        /// Names of headers to remove
        remove: List<Text> = [];
        /// Whether the changes also apply to the responses of tidegate itself to requests of this route that it
        /// rejects, such as 401, 403, 429 and 502
        always: Boolean = false;
    }
}

/// The keys of `request_headers`: those that `response_headers` has too. Values have placeholders.
pub enum EditsKeys {}

static EDITS: TableKeys =
    TableKeys { all: ResponseEditsKeys::KEYS.all.split_at(2).0, has_own_table: false, mistaken: &[] };

impl DeclaredKeys for EditsKeys {
    const KEYS: &'static TableKeys = &EDITS;
}

/// The direction of the edited headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Upstream.
    Request,
    /// Back to the client.
    Response,
}

/// Reads `request_headers`.
pub(super) fn request_edits(item: Option<Item<'_>>) -> Option<HeaderEdits> {
    let Some(item) = item else { return Some(HeaderEdits::default()) };
    let table = Table::with_some(item, format!("`{}`", item.name), EditsKeys::KEYS, "")?;
    let read = edits(&table, Direction::Request);
    table.close();
    read
}

/// Reads `response_headers`, and whether they apply to the proxy's own responses.
pub(super) fn response_edits(item: Option<Item<'_>>) -> Option<(HeaderEdits, bool)> {
    let Some(item) = item else { return Some((HeaderEdits::default(), false)) };
    let table = Table::of(item, format!("`{}`", item.name))?;
    let (read, always) = (edits(&table, Direction::Response), table.always().read());
    table.close();
    Some((read?, always?))
}

/// Reads `{ set = { NAME = "value" }, remove = ["NAME"] }`.
fn edits(table: &Table<'_, ResponseEditsKeys>, direction: Direction) -> Option<HeaderEdits> {
    let set = table.set().with(|item| pairs(item, |name, item| pair(name, item, direction)));
    let help = "put the names in brackets: [\"server\"]";
    let remove = table.remove().with(|item| item.list_of(help, |item| removed(item, direction)));
    let (mut edits, set) = (HeaderEdits { remove: remove?, ..HeaderEdits::default() }, set.ok()?);
    for (name, value) in set.unwrap_or_default() {
        match value {
            SetValue::Constant(value) => edits.set.push((name, value)),
            SetValue::Filled(template) => edits.filled.push((name, template)),
        }
    }
    Some(edits)
}

/// The value of a header that is set.
enum SetValue {
    Constant(HeaderValue),
    /// It is made of parts of the request.
    Filled(HeaderTemplate),
}

/// Reads a table whose keys are names that the user chose.
pub(super) fn pairs<K, V>(
    item: Item<'_>,
    read: impl Fn(&Name<'_>, Item<'_>) -> Option<(K, V)>,
) -> Option<Vec<(K, V)>> {
    let entries = entries(item)?;
    let pairs: Vec<Option<(K, V)>> = entries.iter().map(|(name, item)| read(name, *item)).collect();
    pairs.into_iter().collect()
}

fn pair(key: &Name<'_>, item: Item<'_>, direction: Direction) -> Option<(HeaderName, SetValue)> {
    let name = name(key, item).filter(|name| may_be_edited(name, direction, "set", item, key.span.clone()));
    let value = item.string().and_then(|text| {
        if direction == Direction::Response {
            reject_variable(&text);
        }
        let constant = value(&text)?;
        if text.from_env || direction == Direction::Response {
            return Some(SetValue::Constant(constant));
        }
        match HeaderTemplate::parse(&constant) {
            Ok(template) => Some(template.map_or(SetValue::Constant(constant), SetValue::Filled)),
            Err(unknown) => {
                let problem = text.error(format!("`{{{unknown}}}` is no placeholder of a request header"));
                text.reject(problem.help(format!("there are {HEADER_PLACEHOLDERS}")))
            }
        }
    });
    Some((name?, value?))
}

/// Rejects a value that looks like a template of another program, which would be sent as it is.
fn reject_variable(text: &TextItem<'_>) {
    let name_of = |rest: &str| {
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(rest.len());
        rest[..end].to_owned()
    };
    let braced = text.value.match_indices('{').find_map(|(at, _)| {
        let name = name_of(&text.value[at + 1..]);
        (!name.is_empty() && text.value[at + 1 + name.len()..].starts_with('}'))
            .then(|| format!("{{{name}}}"))
    });
    let dollar = || {
        text.value.match_indices('$').find_map(|(at, _)| {
            let name = name_of(&text.value[at + 1..]);
            (name.len() > 2).then(|| format!("${name}"))
        })
    };
    let variable = if text.from_env { None } else { braced.or_else(dollar) };
    if let Some(variable) = variable {
        let problem =
            text.error(format!("`{variable}` would be sent as it is: values of headers have no variables"));
        let help = "for a redirect write respond = { redirect = \"https://{host}{path_and_query}\" }";
        text.item.reader.report(problem.help(help));
    }
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
    span: Range<usize>,
) -> bool {
    let problem = if OWN.contains(&name.as_str()) {
        Problem::error(span, format!("`{name}` can't be {verb}: tidegate writes it itself"))
    } else if direction == Direction::Request && name == HOST {
        Problem::error(span, format!("`host` can't be {verb} here"))
            .help("write rewrite = { host = \"upstream\" }, or another name instead of \"upstream\"")
    } else {
        return true;
    };
    item.reader.report(problem);
    false
}

/// The header that a key names.
pub(super) fn name(key: &Name<'_>, item: Item<'_>) -> Option<HeaderName> {
    let name = key.text.parse().ok();
    name.or_else(|| {
        item.reject(Problem::error(key.span.clone(), format!("`{}` is not a header name", key.text)))
    })
}

/// The value of a header; one from the environment is marked as a secret.
pub(super) fn value(text: &TextItem<'_>) -> Option<HeaderValue> {
    let help = "it must not contain line ends or control characters, or start or end with a space";
    let mut value = text.parsed("a header value", help, |text| {
        let value = HeaderValue::from_str(text).ok()?;
        (text.trim() == text).then_some(value)
    })?;
    value.set_sensitive(text.from_env);
    Some(value)
}

/// Reads a list; none if it is `["*"]`.
pub(super) fn all_or<T>(
    item: Item<'_>,
    read: impl Fn(Item<'_>) -> Option<T>,
) -> Result<Option<Vec<T>>, Reported> {
    let elements = item.list("put the names in brackets: [\"x-name\"]").ok_or(Reported)?;
    let all = elements.iter().find(|element| element.is_text(ALL));
    match all {
        Some(_) if elements.len() == 1 => Ok(None),
        Some(all) => {
            let problem = all.error("`*` means all of them: the other entries have no effect");
            item.reader.report(problem.help("write [\"*\"]"));
            Err(Reported)
        }
        None => {
            let read: Vec<Option<T>> = elements.into_iter().map(read).collect();
            read.into_iter().collect::<Option<_>>().map(Some).ok_or(Reported)
        }
    }
}

/// Reads a list of methods.
pub(super) fn methods(item: Item<'_>) -> Option<Vec<Method>> {
    let methods = item.list_of("put the methods in brackets: [\"GET\"]", method)?;
    if methods.is_empty() {
        let problem = item.error("no request could match: the list is empty");
        return item.reject(problem.help("name a method, or leave `methods` out for all of them"));
    }
    Some(methods)
}

/// Reads a method.
pub(super) fn method(item: Item<'_>) -> Option<Method> {
    let text = item.string()?;
    let method =
        text.parsed("a method", "such as \"GET\"", |text| Method::from_bytes(text.as_bytes()).ok())?;
    let upper = text.value.to_ascii_uppercase();
    if upper != text.value {
        let problem = text
            .error(format!("{} is not a method that clients send: methods are in upper case", text.quoted()));
        return text.reject(if text.from_env { problem } else { problem.help(format!("write \"{upper}\"")) });
    }
    Some(method)
}
