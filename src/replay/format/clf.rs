//! The Common Log Format of Apache httpd, and the formats that extend it: nginx's and Apache's combined, with the virtual
//! host in front or further fields at the end, and Traefik's.

use std::borrow::Cow;

use memchr::memchr;

use super::dates::{Dates, LogTime, TimeUnit, duration, is_like_clf};
use super::request_line::{address, set_request};
use super::scanner::{Scanner, present, size, status, without_backslashes};
use crate::replay::entry::{LineError, LoggedRequest};

/// The most bytes of a date and its closing bracket. Without a bound, a name of many brackets would take quadratic time.
const MAX_DATE: usize = 64;

/// `CLIENT IDENT USER [DATE] "REQUEST" STATUS BYTES`, then perhaps further fields.
pub(super) fn common<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let mut entry = start(&mut scanner, dates)?;
    further_fields(&mut entry, &mut scanner)?;
    has_request(entry)
}

/// The common format with `"REFERER" "USER-AGENT"` after it, then perhaps further fields.
pub(super) fn combined<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let mut entry = start(&mut scanner, dates)?;
    referer_and_agent(&mut entry, &mut scanner)?;
    further_fields(&mut entry, &mut scanner)?;
    has_request(entry)
}

/// The combined format with `HOST:PORT` before it. The name is that of Apache's configuration (`%v`), so it is the host
/// only of those requests that asked for this name.
pub(super) fn vhost_combined<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let host = scanner.parsed("the name of the virtual host and its port", |word| {
        let colon = memchr::memrchr(b':', word)?;
        let is_port = crate::http1::is_digits(&word[colon + 1..]);
        (is_port && address(word).is_none()).then_some(&word[..colon])
    })?;
    let mut entry = start(&mut scanner, dates)?;
    referer_and_agent(&mut entry, &mut scanner)?;
    further_fields(&mut entry, &mut scanner)?;
    entry.host.get_or_insert(Cow::Borrowed(host));
    has_request(entry)
}

/// Traefik's: the combined format with `REQUESTS "ROUTER" "SERVER" DURATIONms` after it. The date is that of the arrival.
pub(super) fn traefik<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let mut entry = start(&mut scanner, dates)?;
    referer_and_agent(&mut entry, &mut scanner)?;
    scanner.parsed("the number of requests since Traefik started", size)?;
    scanner.quoted("the router in quotes")?;
    scanner.quoted("the URL of the server in quotes")?;
    let took = scanner.parsed("the duration, such as 12ms", |word| {
        word.strip_suffix(b"ms").and_then(|millis| duration(millis, TimeUnit::Millis))
    })?;
    entry.duration = Some(took);
    has_request(entry)
}

/// The fields of the common format. A line without a valid request has an empty method, so that errors in what follows
/// are found first.
fn start<'l>(scanner: &mut Scanner<'l>, dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let client = client(scanner)?;
    let (user, stamp) = user_and_date(scanner, dates)?;
    let mut entry = LoggedRequest {
        arrival: stamp.time,
        second: stamp.second(),
        client: address(client),
        user: present(user),
        ..LoggedRequest::default()
    };
    let request = request_text(scanner)?;
    match set_request(&mut entry, without_backslashes(request)) {
        Ok(()) | Err(LineError::NoRequest) => {}
        Err(error) => return Err(error),
    }
    entry.status = scanner.parsed("a status code", status)?;
    entry.bytes = Some(scanner.parsed("a number of bytes", size)?);
    if entry.client.is_none() {
        entry.fields.push((Cow::Borrowed("client"), Cow::Borrowed(client)));
    }
    Ok(entry)
}

/// The first word: an address, or a name if Apache looks names up. A name before an address is that of a virtual host.
fn client<'l>(scanner: &mut Scanner<'l>) -> Result<&'l [u8], LineError> {
    let start = *scanner;
    let client = scanner.word("the client's address")?;
    let mut ahead = *scanner;
    if address(client).is_none() && ahead.word("a name").ok().and_then(address).is_some() {
        return Err(start.expected("the client's address"));
    }
    Ok(client)
}

/// The user and the date before the request. The name of a user may contain spaces, brackets and even dates, but no quotes
/// without an escape, so the first date before a quote counts.
fn user_and_date<'l>(scanner: &mut Scanner<'l>, dates: &mut Dates) -> Result<(&'l [u8], LogTime), LineError> {
    let start = scanner.rest();
    let (mut found, mut invalid) = (None, None);
    let (names, stamp, date) = loop {
        if let Err(error) = scanner.until(b'[', "a date in brackets") {
            break found.ok_or(invalid.unwrap_or(error))?;
        }
        let names = &start[..start.len() - scanner.rest().len() - 1];
        let rest = scanner.rest();
        if let Some(end) = memchr(b']', &rest[..rest.len().min(MAX_DATE)])
            && let Some(stamp) = dates.clf(&rest[..end])
        {
            let mut date = *scanner;
            date.skip(end + 1);
            date.skip_spaces();
            if date.rest().first() == Some(&b'"') {
                break (names, stamp, date);
            }
            found.get_or_insert((names, stamp, date));
        } else if is_like_clf(rest) {
            invalid.get_or_insert(scanner.expected("a valid date"));
        }
    };
    *scanner = date;
    let names = names.trim_ascii_end();
    // The first name is that of identd.
    let user = names.iter().position(|byte| *byte == b' ').map_or(&b""[..], |space| &names[space + 1..]);
    Ok((user, stamp))
}

/// The request line in quotes. Quotes in it may be without escapes, as Traefik logs them, so it ends before a status.
fn request_text<'l>(scanner: &mut Scanner<'l>) -> Result<&'l [u8], LineError> {
    let has_status = |after: &[u8]| {
        let word = after.split(|byte| *byte == b' ').next().unwrap_or_default();
        status(word).is_some()
    };
    let mut next = *scanner;
    let text = next.quoted("a request in quotes")?;
    if has_status(next.rest()) {
        *scanner = next;
        return Ok(text);
    }
    let rest = &scanner.rest()[1..];
    let mut ends = memchr::memmem::find_iter(rest, b"\" ");
    let Some(end) = ends.find(|end| has_status(&rest[end + 2..])) else {
        return Err(next.expected("a status code"));
    };
    scanner.skip(1 + end + 2);
    Ok(&rest[..end])
}

fn referer_and_agent<'l>(entry: &mut LoggedRequest<'l>, scanner: &mut Scanner<'l>) -> Result<(), LineError> {
    entry.referer = present(scanner.quoted("a referer in quotes")?);
    entry.user_agent = present(scanner.quoted("a user agent in quotes")?);
    Ok(())
}

/// Adds what a log has after the fields of its format: `name=value` under its name, others as `extra1`, `extra2`, …
fn further_fields<'l>(entry: &mut LoggedRequest<'l>, scanner: &mut Scanner<'l>) -> Result<(), LineError> {
    for index in 1.. {
        let field = match scanner.rest().first() {
            None => break,
            Some(b'"') => (extra(index), without_backslashes(scanner.quoted("a text in quotes")?)),
            Some(_) => further_word(scanner, index)?,
        };
        entry.fields.push(field);
    }
    Ok(())
}

/// A further field without quotes around it, though perhaps around its value.
fn further_word<'l>(
    scanner: &mut Scanner<'l>,
    index: usize,
) -> Result<(Cow<'l, str>, Cow<'l, [u8]>), LineError> {
    let word = *scanner;
    let text = scanner.word("a field")?;
    let name = text.iter().position(|byte| *byte == b'=').and_then(|end| str::from_utf8(&text[..end]).ok());
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok((extra(index), Cow::Borrowed(text)));
    };
    let value = &text[name.len() + 1..];
    if value.first() != Some(&b'"') {
        return Ok((Cow::Borrowed(name), Cow::Borrowed(value)));
    }
    *scanner = word;
    scanner.skip(name.len() + 1);
    Ok((Cow::Borrowed(name), without_backslashes(scanner.quoted("a text in quotes")?)))
}

fn extra(index: usize) -> Cow<'static, str> {
    match index {
        1 => Cow::Borrowed("extra1"),
        2 => Cow::Borrowed("extra2"),
        3 => Cow::Borrowed("extra3"),
        _ => Cow::Owned(format!("extra{index}")),
    }
}

fn has_request(entry: LoggedRequest<'_>) -> Result<LoggedRequest<'_>, LineError> {
    if entry.method.is_empty() { Err(LineError::NoRequest) } else { Ok(entry) }
}
