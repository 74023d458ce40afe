//! The access logs of Application Load Balancers and Classic Load Balancers of AWS.

use std::borrow::Cow;

use super::dates::{Dates, TimeUnit, duration};
use super::request_line::{address_with_port, set_request};
use super::scanner::{Scanner, present, size, status, without_backslashes};
use crate::replay::entry::{LineError, LoggedRequest};
use crate::time::{Micros, Timestamp};

/// `TYPE TIME ELB CLIENT:PORT TARGET:PORT` and three processing times, two status codes, bytes received and sent, the
/// request and the user agent in quotes, and further fields. `TIME` is the end of the response. The arrival is
/// `request_creation_time` among the further fields; without it, the end less the processing times.
pub(super) fn text<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    scanner.parsed("http, https, h2, grpcs, ws or wss", |word| {
        matches!(word, b"http" | b"https" | b"h2" | b"grpcs" | b"ws" | b"wss").then_some(())
    })?;
    let end = scanner.parsed("a time of RFC 3339", |word| dates.rfc3339(word))?.time;
    let Exchange { mut entry, processing, request } = exchange(&mut scanner)?;
    entry.user_agent = present(scanner.quoted("a user agent in quotes")?);
    let created = further_fields(&mut entry, &mut scanner, dates)?;
    entry.arrival = created.unwrap_or(Timestamp(end.0.saturating_sub(processing.0)));
    entry.duration = Some(end.since(entry.arrival));
    set_request(&mut entry, without_backslashes(request.trim_ascii_end()))?;
    Ok(entry)
}

/// The same fields from the time on, up to the request, and perhaps the user agent and fields about TLS. The time is that of
/// the arrival.
pub(super) fn classic<'l>(line: &'l [u8], dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let mut scanner = Scanner::new(line);
    let arrival = scanner.parsed("a time of RFC 3339", |word| dates.rfc3339(word))?.time;
    let Exchange { mut entry, processing, request } = exchange(&mut scanner)?;
    if !scanner.is_end() {
        entry.user_agent = present(scanner.quoted("a user agent in quotes")?);
    }
    entry.arrival = arrival;
    entry.duration = Some(processing);
    set_request(&mut entry, without_backslashes(request.trim_ascii_end()))?;
    Ok(entry)
}

/// The fields that both have.
struct Exchange<'l> {
    entry: LoggedRequest<'l>,
    /// The sum of the processing times.
    processing: Micros,
    request: &'l [u8],
}

fn exchange<'l>(scanner: &mut Scanner<'l>) -> Result<Exchange<'l>, LineError> {
    scanner.word("the load balancer")?;
    let client = address_with_port(scanner.word("the client's address and port")?);
    scanner.word("the target's address and port")?;
    let mut processing = Micros::ZERO;
    for _ in 0..3 {
        // -1 means that the request did not get this far.
        let took = scanner.parsed("a processing time in seconds", |word| {
            if matches!(word, b"-1" | b"-") { Some(Micros::ZERO) } else { duration(word, TimeUnit::Seconds) }
        })?;
        processing.0 = processing.0.saturating_add(took.0);
    }
    let mut entry = LoggedRequest { client, ..LoggedRequest::default() };
    entry.status = scanner.parsed("a status code", status)?;
    scanner.parsed("the target's status code", status)?;
    scanner.parsed("a number of bytes", size)?;
    entry.bytes = Some(scanner.parsed("a number of bytes", size)?);
    let request = scanner.quoted("a request in quotes")?;
    Ok(Exchange { entry, processing, request })
}

/// Adds the id of the trace, which is a request header; returns the time when the request was created. Old logs end earlier.
fn further_fields<'l>(
    entry: &mut LoggedRequest<'l>,
    scanner: &mut Scanner<'l>,
    dates: &mut Dates,
) -> Result<Option<Timestamp>, LineError> {
    if scanner.is_end() {
        return Ok(None);
    }
    scanner.word("the cipher")?;
    scanner.word("the version of TLS")?;
    scanner.word("the target group")?;
    if let Some(trace) = present(scanner.quoted("a trace id in quotes")?) {
        entry.headers.push((Cow::Borrowed(b"x-amzn-trace-id"), trace));
    }
    if scanner.is_end() {
        return Ok(None);
    }
    scanner.quoted("a domain name in quotes")?;
    scanner.quoted("a certificate in quotes")?;
    if scanner.is_end() {
        return Ok(None);
    }
    scanner.word("the priority of the rule")?;
    let created = scanner.parsed("the time of the request's creation", |word| dates.rfc3339(word))?;
    Ok(Some(created.time))
}
