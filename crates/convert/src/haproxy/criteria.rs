//! The tests of ACLs: `path_beg /api`, `hdr(host) -i a.test`, `sc_http_req_rate(0) gt 10`.

use crate::model::{Condition, ConditionKind, Test};
use crate::nginx::literal;

/// Why a counter that must not be above 0 has no limit.
const DENIES_ALL: &str = "it denies every request";

/// The part of a request that a single test compares, with the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Criterion {
    /// Path patterns of routes.
    Path(Vec<String>),
    /// Hosts of routes.
    Host(Vec<String>),
    Method(Vec<String>),
    Value(Condition),
    /// Networks of clients.
    Source(Vec<String>),
    /// A counter of a stick table is greater than this number.
    Counter(StickCounter, u64),
    /// A test that can't be converted.
    Other(Unconverted),
}

/// A test that can't be converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unconverted {
    pub reason: String,
    /// Whether it compares a counter of a stick table, so that the rule is a limit, which some requests are within.
    pub is_counter: bool,
}

/// A counter of a stick table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StickCounter {
    /// Such as `http_req_rate`.
    pub name: String,
    /// The number of the sticky counter; none for a lookup by address.
    pub slot: Option<u8>,
    /// The table, if it is named.
    pub table: Option<String>,
}

/// A test, which may be negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub is_negated: bool,
    pub criterion: Criterion,
}

impl Criterion {
    /// A test that can't be converted, and that compares no counter.
    pub fn other(reason: impl Into<String>) -> Self {
        Self::Other(Unconverted { reason: reason.into(), is_counter: false })
    }

    /// Whether it compares a counter of a stick table.
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Counter(..) | Self::Other(Unconverted { is_counter: true, .. }))
    }
}

/// A criterion with its flags and values; `None` if it always holds.
pub(super) fn criterion(words: &[String]) -> Option<Criterion> {
    let [fetch, values @ ..] = words else { return Some(Criterion::other("a criterion is missing")) };
    if fetch == "always_true" {
        return None;
    }
    let found = parsed(fetch, values).unwrap_or_else(|reason| {
        // A limit of 0 is no limit, but denies all requests.
        let is_counter = names_counter(fetch) && reason != DENIES_ALL;
        Criterion::Other(Unconverted { reason, is_counter })
    });
    Some(found)
}

/// Whether a sample is a counter of a stick table, such as `sc0_conn_cur`, `src_conn_rate` or `src,table_gpc0(t)`.
fn names_counter(fetch: &str) -> bool {
    let slot = fetch.strip_prefix("sc").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let is_of_source = fetch.starts_with("src_") && !fetch.starts_with("src_is_local");
    slot.is_some_and(|rest| rest.starts_with('_')) || is_of_source || fetch.contains(",table_")
}

fn parsed(fetch: &str, values: &[String]) -> Result<Criterion, String> {
    let (fetch, converters) = without_converters(fetch);
    if !matches!(converters, "" | "lower") {
        return Err(format!("the converter `{converters}` has no counterpart"));
    }
    let mut method = "";
    let mut rest: Vec<&str> = Vec::new();
    let mut flags = values.iter().map(String::as_str);
    let mut is_value = false;
    while let Some(word) = flags.next() {
        match word {
            "-i" if !is_value && (fetch.starts_with("path") || fetch.starts_with("url")) => {
                return Err("paths are case-sensitive in tidegate".to_owned());
            }
            "-i" | "-n" if !is_value => {}
            "-m" if !is_value => method = flags.next().unwrap_or(""),
            "-f" | "-M" if !is_value => return Err("values in a file have no counterpart".to_owned()),
            "--" if !is_value => is_value = true,
            _ => {
                is_value = true;
                rest.push(word);
            }
        }
    }
    fetched(fetch, method, &rest)
}

/// A sample without its converters, and these.
pub(super) fn without_converters(sample: &str) -> (&str, &str) {
    let end = sample.find(')').unwrap_or(0);
    let comma = sample[end..].find(',').map(|comma| end + comma);
    comma.map_or((sample, ""), |comma| (&sample[..comma], &sample[comma + 1..]))
}

/// The criterion of a sample fetch with its values.
fn fetched(fetch: &str, method: &str, values: &[&str]) -> Result<Criterion, String> {
    let (name, argument) = match fetch.split_once('(') {
        Some((name, argument)) => (name, argument.trim_end_matches(')')),
        None => (fetch, ""),
    };
    let owned = || values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    if let Some(counter) = counter(name, argument) {
        let number = threshold(values)?;
        if number == 0 && matches!(&*counter.name, "http_req_rate" | "http_req_cnt" | "conn_cur") {
            return Err(DENIES_ALL.to_owned());
        }
        return Ok(Criterion::Counter(counter, number));
    }
    match name {
        "src" => Ok(Criterion::Source(owned())),
        "method" => Ok(Criterion::Method(owned())),
        "path" | "path_beg" | "path_dir" | "path_end" | "path_sub" | "path_reg" => {
            let kind = name.strip_prefix("path_").unwrap_or(if method.is_empty() { "str" } else { method });
            let paths = values.iter().map(|value| path(kind, value)).collect::<Result<Vec<_>, _>>()?;
            Ok(Criterion::Path(paths.concat()))
        }
        "url_param" | "urlp" => value(ConditionKind::Query, argument, method, values),
        "req.cook" | "cook" => value(ConditionKind::Cookie, argument, method, values),
        _ => {
            let (base, suffix) = name.rsplit_once('_').unwrap_or((name, ""));
            let (base, method) = match base {
                "hdr" | "req.hdr" | "req.fhdr" if method.is_empty() && !suffix.is_empty() => (base, suffix),
                _ => (name, method),
            };
            if !matches!(base, "hdr" | "req.hdr" | "req.fhdr") {
                return Err(format!("`{fetch}` has no counterpart in the conditions of routes"));
            }
            let header = argument.split(',').next().unwrap_or("").to_ascii_lowercase();
            if header == "host" {
                host(method, values)
            } else {
                value(ConditionKind::Header, &header, method, values)
            }
        }
    }
}

/// A counter of a stick table, such as `sc_http_req_rate(0)`, `sc0_conn_cur` or `src_http_err_rate`.
fn counter(name: &str, argument: &str) -> Option<StickCounter> {
    let mut arguments = argument.split(',').map(str::trim).filter(|text| !text.is_empty());
    let known = |name: &str| {
        matches!(name, "http_req_rate" | "http_err_rate" | "conn_cur" | "conn_rate" | "http_req_cnt")
    };
    let (counter, slot) = if let Some(counter) = name.strip_prefix("sc_") {
        (counter, Some(arguments.next()?.parse().ok()?))
    } else if let Some(counter) = name.strip_prefix("src_") {
        (counter, None)
    } else {
        let rest = name.strip_prefix("sc")?;
        let (slot, counter) = rest.split_once('_')?;
        (counter, Some(slot.parse().ok()?))
    };
    known(counter).then(|| StickCounter {
        name: counter.to_owned(),
        slot,
        table: arguments.next().map(str::to_owned),
    })
}

/// The number that a counter must exceed.
fn threshold(values: &[&str]) -> Result<u64, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
    match values {
        ["gt", value] => number(value),
        ["ge", value] => number(value)?.checked_sub(1).ok_or_else(|| DENIES_ALL.to_owned()),
        _ => Err(format!("counters are compared by `gt` and `ge`, not by `{}`", values.join(" "))),
    }
}

/// The patterns of a path.
fn path(kind: &str, value: &str) -> Result<Vec<String>, String> {
    if !value.starts_with('/') || value.contains(['*', '{', '}']) {
        return Err(format!("a route's path can't be compared with `{value}` in this way"));
    }
    match kind {
        "str" => Ok(vec![value.to_owned()]),
        "beg" => Ok(vec![format!("{value}*")]),
        "dir" => {
            let base = value.trim_end_matches('/');
            Ok(vec![base.to_owned(), format!("{base}/*")])
        }
        _ => Err("a route's path is compared as a whole or by its beginning".to_owned()),
    }
}

fn host(method: &str, values: &[&str]) -> Result<Criterion, String> {
    let host = |value: &&str| {
        let is_host = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        match method {
            "" | "str" if is_host => Ok(value.to_ascii_lowercase()),
            "end" if is_host && value.starts_with('.') => Ok(format!("*{}", value.to_ascii_lowercase())),
            _ => Err("the host of a route is a name, or `*.` and a name".to_owned()),
        }
    };
    values.iter().map(host).collect::<Result<_, _>>().map(Criterion::Host)
}

fn value(kind: ConditionKind, name: &str, method: &str, values: &[&str]) -> Result<Criterion, String> {
    if name.is_empty() || values.is_empty() && method != "found" {
        return Err("a test of a value needs its name and a value to compare with".to_owned());
    }
    let pattern = |value: &&str| {
        let text = literal(value);
        match method {
            "" | "str" => Ok(text),
            "beg" => Ok(format!("{text}*")),
            "end" => Ok(format!("*{text}")),
            "sub" => Ok(format!("*{text}*")),
            _ => Err(format!("values can't be compared by `-m {method}`")),
        }
    };
    let test = match method {
        "found" => Test::Present(true),
        _ => Test::Any(values.iter().map(pattern).collect::<Result<_, _>>()?),
    };
    Ok(Criterion::Value(Condition { kind, name: name.to_owned(), test }))
}
