//! tidegate's own access log as text.

use std::borrow::Cow;

use memchr::memchr;

use super::dates::{Dates, TimeUnit, duration};
use super::request_line::address;
use super::scanner::{Scanner, number, status, without_backslashes};
use crate::replay::entry::{LineError, LoggedRequest};

/// `TIME CLIENT "METHOD HOST+TARGET" STATUS BYTESB TOOKus`, then `name="value"`.
pub(super) fn text<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let stamp = scanner.parsed("a time of RFC 3339", |word| dates.rfc3339(word))?;
    let client = scanner.parsed("the client's address", address)?;
    let start = scanner;
    let request = without_backslashes(scanner.quoted("a request in quotes")?);
    let blank = memchr(b' ', &request).filter(|blank| *blank > 0);
    let blank = blank.ok_or_else(|| start.expected("a method, a host and a target"))?;
    let (host, target) = host_and_target(&request[blank + 1..]);
    let mut entry = LoggedRequest {
        arrival: stamp.time,
        second: stamp.second(),
        client: Some(client),
        method: Cow::Owned(request[..blank].to_vec()),
        target: Cow::Owned(without_cut_mark(target).to_vec()),
        host: (!host.is_empty()).then(|| Cow::Owned(host.to_vec())),
        ..LoggedRequest::default()
    };
    entry.status = scanner.parsed("a status code", status)?;
    entry.bytes =
        Some(scanner.parsed("bytes, such as 244B", |word| word.strip_suffix(b"B").and_then(number))?);
    let took = scanner.parsed("a duration, such as 87us", |word| {
        word.strip_suffix(b"us").and_then(|micros| duration(micros, TimeUnit::Micros))
    })?;
    entry.duration = Some(took);
    while !scanner.is_end() {
        named_value(&mut entry, &mut scanner)?;
    }
    Ok(entry)
}

/// An entry of our JSON lines, without the mark of a target that was cut.
pub(super) fn with_whole_target(mut entry: LoggedRequest<'_>) -> LoggedRequest<'_> {
    if entry.target.ends_with(b" bytes)") {
        entry.target = match entry.target {
            Cow::Borrowed(target) => Cow::Borrowed(without_cut_mark(target)),
            Cow::Owned(target) => Cow::Owned(without_cut_mark(&target).to_vec()),
        };
    }
    entry
}

/// A target that our log has cut ends with `…(30000 bytes)`. What is before that is at least the path in most cases.
fn without_cut_mark(target: &[u8]) -> &[u8] {
    memchr::memmem::rfind(target, "…(".as_bytes()).map_or(target, |end| &target[..end])
}

/// The host, which may be empty, and the target, which begins with a slash or is `*`, absolute or an authority.
fn host_and_target(text: &[u8]) -> (&[u8], &[u8]) {
    let slash = memchr(b'/', text).unwrap_or(text.len().saturating_sub(1));
    let before = &text[..slash];
    let schemes = [&b"http:"[..], b"https:"];
    let scheme = schemes.into_iter().find(|scheme| before.ends_with(scheme)).map_or(0, <[u8]>::len);
    text.split_at(slash - scheme)
}

fn named_value<'l>(entry: &mut LoggedRequest<'l>, scanner: &mut Scanner<'l>) -> Result<(), LineError> {
    let start = *scanner;
    let name = str::from_utf8(scanner.until(b'=', "name=value")?).map_err(|_| start.expected("a name"))?;
    let value = without_backslashes(scanner.quoted("a value in quotes")?);
    match name {
        "protocol" => entry.protocol = Some(value),
        "consumer" => entry.consumer = Some(value),
        "headers.user-agent" => entry.user_agent = Some(value),
        "headers.referer" => entry.referer = Some(value),
        "key" | "denied_by" | "shadow_denied_by" | "route" => entry.fields.push((Cow::Borrowed(name), value)),
        // The units of limits that settle costs.
        _ if name.starts_with("cost.") || name.starts_with("reserved.") => {
            entry.fields.push((Cow::Borrowed(name), value));
        }
        _ => {
            if let Some(header) = name.strip_prefix("headers.") {
                entry.headers.push((Cow::Borrowed(header.as_bytes()), value));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_end_where_targets_begin() {
        for (text, host, target) in [
            ("api.example.com/a?b", "api.example.com", "/a?b"),
            ("api.example.com:8080/", "api.example.com:8080", "/"),
            ("/a", "", "/a"),
            ("a.example*", "a.example", "*"),
            ("a.examplehttp://b.example/x", "a.example", "http://b.example/x"),
            ("", "", ""),
        ] {
            assert_eq!(host_and_target(text.as_bytes()), (host.as_bytes(), target.as_bytes()), "{text}");
        }
    }
}
