//! The log of `HAProxy` with `option httplog`.

use std::borrow::Cow;

use memchr::memchr;

use super::dates::Dates;
use super::request_line::{address_with_port, set_request, set_target};
use super::scanner::{Scanner, number, size, status, without_hashes};
use crate::replay::entry::{LineError, LoggedRequest};
use crate::time::Micros;

/// `CLIENT:PORT [DATE] FRONTEND BACKEND/SERVER TR/Tw/Tc/Tr/Ta STATUS BYTES …`, connections, queues, captured headers in
/// braces, and the request in quotes. The date is that of the first byte, or of the connection in old versions; a request
/// arrives when its head is complete, which is the first timer later.
pub(super) fn http<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let client = scanner.word("the client's address and port")?;
    scanner.skip_byte(b'[', "a date in brackets")?;
    let start = scanner;
    let date = scanner.until(b']', "a closing bracket")?;
    let stamp = dates.clf(date).ok_or_else(|| start.expected("a valid date"))?;
    scanner.skip_spaces();
    scanner.word("the frontend")?;
    scanner.parsed("the backend and the server", |word| word.contains(&b'/').then_some(()))?;
    let (head, total) = scanner.parsed("timers, such as 10/0/30/69/109", timers)?;
    let mut entry = LoggedRequest {
        arrival: stamp.time.after(head),
        second: stamp.second(),
        client: address_with_port(client),
        duration: Some(Micros(total.0.saturating_sub(head.0))),
        ..LoggedRequest::default()
    };
    entry.status =
        scanner.parsed("a status code", |word| if word == b"-1" { Some(None) } else { status(word) })?;
    entry.bytes =
        Some(scanner.parsed("a number of bytes", |word| size(word.strip_prefix(b"+").unwrap_or(word)))?);
    skip_cookies(&mut scanner)?;
    scanner.word("the state of the session")?;
    scanner.word("the numbers of connections")?;
    scanner.word("the lengths of queues")?;
    for side in ["req", "res"] {
        captured(&mut entry, &mut scanner, side)?;
    }
    scanner.skip_byte(b'"', "a request in quotes")?;
    let rest = scanner.rest();
    match memchr(b'"', rest) {
        Some(end) => set_request(&mut entry, without_hashes(&rest[..end]))?,
        None => set_cut_request(&mut entry, rest)?,
    }
    Ok(entry)
}

/// Skips the captured cookies. `HAProxy` does not escape the spaces in them, so they end where the session begins.
fn skip_cookies(scanner: &mut Scanner<'_>) -> Result<(), LineError> {
    scanner.word("a captured cookie")?;
    scanner.word("a captured cookie")?;
    let mut ahead = *scanner;
    while !ahead.is_end() {
        if is_session(ahead) {
            *scanner = ahead;
            break;
        }
        ahead.word("the state of the session")?;
    }
    Ok(())
}

/// Whether the state of the session comes next, before five numbers of connections and two lengths of queues.
fn is_session(mut scanner: Scanner<'_>) -> bool {
    let mut word = || scanner.word("a field").unwrap_or_default();
    let has_numbers = |word: &[u8], count| {
        let is_number = |part: &[u8]| crate::http1::is_digits(part.strip_prefix(b"+").unwrap_or(part));
        let mut parts = word.split(|byte| *byte == b'/');
        parts.clone().count() == count && parts.all(is_number)
    };
    word().len() == 4 && has_numbers(word(), 5) && has_numbers(word(), 2)
}

/// Sets the request of a line that is cut because it is longer than `log … len`, 1024 bytes by default.
fn set_cut_request<'l>(entry: &mut LoggedRequest<'l>, rest: &'l [u8]) -> Result<(), LineError> {
    let space = memchr(b' ', rest).filter(|space| *space > 0).ok_or(LineError::NoRequest)?;
    entry.method = Cow::Borrowed(&rest[..space]);
    set_target(entry, without_hashes(&rest[space + 1..]));
    Ok(())
}

/// The time until the head of the request was complete, and the total time. A timer of -1 did not end.
fn timers(word: &[u8]) -> Option<(Micros, Micros)> {
    let mut timers = word.split(|byte| *byte == b'/').map(timer);
    let (head, total) = (timers.next()??, timers.nth(3)??);
    timers.next().is_none().then_some((head, total))
}

/// With `option logasap` the last timer has a plus sign.
fn timer(text: &[u8]) -> Option<Micros> {
    let millis = if text == b"-1" { 0 } else { number(text.strip_prefix(b"+").unwrap_or(text))? };
    Some(Micros(millis.saturating_mul(1_000)))
}

/// Adds captured headers, which have no names in the log, as `capture.req.0`, …
fn captured<'l>(
    entry: &mut LoggedRequest<'l>,
    scanner: &mut Scanner<'l>,
    side: &str,
) -> Result<(), LineError> {
    if scanner.rest().first() != Some(&b'{') {
        return Ok(());
    }
    scanner.skip(1);
    let values = scanner.until(b'}', "a closing brace")?;
    scanner.skip_spaces();
    for (index, value) in values.split(|byte| *byte == b'|').enumerate() {
        if !value.is_empty() {
            entry.fields.push((Cow::Owned(format!("capture.{side}.{index}")), without_hashes(value)));
        }
    }
    Ok(())
}
