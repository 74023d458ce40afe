//! `[cors]`, and `cors` of a route.

use std::sync::Arc;

use http::HeaderValue;
use http::header::{HOST, HeaderName, ORIGIN, USER_AGENT};

use super::headers;
use super::item::{Item, TextItem};
use super::keys::keys;
use super::keys::kinds::{OffWords, Words as _};
use super::report::Problem;
use super::table::{Reported, Table};
use crate::gate::{Route, RouteTable, host_of};
use crate::http1::parse_decimal;
use crate::id_vec::IdVec;
use crate::proxy::{CorsPolicy, CorsRules, OriginPattern, Origins};

keys! {
    /// The keys of `[cors]`.
    CorsKeys {
        /// The origins whose pages may read responses: `"https://app.example.com"`, `"https://*.example.com"` for
        /// all its subdomains, or `"*"` for all origins
        origins: List<Text>, required ["https://app.example.com"];
        /// The methods that pages may use besides GET, HEAD and POST; `["*"]` for all
        methods: List<Text> = ["PUT", "PATCH", "DELETE"];
        /// The request headers that pages may set, such as `["content-type", "x-api-key"]`; `["*"]` for all
        headers: List<Text> = ["*"];
        /// The response headers that pages may read; `["*"]` for all, unless `credentials` is `true`
        expose_headers: List<Text> = ["retry-after", "x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-warning", "ratelimit", "ratelimit-policy"];
        /// Whether pages may send cookies, HTTP authentication and client certificates with requests
        credentials: Boolean = false;
        /// How long a browser may keep the response to a preflight
        max_age: Duration<ZERO, DAY> = "10m";
    }
}

/// Which CORS policy a route has.
pub(super) enum RouteCors {
    /// The policy of `[cors]`.
    Inherited,
    /// None: the upstream does what it does.
    Off,
    /// A policy of the route itself.
    Own(CorsPolicy),
}

/// Reads `cors` of a route.
pub(super) fn route_cors(item: Option<Item<'_>>) -> Option<RouteCors> {
    match item {
        None => Some(RouteCors::Inherited),
        Some(item) if item.is_table() => cors(item, "`cors`").map(RouteCors::Own),
        Some(item) => item
            .choice_or_table(OffWords::MEANINGS, "cors = { origins = [\"https://app.example.com\"] }")
            .map(|()| RouteCors::Off),
    }
}

/// Reads a table of CORS settings; `label` is its name in messages.
pub(super) fn cors(item: Item<'_>, label: &str) -> Option<CorsPolicy> {
    let table = Table::<CorsKeys>::of(item, label)?;
    let credentials = table.credentials().read();
    let origins = table.origins().with(|item| origins(item, credentials == Some(true)));
    let methods = headers::all_or(table.methods().item(), headers::method);
    let names = headers::all_or(table.headers().item(), header_name);
    let exposed = headers::all_or(table.expose_headers().item(), header_name);
    let exposed = exposed.and_then(|names| exposed_value(&table, names, credentials == Some(true)));
    let max_age = table.max_age().read();
    table.close();
    Some(CorsPolicy {
        origins: origins?,
        methods: methods.ok()?,
        headers: names.ok()?.map(|names| list_value(&names)),
        expose_headers: exposed.ok()?,
        credentials: credentials?,
        max_age: HeaderValue::from(max_age?.as_secs()),
    })
}

fn header_name(item: Item<'_>) -> Option<HeaderName> {
    item.string()?.parsed("a header name", "", |text| text.parse().ok())
}

/// The value of a header that is a list of names.
fn list_value(names: &[HeaderName]) -> HeaderValue {
    let names: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    // Names have no characters that values may not have.
    HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""))
}

/// The value of Access-Control-Expose-Headers, if it is sent.
fn exposed_value(
    table: &Table<'_, CorsKeys>,
    names: Option<Vec<HeaderName>>,
    has_credentials: bool,
) -> Result<Option<HeaderValue>, Reported> {
    match names {
        None if has_credentials => {
            let title = "`expose_headers` can't be `*` with `credentials`: browsers do not accept that";
            let problem = table.expose_headers().item().error(title);
            table.reader.report(problem.help("name the headers that pages read"));
            Err(Reported)
        }
        None => Ok(Some(HeaderValue::from_static(headers::ALL))),
        Some(names) => Ok((!names.is_empty()).then(|| list_value(&names))),
    }
}

fn origins(item: Item<'_>, has_credentials: bool) -> Option<Origins> {
    let elements = item.list("put the origins in brackets: [\"https://app.example.com\"]")?;
    let any = elements.iter().find(|element| element.is_text(headers::ALL));
    if elements.is_empty() {
        let problem = item.error("no page could read a response: the list is empty");
        return item.reject(problem.help("name an origin, or write cors = \"off\" in the routes"));
    }
    let patterns: Vec<Option<OriginPattern>> = elements
        .iter()
        .filter(|element| !element.is_text(headers::ALL))
        .map(|element| origin(*element))
        .collect();
    if let Some(any) = any.filter(|_| has_credentials) {
        let problem = any.error("`*` can't be an origin with `credentials`: browsers do not accept that");
        return any.reject(problem.help("name the origins, such as \"https://*.example.com\""));
    }
    if let Some(any) = any.filter(|_| elements.len() > 1) {
        let problem = Problem::warning(any.span(), "`*` means all origins: the other entries have no effect");
        item.reader.report(problem);
    }
    let patterns: Option<Vec<OriginPattern>> = patterns.into_iter().collect();
    patterns.map(|patterns| if any.is_some() { Origins::Any } else { Origins::Listed(patterns) })
}

/// Reads an origin in the form in which browsers send it.
fn origin(item: Item<'_>) -> Option<OriginPattern> {
    let text = item.string()?;
    let Some((scheme, authority)) = text.value.split_once("://").filter(|(scheme, _)| is_scheme(scheme))
    else {
        let problem = text.error(format!("{} is not an origin", text.quoted()));
        return text.reject(if text.value == "null" {
            problem.help("it is sent by sandboxed pages of any site: name the origins of your own pages")
        } else {
            problem.help("write it with its scheme: \"https://app.example.com\"")
        });
    };
    if let Some((before, _)) = authority.split_once(['/', '?', '#']) {
        let problem =
            text.error(format!("{} has a path: an origin is scheme, host and port only", text.quoted()));
        let help = format!("write \"{scheme}://{before}\"");
        return text.reject(if text.from_env { problem } else { problem.help(help) });
    }
    let scheme = scheme.to_ascii_lowercase();
    let (host, is_suffix) = match authority.strip_prefix("*.") {
        Some(suffix) => (suffix, true),
        None => (authority, false),
    };
    let host = normal_authority(&scheme, host);
    let Some(host) = host else { return wrong_host(&text) };
    let prefix = format!("{scheme}://");
    Some(if is_suffix {
        OriginPattern::Subdomains { prefix: prefix.into(), suffix: format!(".{host}").into() }
    } else {
        OriginPattern::Exact((prefix + &host).into())
    })
}

fn wrong_host<T>(text: &TextItem<'_>) -> Option<T> {
    let problem = text.error(format!("{} does not name a host", text.quoted()));
    text.reject(problem.help(
        "write \"https://app.example.com\", or \"https://*.example.com\" for all subdomains; names with other \
         letters than ASCII in their form with xn--",
    ))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// The host and the port, without the default port of the scheme.
fn normal_authority(scheme: &str, authority: &str) -> Option<String> {
    let host = host_of(authority)?;
    let rest = authority.get(host.len()..).filter(|rest| rest.is_empty() || rest.starts_with(':'))?;
    let default = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    match rest.strip_prefix(':') {
        None => Some(host.into_owned()),
        Some(digits) => {
            let port = parse_decimal(digits.as_bytes())?;
            Some(if Some(port) == default { host.into_owned() } else { format!("{host}:{port}") })
        }
    }
}

/// The policies of all routes; none if no route has one.
pub(super) fn rules(
    default: Option<CorsPolicy>,
    routes: Vec<RouteCors>,
    table: &[Route],
) -> Option<Box<CorsRules>> {
    let default = default.map(Arc::new);
    let of_route = |cors| match cors {
        RouteCors::Inherited => default.clone(),
        RouteCors::Off => None,
        RouteCors::Own(policy) => Some(Arc::new(policy)),
    };
    let routes: IdVec<_, _> = routes.into_iter().map(of_route).collect();
    if default.is_none() && routes.iter().all(Option::is_none) {
        return None;
    }
    let has_conditions = table.iter().any(|route| !route.headers.is_empty() || !route.cookies.is_empty());
    let preflight_routes =
        has_conditions.then(|| RouteTable::new(table.iter().map(for_preflights).collect()));
    Some(Box::new(CorsRules { default, routes, preflight_routes }))
}

/// The route as preflights see it: without the conditions that they ignore.
pub(super) fn for_preflights(route: &Route) -> Route {
    let mut route = Route { cookies: Vec::new(), ..route.clone() };
    // The only ones that a preflight has as the request itself.
    route.headers.retain(|(name, _)| [HOST, ORIGIN, USER_AGENT].contains(name));
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_have_no_default_port() {
        for (scheme, authority, normal) in [
            ("https", "App.Example.com", Some("app.example.com")),
            ("https", "a.test:443", Some("a.test")),
            ("http", "a.test:443", Some("a.test:443")),
            ("http", "[::1]:080", Some("[::1]")),
            ("tauri", "localhost", Some("localhost")),
            ("https", "a.test.", None),
            ("https", "a.test:", None),
            ("https", "a@b", None),
            ("https", "*.a.*", None),
            ("https", "", None),
        ] {
            assert_eq!(normal_authority(scheme, authority).as_deref(), normal, "{scheme}://{authority}");
        }
    }
}
