//! The access logs of Nginx Proxy Manager.

use super::dates::Dates;
use super::request_line::{address, set_target};
use super::scanner::{Scanner, present, size, status, without_backslashes};
use crate::replay::entry::{LineError, LoggedRequest};

/// `[DATE] CACHE UPSTREAM-STATUS STATUS - METHOD SCHEME HOST "TARGET" [Client ADDRESS] [Length BYTES] [Gzip RATIO] [Sent-to
/// SERVER] "USER-AGENT" "REFERER"`; lines of redirections have none of the fields about upstream servers. The date is that of
/// the end, as in other logs of nginx.
pub(super) fn text<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    scanner.skip_byte(b'[', "a date in brackets")?;
    let start = scanner;
    let date = scanner.until(b']', "a closing bracket")?;
    let stamp = dates.clf(date).ok_or_else(|| start.expected("a valid date"))?;
    scanner.skip_spaces();
    let mut entry = LoggedRequest { arrival: stamp.time, second: stamp.second(), ..LoggedRequest::default() };
    entry.status = response_status(&mut scanner)?;
    let method = scanner.word("the method")?;
    scanner.parsed("http or https", |word| matches!(word, b"http" | b"https").then_some(()))?;
    let host = scanner.word("the host")?;
    let target = without_backslashes(scanner.quoted("the target in quotes")?);
    entry.client = bracketed(&mut scanner, b"Client ", "[Client ADDRESS]")?.and_then(address);
    entry.bytes = bracketed(&mut scanner, b"Length ", "[Length BYTES]")?.and_then(size);
    bracketed(&mut scanner, b"Gzip ", "[Gzip RATIO]")?;
    if scanner.rest().first() == Some(&b'[') {
        bracketed(&mut scanner, b"Sent-to ", "[Sent-to SERVER]")?;
    }
    entry.user_agent = present(scanner.quoted("a user agent in quotes")?);
    entry.referer = present(scanner.quoted("a referer in quotes")?);
    entry.method = method.into();
    set_target(&mut entry, target);
    entry.host = present(host).or(entry.host);
    // nginx logs connections without a request line, too.
    if matches!(method, b"-" | b"") || entry.target.is_empty() {
        Err(LineError::NoRequest)
    } else {
        Ok(entry)
    }
}

/// The status of the response: the number before the first dash that stands alone and follows a status. What is before it has
/// dashes and commas, if several servers were asked.
fn response_status(scanner: &mut Scanner<'_>) -> Result<Option<u16>, LineError> {
    let start = *scanner;
    let mut found = None;
    while !scanner.is_end() {
        let word = scanner.word("a status code")?;
        if let Some(status) = found.filter(|_| word == b"-") {
            return Ok(status);
        }
        found = status(word).filter(|_| crate::http1::is_digits(word));
    }
    Err(start.expected("a status code and a dash"))
}

/// The text after this name in brackets; none if it is a dash.
fn bracketed<'l>(
    scanner: &mut Scanner<'l>,
    name: &[u8],
    expected: &'static str,
) -> Result<Option<&'l [u8]>, LineError> {
    let start = *scanner;
    scanner.skip_byte(b'[', expected)?;
    let text = scanner.until(b']', expected)?;
    scanner.skip_spaces();
    let value = text.strip_prefix(name).ok_or_else(|| start.expected(expected))?;
    Ok((value != b"-").then_some(value))
}
