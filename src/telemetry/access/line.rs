//! Formats lines of the access log, in one pass into a buffer and without allocating.

use std::cell::Cell;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, UNIX_EPOCH};

use super::record::{AccessRecord, Forwarding, LimitNote, LoggedCost, TextRange};
use crate::telemetry::escape::{self, is_plain};
use crate::time::{Micros, Timestamp};

/// A time in RFC 3339 with microseconds: `2026-09-21T14:13:20.000000Z`.
type Time = [u8; 27];

thread_local! {
    /// The last second that was formatted, since the Unix epoch, and its text: most lines of a worker share the second
    /// of the line before, so only the microseconds are formatted anew.
    static SECOND: Cell<(u64, Time)> = const { Cell::new((u64::MAX, [b'0'; 27])) };
}

/// Appends texts of a record, escaped if necessary.
struct Texts<'r> {
    record: &'r AccessRecord,
    /// Whether no text of the record needs escaping: they are checked together, once.
    is_plain: bool,
}

/// Appends a record as a JSON object.
pub(super) fn push_json(line: &mut Vec<u8>, record: &AccessRecord) {
    let texts = Texts::of(record);
    push_json_request(line, record, &texts);
    push_json_outcome(line, record, &texts);
    push_json_forwarding(line, &record.forwarding);
    if !record.costs.is_empty() {
        push_json_costs(line, &record.costs, &texts);
    }
    push_json_headers(line, record, &texts);
    line.push(b'}');
}

/// Appends the fields that every record has. The last string is left open: the next field closes it.
fn push_json_request(line: &mut Vec<u8>, record: &AccessRecord, texts: &Texts<'_>) {
    line.extend_from_slice(b"{\"time\":\"");
    push_time(line, record.time);
    line.extend_from_slice(b"\",\"client\":\"");
    push_address(line, record.client);
    line.extend_from_slice(b"\",\"method\":\"");
    texts.push(line, record.method);
    line.extend_from_slice(b"\",\"host\":\"");
    texts.push(line, record.host);
    line.extend_from_slice(b"\",\"target\":\"");
    texts.push(line, record.target);
    line.extend_from_slice(b"\",\"status\":");
    line.extend_from_slice(&record.status_digits());
    line.extend_from_slice(b",\"bytes\":");
    push_number(line, record.bytes);
    line.extend_from_slice(b",\"took_us\":");
    push_number(line, Micros::from(record.took).0);
    line.extend_from_slice(b",\"request_id\":\"");
    texts.push(line, record.request_id);
}

/// Appends the trace, the route, the consumer, the limits that denied the request, the error and the protocol, whose string is left open.
fn push_json_outcome(line: &mut Vec<u8>, record: &AccessRecord, texts: &Texts<'_>) {
    texts.push_named(line, b"\",\"trace_id\":\"", record.trace_id);
    if let Some(interface) = record.interface {
        line.extend_from_slice(b"\",\"interface\":\"");
        line.extend_from_slice(interface.as_bytes());
    }
    push_json_descriptors(line, record, texts);
    texts.push_named(line, b"\",\"route\":\"", record.route);
    texts.push_named(line, b"\",\"consumer\":\"", record.consumer);
    texts.push_named(line, b"\",\"denied_by\":\"", record.denied_by);
    texts.push_named(line, b"\",\"key\":\"", record.key);
    if let Some(error) = record.error {
        line.extend_from_slice(b"\",\"error\":\"");
        line.extend_from_slice(error.as_bytes());
    }
    line.push(b'"');
    texts.push_notes(line, &record.notes, [b",\"", b"\":[\"", b"\",\"", b"\"]"]);
    line.extend_from_slice(b",\"protocol\":\"");
    line.extend_from_slice(record.protocol.as_bytes());
}

/// Appends what is logged of descriptors. The last string is left open.
fn push_json_descriptors(line: &mut Vec<u8>, record: &AccessRecord, texts: &Texts<'_>) {
    if let Some(outcome) = record.outcome {
        line.extend_from_slice(b"\",\"outcome\":\"");
        line.extend_from_slice(outcome.as_bytes());
    }
    texts.push_named(line, b"\",\"domain\":\"", record.domain);
    texts.push_named(line, b"\",\"descriptor\":\"", record.descriptor);
}

/// Closes the open string, and appends where the request was forwarded to.
fn push_json_forwarding(line: &mut Vec<u8>, forwarding: &Forwarding) {
    if let Some(upstream) = &forwarding.upstream {
        line.extend_from_slice(b"\",\"upstream\":\"");
        push_label(line, upstream);
    }
    if let Some(server) = &forwarding.server {
        line.extend_from_slice(b"\",\"server\":\"");
        push_label(line, server);
    }
    if let Some(class) = forwarding.class {
        line.extend_from_slice(b"\",\"class\":\"");
        line.extend_from_slice(class.name().as_bytes());
    }
    line.push(b'"');
    if let Some(upstream) = forwarding.upstream.as_ref().filter(|_| forwarding.is_above_limit) {
        line.extend_from_slice(b",\"shadow_refused_by\":[\"");
        push_label(line, upstream);
        line.extend_from_slice(b"\"]");
    }
    for (name, number) in numbers(forwarding) {
        line.extend_from_slice(b",\"");
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"\":");
        push_number(line, number);
    }
}

/// The numbers of a forwarded request, with the names of their fields.
fn numbers(forwarding: &Forwarding) -> impl Iterator<Item = (&'static str, u64)> {
    let micros = |time: Option<Duration>| time.map(|time| Micros::from(time).0);
    let attempts = (forwarding.attempts > 1).then_some(forwarding.attempts.into());
    let (queued, head_took) = (micros(forwarding.queued), micros(forwarding.head_took));
    let all = [("queue_us", queued), ("attempts", attempts), ("upstream_us", head_took)];
    all.into_iter().filter_map(|(name, number)| Some((name, number?)))
}

/// A number of units of each limit that has one, with the name of the field.
type Units = (&'static str, fn(&LoggedCost) -> Option<u64>);

/// What was charged, and what was reserved.
const UNITS: [Units; 2] = [("cost", |cost| cost.charged), ("reserved", |cost| Some(cost.reserved))];

/// Appends what limits have charged and reserved, as an object each.
#[cold]
fn push_json_costs(line: &mut Vec<u8>, costs: &[LoggedCost], texts: &Texts<'_>) {
    for (field, units) in UNITS {
        let mut begin: &[u8] = b"{";
        for cost in costs {
            let Some(units) = units(cost) else { continue };
            if begin == b"{" {
                line.extend_from_slice(b",\"");
                line.extend_from_slice(field.as_bytes());
                line.extend_from_slice(b"\":");
            }
            line.extend_from_slice(begin);
            line.push(b'"');
            texts.push(line, cost.limit);
            line.extend_from_slice(b"\":");
            push_number(line, units);
            begin = b",";
        }
        if begin == b"," {
            line.push(b'}');
        }
    }
}

/// Appends what limits have charged and reserved. The last text is left open.
#[cold]
fn push_text_costs(line: &mut Vec<u8>, costs: &[LoggedCost], texts: &Texts<'_>) {
    for (field, units) in UNITS {
        for cost in costs {
            let Some(units) = units(cost) else { continue };
            line.extend_from_slice(b"\" ");
            line.extend_from_slice(field.as_bytes());
            line.push(b'.');
            texts.push(line, cost.limit);
            line.extend_from_slice(b"=\"");
            push_number(line, units);
        }
    }
}

/// Appends the logged headers of the request as an object.
fn push_json_headers(line: &mut Vec<u8>, record: &AccessRecord, texts: &Texts<'_>) {
    for (index, (name, value)) in record.headers.iter().enumerate() {
        line.extend_from_slice(if index == 0 { b",\"headers\":{\"" } else { b",\"" });
        texts.push(line, *name);
        line.extend_from_slice(b"\":\"");
        texts.push(line, *value);
        line.push(b'"');
    }
    if !record.headers.is_empty() {
        line.push(b'}');
    }
}

/// Appends a record as one line of text: the fields that every record has by position, the others as `name="value"`. All texts
/// are in quotes: without them one could imitate other fields.
pub(super) fn push_text(line: &mut Vec<u8>, record: &AccessRecord) {
    let texts = Texts::of(record);
    push_text_request(line, record, &texts);
    push_text_outcome(line, record, &texts);
    push_text_forwarding(line, &record.forwarding);
    if !record.costs.is_empty() {
        push_text_costs(line, &record.costs, &texts);
    }
    for (name, value) in &record.headers {
        line.extend_from_slice(b"\" headers.");
        texts.push(line, *name);
        line.extend_from_slice(b"=\"");
        texts.push(line, *value);
    }
    line.push(b'"');
}

/// Appends the fields that every record has. The last text is left open: the next field closes it.
fn push_text_request(line: &mut Vec<u8>, record: &AccessRecord, texts: &Texts<'_>) {
    push_time(line, record.time);
    line.push(b' ');
    push_address(line, record.client);
    line.extend_from_slice(b" \"");
    texts.push(line, record.method);
    line.push(b' ');
    texts.push(line, record.host);
    texts.push(line, record.target);
    line.extend_from_slice(b"\" ");
    line.extend_from_slice(&record.status_digits());
    line.push(b' ');
    push_number(line, record.bytes);
    line.extend_from_slice(b"B ");
    push_number(line, Micros::from(record.took).0);
    line.extend_from_slice(b"us request_id=\"");
    texts.push(line, record.request_id);
}

/// Closes the open text, and appends what became of the request. The last text is left open.
fn push_text_outcome(line: &mut Vec<u8>, record: &AccessRecord, texts: &Texts<'_>) {
    texts.push_named(line, b"\" trace_id=\"", record.trace_id);
    if let Some(interface) = record.interface {
        line.extend_from_slice(b"\" interface=\"");
        line.extend_from_slice(interface.as_bytes());
    }
    if let Some(outcome) = record.outcome {
        line.extend_from_slice(b"\" outcome=\"");
        line.extend_from_slice(outcome.as_bytes());
    }
    texts.push_named(line, b"\" domain=\"", record.domain);
    texts.push_named(line, b"\" descriptor=\"", record.descriptor);
    texts.push_named(line, b"\" route=\"", record.route);
    texts.push_named(line, b"\" consumer=\"", record.consumer);
    texts.push_named(line, b"\" denied_by=\"", record.denied_by);
    texts.push_named(line, b"\" key=\"", record.key);
    if let Some(error) = record.error {
        line.extend_from_slice(b"\" error=\"");
        line.extend_from_slice(error.as_bytes());
    }
    texts.push_notes(line, &record.notes, [b"\" ", b"=\"", b",", b""]);
    line.extend_from_slice(b"\" protocol=\"");
    line.extend_from_slice(record.protocol.as_bytes());
}

/// Closes the open text, and appends where the request was forwarded to. The last text is left open.
fn push_text_forwarding(line: &mut Vec<u8>, forwarding: &Forwarding) {
    if let Some(upstream) = &forwarding.upstream {
        line.extend_from_slice(b"\" upstream=\"");
        push_label(line, upstream);
    }
    if let Some(server) = &forwarding.server {
        line.extend_from_slice(b"\" server=\"");
        push_label(line, server);
    }
    if let Some(class) = forwarding.class {
        line.extend_from_slice(b"\" class=\"");
        line.extend_from_slice(class.name().as_bytes());
    }
    if let Some(upstream) = forwarding.upstream.as_ref().filter(|_| forwarding.is_above_limit) {
        line.extend_from_slice(b"\" shadow_refused_by=\"");
        push_label(line, upstream);
    }
    for (name, number) in numbers(forwarding) {
        line.extend_from_slice(b"\" ");
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"=\"");
        push_number(line, number);
    }
}

impl<'r> Texts<'r> {
    fn of(record: &'r AccessRecord) -> Self {
        Self { record, is_plain: is_plain(record.all_texts()) }
    }

    fn push(&self, line: &mut Vec<u8>, span: TextRange) {
        let text = self.record.text(span);
        if self.is_plain {
            line.extend_from_slice(text);
        } else {
            escape::push_json(line, text);
        }
    }

    /// Appends a text after its name, if the record has it.
    fn push_named(&self, line: &mut Vec<u8>, name: &[u8], span: Option<TextRange>) {
        if let Some(span) = span {
            line.extend_from_slice(name);
            self.push(line, span);
        }
    }

    /// Appends the limits of each kind of note; `marks` are written before the name of the kind, before the first limit, between
    /// limits, and after the last one.
    fn push_notes(&self, line: &mut Vec<u8>, notes: &[(LimitNote, TextRange)], marks: [&[u8]; 4]) {
        if notes.is_empty() {
            return;
        }
        let [begin, first, between, end] = marks;
        for (kind, name) in LimitNote::ALL {
            let own = notes.iter().filter(|(note, _)| *note == kind);
            for (index, (_, limit)) in own.clone().enumerate() {
                if index == 0 {
                    line.extend_from_slice(begin);
                    line.extend_from_slice(name.as_bytes());
                }
                line.extend_from_slice(if index == 0 { first } else { between });
                self.push(line, *limit);
            }
            if own.count() > 0 {
                line.extend_from_slice(end);
            }
        }
    }
}

/// Appends the label of an upstream or a server, which is not among the record's texts.
fn push_label(line: &mut Vec<u8>, text: &str) {
    let text = text.as_bytes();
    if is_plain(text) {
        line.extend_from_slice(text);
    } else {
        escape::push_json(line, text);
    }
}

fn push_number(line: &mut Vec<u8>, number: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(line, address),
        // Writing to memory can't fail.
        IpAddr::V6(address) => drop(write!(line, "{address}")),
    }
}

/// For each octet of an IPv4 address: its digits with a trailing dot, and their length.
const OCTETS: [([u8; 4], usize); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut octet = 0_u8;
    loop {
        let digits = [b'0' + octet / 100, b'0' + octet / 10 % 10, b'0' + octet % 10];
        octets[octet as usize] = match octet {
            0..10 => ([digits[2], b'.', 0, 0], 2),
            10..100 => ([digits[1], digits[2], b'.', 0], 3),
            100.. => ([digits[0], digits[1], digits[2], b'.'], 4),
        };
        if octet == u8::MAX {
            break octets;
        }
        octet += 1;
    }
};

/// Formatted from a table, because `Display` takes as long as half of the line.
fn push_ipv4(line: &mut Vec<u8>, address: Ipv4Addr) {
    let (mut text, mut end) = ([0; 16], 0);
    for octet in address.octets() {
        let (digits, length) = &OCTETS[usize::from(octet)];
        text[end..end + 4].copy_from_slice(digits);
        end += length;
    }
    // The last octet has no dot.
    line.extend_from_slice(&text[..end - 1]);
}

fn push_time(line: &mut Vec<u8>, time: Timestamp) {
    let (second, micros) = (time.0 / 1_000_000, time.0 % 1_000_000);
    let (cached, mut formatted) = SECOND.get();
    if cached != second {
        formatted = format_second(second);
        SECOND.set((second, formatted));
    }
    let digit = |unit: u64| b"0123456789"[(micros / unit % 10) as usize];
    let digits = [digit(100_000), digit(10_000), digit(1_000), digit(100), digit(10), digit(1)];
    formatted[20..26].copy_from_slice(&digits);
    line.extend_from_slice(&formatted);
}

/// Formats the start of a second since the Unix epoch. Years beyond 9999 are shown as the end of 9999.
fn format_second(second: u64) -> Time {
    let time = UNIX_EPOCH + Duration::from_secs(second.min(253_402_300_799));
    let text = humantime::format_rfc3339_micros(time).to_string();
    text.as_bytes().first_chunk().copied().unwrap_or([b'0'; 27])
}
