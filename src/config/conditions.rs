//! The conditions of a route besides its path, and warnings of those that mean something else than they seem to: a path in the
//! pattern language of another program, which is literal text here, and a header's value that is a pattern here.

use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, COOKIE, HeaderName, IF_MATCH, IF_NONE_MATCH, PROXY_AUTHORIZATION};

use super::client_ip::network_of;
use super::geo::ReadGeo;
use super::headers;
use super::item::{Item, TextItem};
use super::report::Problem;
use super::route_keys::{ClientIpNotKeys, NotKeys, RouteKeys};
use super::table::{Name, Table};
use crate::gate::{
    AddressCondition, Country, GeoCondition, HostPattern, Networks, ValueCondition, ValuePattern,
    header_ignores_case,
};
use crate::server::ListenerSpec;
use crate::suggest::nearest;

/// The conditions of a route besides its path.
pub(super) struct Conditions {
    pub listener: Option<Box<str>>,
    pub scheme: Option<&'static str>,
    pub host: Option<HostPattern>,
    pub methods: Vec<Method>,
    pub headers: Vec<(HeaderName, ValueCondition)>,
    pub query: Vec<(Box<str>, ValueCondition)>,
    pub cookies: Vec<(Box<str>, ValueCondition)>,
    pub client_ip: Option<AddressCondition>,
    pub country: Option<GeoCondition<Country>>,
    pub asn: Option<GeoCondition<u32>>,
}

/// Reads the conditions of a route.
pub(super) fn conditions(
    table: &Table<'_, RouteKeys>,
    geo: &ReadGeo,
    listeners: Option<&[ListenerSpec]>,
) -> Option<Conditions> {
    let listener = table.listener().with(|item| listener(item, listeners));
    let scheme = table.scheme().read();
    let host = table.host().with(host);
    let methods = table.methods().with(headers::methods);
    let headers = table.headers().with(|item| headers::pairs(item, header));
    let query = table.query().with(|item| headers::pairs(item, named_value));
    let cookies = table.cookies().with(|item| headers::pairs(item, named_value));
    let client_ip = table.client_ip().with(client_ip);
    let country = table.country().with(|item| geo.country(item));
    let asn = table.asn().with(|item| geo.asn(item));
    Some(Conditions {
        listener: listener.ok()?,
        scheme: scheme.ok()?,
        host: host.ok()?,
        methods: methods.ok()?.unwrap_or_default(),
        headers: headers.ok()?.unwrap_or_default(),
        query: query.ok()?.unwrap_or_default(),
        cookies: cookies.ok()?.unwrap_or_default(),
        client_ip: client_ip.ok()?,
        country: country.ok()?,
        asn: asn.ok()?,
    })
}

/// Reads the name of a listener, which the file has.
fn listener(item: Item<'_>, listeners: Option<&[ListenerSpec]>) -> Option<Box<str>> {
    let text = item.string()?;
    // A program that uses the library has no listeners, so this route matches none of its requests.
    if let Some(listeners) = listeners.filter(|_| !item.reader.is_for_library()) {
        let names = || listeners.iter().filter_map(|spec| spec.name.as_deref());
        if names().all(|name| name != text.value) {
            let help = match nearest(&text.value, names()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "give the listener in [[listeners]] this `name`".to_owned(),
            };
            return text
                .reject(text.error(format!("unknown listener {}", text.quoted())).help(help).derived());
        }
    }
    Some(text.value.into())
}

fn host(item: Item<'_>) -> Option<HostPattern> {
    let text = item.string()?;
    text.parsed(
        "a host",
        "write it without scheme and port: \"api.example.com\" or \"*.example.com\"",
        HostPattern::parse,
    )
}

/// A condition on the address of the client.
fn client_ip(item: Item<'_>) -> Option<AddressCondition> {
    if item.is_table() {
        let table = Table::<ClientIpNotKeys>::of(item, "`client_ip`")?;
        let refused = table.not().with(networks);
        table.close();
        return refused.map(AddressCondition::NoneOf);
    }
    networks(item).map(AddressCondition::AnyOf)
}

fn networks(item: Item<'_>) -> Option<Networks> {
    let help = "put the networks in brackets: client_ip = [\"10.0.0.0/8\", \"192.0.2.7\"]";
    let networks = item.list_of(help, network_of)?;
    if networks.is_empty() {
        let problem = item.error(format!("`{}` names no network: the list is empty", item.name));
        return item.reject(problem.help("name a network, or leave the condition out"));
    }
    Some(networks.into_iter().collect())
}

/// A condition on a header.
fn header(name: &Name<'_>, item: Item<'_>) -> Option<(HeaderName, ValueCondition)> {
    let name = headers::name(name, item)?;
    let condition = condition(item, &|item| header_pattern(&name, item))?;
    Some((name, condition))
}

fn header_pattern(name: &HeaderName, item: Item<'_>) -> Option<ValuePattern> {
    let text = item.string()?;
    headers::value(&text)?;
    warn_of_header(name, &text);
    let is_secret = text.from_env || [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name);
    warn_of_regular_expression(&text, is_secret);
    let pattern = ValuePattern::parse(&text.value);
    let pattern = if header_ignores_case(name) { pattern.ignoring_case() } else { pattern };
    Some(if is_secret { pattern.secret() } else { pattern })
}

/// A condition on a query parameter or a cookie.
fn named_value(name: &Name<'_>, item: Item<'_>) -> Option<(Box<str>, ValueCondition)> {
    let pattern = |item: Item<'_>| {
        let text = item.string()?;
        warn_of_regular_expression(&text, text.from_env);
        let pattern = ValuePattern::parse(&text.value);
        Some(if text.from_env { pattern.secret() } else { pattern })
    };
    Some((name.text.into(), condition(item, &pattern)?))
}

/// Reads a pattern or a list of them, `true`, `false`, or `{ not = … }`.
fn condition(item: Item<'_>, pattern: &dyn Fn(Item<'_>) -> Option<ValuePattern>) -> Option<ValueCondition> {
    if item.is_boolean() {
        let is_present = item.boolean()?;
        return Some(if is_present { ValueCondition::Present } else { ValueCondition::Absent });
    }
    if item.is_table() {
        let table = Table::<NotKeys>::of(item, format!("`{}`", item.name))?;
        let refused = table.not().with(|item| patterns(item, pattern));
        table.close();
        return refused.map(ValueCondition::NoneOf);
    }
    patterns(item, pattern).map(ValueCondition::AnyOf)
}

/// Reads a pattern or a list of them.
fn patterns(
    item: Item<'_>,
    pattern: &dyn Fn(Item<'_>) -> Option<ValuePattern>,
) -> Option<Box<[ValuePattern]>> {
    if !item.is_array() {
        return Some([pattern(item)?].into());
    }
    let patterns = item.list_of("", pattern)?;
    if patterns.is_empty() {
        let problem = item.error(format!("`{}` names no value: the list is empty", item.name));
        return item.reject(problem.help("write true for any value, or false for none"));
    }
    Some(patterns.into())
}

const ONE_SEGMENT: &str =
    "`{name}` matches one segment, `*` any text within a segment, and a `*` at the end any rest";

/// Warns if the path of a route looks like a pattern of another program.
pub(super) fn warn_of_path(text: &TextItem<'_>) {
    let Some((why, help)) = path(&text.value) else { return };
    // Messages do not quote values from the environment.
    let why = if text.from_env { "this path is matched literally".to_owned() } else { why };
    text.item.reader.report(Problem::warning(text.item.span(), why).help(help));
}

/// The reason why hardly any request has such a path, and help.
fn path(path: &str) -> Option<(String, String)> {
    if let Some((_, query)) = path.split_once('?') {
        let help = match query.split_once('=') {
            Some((name, value)) => format!("write query = {{ \"{name}\" = \"{value}\" }}"),
            None => "write conditions on the query as query = { name = \"value\" }".to_owned(),
        };
        return Some(("no request matches: the query is not part of the path".to_owned(), help));
    }
    if path.contains('#') {
        let why = "no request matches: clients do not send the fragment of a URL".to_owned();
        return Some((why, "leave out `#` and the text after it".to_owned()));
    }
    path.split('/').find_map(segment)
}

fn segment(segment: &str) -> Option<(String, String)> {
    if let Some(name) = segment.strip_prefix(':').filter(|name| is_name(name)) {
        let why = format!("`:{name}` is matched literally: it is not a parameter");
        return Some((why, format!("write `{{{name}}}` for any segment")));
    }
    if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let (name, _) = (!is_name(name)).then(|| name.split_once([':', '<']).unwrap_or((name, "")))?;
        let help = format!("write `{{{}}}`: a parameter matches any segment", name.trim());
        return Some((format!("`{segment}` is only a name: a pattern in it has no effect"), help));
    }
    let is_quantified = |closing: char| {
        segment.match_indices(closing).any(|(at, _)| segment[at + 1..].starts_with(['+', '*', '?', '{']))
    };
    let is_regular_expression = (segment.contains('[') && segment.contains(']'))
        || is_quantified(')')
        || (segment.contains('(') && segment.contains('|') && segment.contains(')'))
        || segment.starts_with('^')
        || (segment.len() > 1 && segment.ends_with('$'))
        || segment == ".+";
    is_regular_expression.then(|| {
        let why = format!("`{segment}` is matched literally: paths have no regular expressions");
        (why, ONE_SEGMENT.to_owned())
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// Warns if a pattern is a value that clients send, since it then matches many other values too.
fn warn_of_header(name: &HeaderName, text: &TextItem<'_>) {
    let (matched, value) = match (name, &*text.value) {
        (&ACCEPT, "*/*") => ("every value with a slash", r"'\*/\*'"),
        (&IF_MATCH | &IF_NONE_MATCH, "*") => ("every value", r"'\*'"),
        _ => return,
    };
    let title = format!("`*` matches any text: this pattern matches {matched}");
    let help = format!("for the value `{}` itself write {value}", text.value);
    text.item.reader.report(Problem::warning(text.item.span(), title).help(help));
}

/// Warns if the pattern of a value is a regular expression.
fn warn_of_regular_expression(text: &TextItem<'_>, is_secret: bool) {
    let value = &*text.value;
    let parts = [".+", "(?", "\\d", "\\w", "\\s", "\\.", "]+", ")+"];
    let is_anchored = value.len() > 1 && (value.starts_with('^') || value.ends_with('$'));
    if !is_anchored && !value.starts_with(".*") && parts.iter().all(|part| !value.contains(part)) {
        return;
    }
    let title =
        "this pattern is no regular expression: `*` matches any text, and other characters themselves";
    let help = match without_anchors(value).filter(|_| !is_secret) {
        Some(pattern) => format!("write \"{pattern}\""),
        None => "such as \"Mozilla*\", \"*bot*\" or, for one of several, [\"a*\", \"b*\"]".to_owned(),
    };
    text.item.reader.report(Problem::warning(text.item.span(), title).help(help));
}

/// The pattern for a regular expression that only has anchors and `.*`.
fn without_anchors(expression: &str) -> Option<String> {
    let start = expression.strip_prefix('^');
    let end = start.unwrap_or(expression).strip_suffix('$');
    let text = end.or(start).unwrap_or(expression);
    // Another `*` repeats the character before it, and another `.` is any character.
    if text.replace(".*", "").replace("\\.", "").contains(['*', '.']) {
        return None;
    }
    let text = text.replace(".*", "*").replace("\\.", ".");
    let [before, after] = [start, end].map(|anchor| if anchor.is_some() { "" } else { "*" });
    let is_plain = !text.contains(['[', ']', '(', ')', '{', '}', '|', '+', '?', '\\', '^', '$', '"']);
    is_plain.then(|| format!("{before}{text}{after}").replace("**", "*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_other_programs_are_found() {
        for (text, why) in [
            ("/users/:id", "`:id` is matched literally: it is not a parameter"),
            ("/users/[0-9]+", "`[0-9]+` is matched literally: paths have no regular expressions"),
            ("/a/(b|c)/d", "`(b|c)` is matched literally: paths have no regular expressions"),
            ("/(ab)+", "`(ab)+` is matched literally: paths have no regular expressions"),
            ("/a$", "`a$` is matched literally: paths have no regular expressions"),
            ("/a/.+", "`.+` is matched literally: paths have no regular expressions"),
            ("/{id:[0-9]+}", "`{id:[0-9]+}` is only a name: a pattern in it has no effect"),
            ("/a?x=1", "no request matches: the query is not part of the path"),
            ("/a?", "no request matches: the query is not part of the path"),
            ("/a#b", "no request matches: clients do not send the fragment of a URL"),
        ] {
            assert_eq!(path(text).map(|(why, _)| why).as_deref(), Some(why), "{text}");
        }
    }

    #[test]
    fn simple_regular_expressions_become_patterns() {
        for (expression, pattern) in [
            ("^Mozilla.*", Some("Mozilla*")),
            ("^v1$", Some("v1")),
            (".*bot.*", Some("*bot*")),
            ("bot$", Some("*bot")),
            (r"^a\.b", Some("a.b*")),
            ("^(a|b)$", None),
            ("[0-9]+", None),
        ] {
            assert_eq!(without_anchors(expression).as_deref(), pattern, "{expression}");
        }
    }

    #[test]
    fn literal_text_is_not_a_pattern() {
        for text in [
            "/",
            "/*",
            "/a/{id}/{user-id}/*",
            "/.well-known/*",
            "/v1/items:batch",
            "/12:30",
            "/a+b",
            "/odata/$metadata",
            "/odata/Users('x')",
            "/$",
            "/a*",
            "/{größe}",
        ] {
            assert_eq!(path(text), None, "{text}");
        }
    }
}
