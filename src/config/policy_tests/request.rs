//! The request of a test.

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::spec::TestRequest;
use crate::config::item::Item;
use crate::config::keys::keys;
use crate::config::keys::kinds::words;
use crate::config::loaded::Config;
use crate::config::report::Problem;
use crate::config::table::{Table, entries};
use crate::suggest::nearest;

/// Whole numbers that JSON can have exactly.
const MAX_CLAIM: u64 = 1 << 53;
/// The largest number of units that a limit counts.
const MAX_UNITS: u64 = 1 << 53;

words!(SchemeWords: &'static str = [("http", "http"), ("https", "https")]);

keys! {
    /// The keys of `request`.
    RequestKeys [own table] {
        /// The method
        method: Text = "GET" => method;
        /// The host that it names
        host: Text = "localhost" => header_value;
        /// The path, and the query if there is one
        path: Text, required "/login" => path;
        /// `"http"` or `"https"`
        scheme: Choice<SchemeWords>, or "that of the `listener`, or of the only one";
        /// Further headers; several of one name are an array
        headers: NamedTable<Either<Text, List<Text>>> => headers;
        /// The body; a form, unless a header has another Content-Type
        body: Text => text;
        /// The address that sends it. Of a trusted proxy, the address of the client is in the headers
        client: Text = "192.0.2.1" => address;
        /// The subject of the certificate that the client has
        tls_subject: Text => text;
        /// The subject alternative name of that certificate, as `tls:san` counts it
        tls_san: Text => text;
        /// The name of the listener that receives it
        listener: Text => |item| listener(item, config);
        /// Its consumer, by name, whatever credential it has
        consumer: Text => |item| consumer(item, config);
        /// The claims of its token, as if a valid token had them
        claims: NamedTable<Either<Text, Either<Integer<0, MAX_CLAIM>, Boolean>>> => |item| claims(item, config);
        /// The status of the upstream's response, for limits with `charge_on`
        upstream_status: Integer<200, 599, StatusCode> = 200;
        /// The units that the upstream's response costs each limit which settles its cost; without it they keep their
        /// estimate
        settle: Integer<0, MAX_UNITS> => |item| settle(item, config);
        /// How long the request takes, for limits of the algorithm `concurrency`
        duration: Duration<ZERO, DAY> = "0s";
    }
    reads TestRequest(table, config: Option<&Config>)
}

/// Reads a request; `owner` is the test or the step that has it.
pub(super) fn request(item: Item<'_>, owner: &str, config: Option<&Config>) -> Option<TestRequest> {
    let table = Table::<RequestKeys>::of(item, format!("the request of {owner}"))?;
    let read = RequestKeys::read(&table, config);
    table.close();
    read
}

/// A string.
pub(super) fn text(item: Item<'_>) -> Option<String> {
    Some(item.string()?.value)
}

fn method(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "such as \"GET\"";
    text.parsed("a method", help, |text| Some(Method::from_bytes(text.as_bytes()).ok()?.to_string()))
}

fn path(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "such as \"/login\" or \"/search?q=1\"; the host is a key of its own";
    text.parsed("a path", help, |text| {
        let is_path = text.starts_with('/') || text == "*";
        (is_path && text.parse::<http::Uri>().is_ok()).then(|| text.to_owned())
    })
}

fn address(item: Item<'_>) -> Option<std::net::IpAddr> {
    let text = item.string()?;
    text.parsed("an address", "such as \"192.0.2.1\" or \"2001:db8::1\"", |text| text.parse().ok())
}

fn headers(item: Item<'_>) -> Option<Vec<(String, String)>> {
    let mut headers = Vec::new();
    let mut is_valid = true;
    for (name, item) in entries(item)? {
        let is_known = name.text.parse::<HeaderName>().is_ok_and(|name| name != http::header::HOST);
        if !is_known {
            let title = format!("`{}` is not a header that can be given here", name.text);
            let problem = Problem::error(name.span.clone(), title);
            let help = if name.text.eq_ignore_ascii_case("host") {
                "write host = \"api.example.com\" beside the headers"
            } else {
                "such as headers = { x-api-key = \"k-4711\" }"
            };
            item.reader.report(problem.help(help));
            is_valid = false;
        }
        let values = if item.is_array() {
            item.list_of("", header_value)
        } else {
            header_value(item).map(|one| vec![one])
        };
        match values {
            Some(values) => headers.extend(values.into_iter().map(|value| (name.text.to_owned(), value))),
            None => is_valid = false,
        }
    }
    is_valid.then_some(headers)
}

fn header_value(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "it has no control characters, and none but those of ASCII";
    text.parsed("the value of a header", help, |text| {
        HeaderValue::from_str(text).is_ok().then(|| text.to_owned())
    })
}

/// The name of a listener of the configuration, if that is valid.
fn listener(item: Item<'_>, config: Option<&Config>) -> Option<String> {
    let text = item.string()?;
    let names =
        || config.iter().flat_map(|config| config.listeners.iter().filter_map(|spec| spec.name.as_deref()));
    if config.is_some() && !names().any(|name| name == text.value) {
        let problem = text.unknown("listener");
        return text.reject(match nearest(&text.value, names()) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help("give one of the [[listeners]] this `name`"),
        });
    }
    Some(text.value)
}

/// The units that a response costs, if a limit of the configuration settles its cost.
fn settle(item: Item<'_>, config: Option<&Config>) -> Option<u64> {
    let settles = |config: &Config| config.snapshot.gate.limits().any(|(_, policy)| policy.settles());
    if config.is_some_and(|config| !settles(config)) {
        let problem = item.error("no limit of the configuration settles its cost by the response");
        return item
            .reject(problem.help("leave `settle` out, or give a limit a cost such as \"llm_tokens\""));
    }
    item.integer(&(0..=MAX_UNITS))
}

fn consumer(item: Item<'_>, config: Option<&Config>) -> Option<String> {
    let text = item.string()?;
    let Some(config) = config else { return Some(text.value) };
    let Some(rules) = &config.snapshot.gate.consumers else {
        return text.reject(text.error("the configuration has no [consumers]").help("leave `consumer` out"));
    };
    match rules.named(&text.value) {
        Ok(_) => Some(text.value),
        Err(_) if rules.stored.is_some() => {
            let problem =
                text.error("this consumer is not in the file of consumers, and tests read none from Redis");
            text.reject(problem.help("add one for tests to the `file` of [consumers]"))
        }
        Err(error) => text.reject(text.error(error)),
    }
}

/// Names and values of claims, as text.
fn claims(item: Item<'_>, config: Option<&Config>) -> Option<Vec<(String, String)>> {
    if config.is_some_and(|config| config.snapshot.gate.jwt.is_none()) {
        let problem = item.error("the configuration has no [jwt], so nothing reads claims");
        return item.reject(problem.help("leave `claims` out"));
    }
    let claim = |item: Item<'_>| {
        if item.is_boolean() {
            return item.boolean().map(|truth| truth.to_string());
        }
        if item.is_integer() {
            return item.integer(&(0..=MAX_CLAIM)).map(|number| number.to_string());
        }
        let help = "a member of an object is named with a dot: \"realm.name\" = \"a\"";
        item.string_like("a string, a whole number, true or false", help).map(|text| text.value)
    };
    let read: Vec<_> =
        entries(item)?.into_iter().map(|(name, item)| Some((name.text.to_owned(), claim(item)?))).collect();
    read.into_iter().collect()
}
