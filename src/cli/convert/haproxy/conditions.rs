//! ACLs and conditions: `if A !B || { path_beg /api }`.

use std::collections::HashMap;

use super::sections::{Line, Section};
use crate::cli::convert::model::{Condition, ConditionKind, Test};
use crate::cli::convert::nginx::literal;

/// What a single test compares.
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
    Counter(Counter, u64),
}

/// A counter of a stick table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
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

/// Tests that must all hold.
pub(super) type Conjunction = Vec<Term>;

/// The named ACLs of a section.
pub(super) struct Acls<'s>(HashMap<&'s str, Vec<&'s [String]>>);

impl<'s> Acls<'s> {
    pub fn of(section: &'s Section) -> Self {
        let mut acls: HashMap<&str, Vec<&[String]>> = HashMap::new();
        for line in section.find(&["acl"]).filter(|line| line.words.len() > 2) {
            acls.entry(line.word(1)).or_default().push(&line.words[2..]);
        }
        Self(acls)
    }

    /// The condition at the end of a line: alternatives, of which one must hold. A line without one has one without tests.
    ///
    /// # Errors
    /// Why it can't be converted.
    pub fn condition(&self, line: &Line) -> Result<Vec<Conjunction>, String> {
        let start = line.words.iter().position(|word| word == "if" || word == "unless");
        let Some(start) = start else { return Ok(vec![Vec::new()]) };
        let mut alternatives: Vec<Conjunction> = vec![Vec::new()];
        let mut words = line.words[start + 1..].iter().map(String::as_str);
        let mut is_negated = false;
        while let Some(word) = words.next() {
            let word = match word {
                "||" | "or" => {
                    alternatives.push(Vec::new());
                    continue;
                }
                "!" => {
                    is_negated = !is_negated;
                    continue;
                }
                _ => word,
            };
            let name = word.strip_prefix('!').unwrap_or(word);
            is_negated ^= name.len() < word.len();
            let found = if name == "{" {
                let inner: Vec<String> =
                    words.by_ref().take_while(|word| *word != "}").map(str::to_owned).collect();
                criterion(&inner)?
            } else {
                self.named(name)?
            };
            let last = alternatives.last_mut().ok_or("a condition is missing")?;
            last.extend(found.map(|criterion| Term { is_negated, criterion }));
            is_negated = false;
        }
        if line.words[start] == "unless" {
            alternatives = negated(&alternatives)?;
        }
        Ok(alternatives)
    }

    /// A named ACL; `None` if it always holds.
    fn named(&self, name: &str) -> Result<Option<Criterion>, String> {
        let method = |name: &str| Ok(Some(Criterion::Method(vec![name.to_owned()])));
        let Some(lines) = self.0.get(name) else {
            return match name {
                "TRUE" | "HTTP" => Ok(None),
                "METH_GET" => method("GET"),
                "METH_POST" => method("POST"),
                "METH_DELETE" => method("DELETE"),
                "METH_PUT" => method("PUT"),
                _ => Err(format!("there is no ACL `{name}` in this section")),
            };
        };
        let mut found: Option<Criterion> = None;
        for words in lines {
            let next = criterion(words)?;
            found = match (found, next) {
                (None, next) => next,
                (Some(Criterion::Path(mut a)), Some(Criterion::Path(b))) => {
                    a.extend(b);
                    Some(Criterion::Path(a))
                }
                (Some(Criterion::Host(mut a)), Some(Criterion::Host(b))) => {
                    a.extend(b);
                    Some(Criterion::Host(a))
                }
                (Some(Criterion::Source(mut a)), Some(Criterion::Source(b))) => {
                    a.extend(b);
                    Some(Criterion::Source(a))
                }
                _ => return Err(format!("the lines of the ACL `{name}` compare different things")),
            };
        }
        Ok(found)
    }
}

/// The negation of alternatives with a single test each, or of one conjunction with a single test.
fn negated(alternatives: &[Conjunction]) -> Result<Vec<Conjunction>, String> {
    let mut all = Vec::new();
    for alternative in alternatives {
        let [term] = &alternative[..] else {
            return Err("`unless` with several tests".to_owned());
        };
        all.push(Term { is_negated: !term.is_negated, criterion: term.criterion.clone() });
    }
    Ok(vec![all])
}

/// A criterion with its flags and values; `None` if it always holds.
fn criterion(words: &[String]) -> Result<Option<Criterion>, String> {
    let [fetch, values @ ..] = words else { return Err("a criterion is missing".to_owned()) };
    if fetch == "always_true" {
        return Ok(None);
    }
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
    fetched(fetch, method, &rest).map(Some)
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
        return threshold(values).map(|number| Criterion::Counter(counter, number));
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
fn counter(name: &str, argument: &str) -> Option<Counter> {
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
    known(counter).then(|| Counter {
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
        ["ge", value] => number(value)?.checked_sub(1).ok_or_else(|| "it denies every request".to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Conjunction>, String> {
        let text = format!("frontend f\n  acl api path_beg /api/ /v1\n  acl api path /v2\n  {text}\n");
        let section = super::super::sections::sections("f", &text).unwrap().remove(0);
        Acls::of(&section).condition(section.lines.last().unwrap())
    }

    #[test]
    fn conditions_are_alternatives_of_tests() {
        let paths = ["/api/*", "/v1*", "/v2"].map(str::to_owned).to_vec();
        let api = |is_negated| Term { is_negated, criterion: Criterion::Path(paths.clone()) };
        let counter = Counter { name: "http_req_rate".to_owned(), slot: Some(0), table: None };
        let rate = Term { is_negated: false, criterion: Criterion::Counter(counter, 9) };
        let deny = "http-request deny";
        assert_eq!(parsed(deny), Ok(vec![vec![]]));
        assert_eq!(parsed(&format!("{deny} if api")), Ok(vec![vec![api(false)]]));
        assert_eq!(parsed(&format!("{deny} unless api")), Ok(vec![vec![api(true)]]));
        let both = format!("{deny} if !api {{ sc_http_req_rate(0) ge 10 }} || api");
        assert_eq!(parsed(&both), Ok(vec![vec![api(true), rate], vec![api(false)]]));
        for wrong in
            ["if nothing", "if { path_reg ^/a }", "if { src -f list }", "if { ssl_fc }", "unless api api"]
        {
            assert!(parsed(&format!("{deny} {wrong}")).is_err(), "{wrong}");
        }
    }
}
