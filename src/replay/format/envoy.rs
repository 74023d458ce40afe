//! Envoy's default text format, and that of Istio, which extends it.

use std::borrow::Cow;

use super::dates::{Dates, TimeUnit, duration};
use super::request_line::{address_with_port, last_forwarded, set_request};
use super::scanner::{Scanner, present, size, status, without_backslashes};
use crate::replay::entry::{LineError, LogText, LoggedRequest};

/// `[START] "REQUEST" STATUS FLAGS RECEIVED SENT DURATION UPSTREAM-TIME "X-FORWARDED-FOR" "USER-AGENT" "REQUEST-ID"
/// "AUTHORITY" "UPSTREAM"`. Istio has three fields about the response after the flags, and further ones at the end, among
/// them the client's address. Without it the client is the last address of X-Forwarded-For.
pub(super) fn text<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    scanner.skip_byte(b'[', "a date in brackets")?;
    let start = scanner;
    let date = scanner.until(b']', "a closing bracket")?;
    let stamp = dates.rfc3339(date).ok_or_else(|| start.expected("a time of RFC 3339"))?;
    scanner.skip_spaces();
    let request = scanner.quoted("a request in quotes")?;
    let mut entry = LoggedRequest { arrival: stamp.time, second: stamp.second(), ..LoggedRequest::default() };
    entry.status = scanner.parsed("a status code", status)?;
    scanner.word("the response's flags")?;
    let is_istio = skip_response_details(&mut scanner)?;
    scanner.parsed("a number of bytes", size)?;
    entry.bytes = Some(scanner.parsed("a number of bytes", size)?);
    entry.duration =
        Some(scanner.parsed("the duration in milliseconds", |word| duration(word, TimeUnit::Millis))?);
    scanner.word("the time of the upstream server")?;
    let forwarded = present(scanner.quoted("X-Forwarded-For in quotes")?);
    entry.user_agent = present(scanner.quoted("a user agent in quotes")?);
    scanner.quoted("a request id in quotes")?;
    entry.host = present(scanner.quoted("an authority in quotes")?);
    scanner.quoted("the upstream host in quotes")?;
    set_client(&mut entry, &mut scanner, forwarded, is_istio)?;
    // The host that Envoy has found takes precedence over that of an absolute target.
    let host = entry.host.take();
    set_request(&mut entry, without_backslashes(request))?;
    entry.host = host.or(entry.host);
    Ok(entry)
}

/// Skips the fields that Istio has between the flags and the numbers of bytes; returns whether there are any.
fn skip_response_details(scanner: &mut Scanner<'_>) -> Result<bool, LineError> {
    let mut ahead = *scanner;
    let is_istio =
        size(ahead.word("a number of bytes")?).is_none() || ahead.word("bytes")?.starts_with(b"\"");
    if is_istio {
        // The text of the details may contain spaces only in the part in quotes.
        scanner.word("the details of the response")?;
        scanner.word("the details of the connection's end")?;
        scanner.quoted("the reason of the upstream's failure in quotes")?;
    }
    Ok(is_istio)
}

fn set_client<'l>(
    entry: &mut LoggedRequest<'l>,
    scanner: &mut Scanner<'l>,
    forwarded: Option<LogText<'l>>,
    is_istio: bool,
) -> Result<(), LineError> {
    if is_istio {
        scanner.word("the upstream's cluster")?;
        scanner.word("the upstream's local address")?;
        scanner.word("the downstream's local address")?;
        entry.client = address_with_port(scanner.word("the downstream's remote address")?);
    } else {
        entry.client = forwarded.as_deref().and_then(last_forwarded);
    }
    if let Some(forwarded) = forwarded {
        entry.headers.push((Cow::Borrowed(b"x-forwarded-for"), forwarded));
    }
    Ok(())
}
