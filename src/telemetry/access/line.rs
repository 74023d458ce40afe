//! The lines of the access log, formatted in one pass into a buffer.

use std::cell::Cell;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, UNIX_EPOCH};

use super::record::{Record, Span};
use crate::telemetry::escape::{is_plain, push_escaped, push_json};
use crate::time::{Micros, Timestamp};

/// A time to the millisecond, as in RFC 3339: `2026-09-21T14:13:20.000Z`.
type Time = [u8; 24];

thread_local! {
    /// A second since the Unix epoch, and how it is formatted: most lines of a worker have the same as the one before.
    static SECOND: Cell<(u64, Time)> = const { Cell::new((u64::MAX, [b'0'; 24])) };
}

/// Appends texts, escaped.
struct Texts<'r> {
    record: &'r Record,
    /// Whether no text of the record needs escaping.
    is_plain: bool,
    escape: fn(&mut Vec<u8>, &[u8]),
}

impl Record {
    /// Appends the record as a JSON object.
    pub fn push_json(&self, line: &mut Vec<u8>) {
        let texts = Texts::of(self, push_json);
        line.extend_from_slice(b"{\"time\":\"");
        push_time(line, self.time);
        line.extend_from_slice(b"\",\"client\":\"");
        push_address(line, self.client);
        line.extend_from_slice(b"\",\"method\":\"");
        texts.push(line, self.method);
        line.extend_from_slice(b"\",\"host\":\"");
        texts.push(line, self.host);
        line.extend_from_slice(b"\",\"target\":\"");
        texts.push(line, self.target);
        line.extend_from_slice(b"\",\"status\":");
        line.extend_from_slice(&self.status_digits());
        line.extend_from_slice(b",\"bytes\":");
        push_number(line, self.bytes);
        line.extend_from_slice(b",\"took_us\":");
        push_number(line, Micros::from(self.took).0);
        line.extend_from_slice(b",\"request_id\":\"");
        texts.push(line, self.request_id);
        if let Some(route) = self.route {
            line.extend_from_slice(b"\",\"route\":\"");
            texts.push(line, route);
        }
        if let Some(limit) = self.denied_by {
            line.extend_from_slice(b"\",\"denied_by\":\"");
            texts.push(line, limit);
        }
        if let Some(error) = self.error {
            line.extend_from_slice(b"\",\"error\":\"");
            line.extend_from_slice(error.as_bytes());
        }
        if self.shadow_denied_by.is_empty() {
            line.extend_from_slice(b"\",\"protocol\":\"");
        } else {
            line.extend_from_slice(b"\",\"shadow_denied_by\":[\"");
            texts.join(line, &self.shadow_denied_by, b"\",\"");
            line.extend_from_slice(b"\"],\"protocol\":\"");
        }
        line.extend_from_slice(self.protocol.as_bytes());
        let forwarding = &self.forwarding;
        if let Some(upstream) = &forwarding.upstream {
            line.extend_from_slice(b"\",\"upstream\":\"");
            texts.push_other(line, upstream);
        }
        if let Some(server) = &forwarding.server {
            line.extend_from_slice(b"\",\"server\":\"");
            texts.push_other(line, server);
        }
        line.push(b'"');
        if forwarding.attempts > 1 {
            line.extend_from_slice(b",\"attempts\":");
            push_number(line, forwarding.attempts.into());
        }
        if let Some(took) = forwarding.head_took {
            line.extend_from_slice(b",\"upstream_us\":");
            push_number(line, Micros::from(took).0);
        }
        line.push(b'}');
    }

    /// Appends the record as text.
    pub fn push_text(&self, line: &mut Vec<u8>) {
        let texts = Texts::of(self, push_escaped);
        push_time(line, self.time);
        line.push(b' ');
        push_address(line, self.client);
        line.push(b' ');
        texts.push(line, self.method);
        line.push(b' ');
        texts.push(line, self.host);
        texts.push(line, self.target);
        line.push(b' ');
        line.extend_from_slice(&self.status_digits());
        line.push(b' ');
        push_number(line, self.bytes);
        line.extend_from_slice(b"B ");
        push_number(line, Micros::from(self.took).0);
        line.extend_from_slice(b"us request_id=");
        texts.push(line, self.request_id);
        if let Some(route) = self.route {
            line.extend_from_slice(b" route=");
            texts.push(line, route);
        }
        if let Some(limit) = self.denied_by {
            line.extend_from_slice(b" denied_by=");
            texts.push(line, limit);
        }
        if let Some(error) = self.error {
            line.extend_from_slice(b" error=");
            line.extend_from_slice(error.as_bytes());
        }
        if !self.shadow_denied_by.is_empty() {
            line.extend_from_slice(b" shadow_denied_by=");
            texts.join(line, &self.shadow_denied_by, b",");
        }
        line.extend_from_slice(b" protocol=");
        line.extend_from_slice(self.protocol.as_bytes());
        let forwarding = &self.forwarding;
        if let Some(upstream) = &forwarding.upstream {
            line.extend_from_slice(b" upstream=");
            texts.push_other(line, upstream);
        }
        if let Some(server) = &forwarding.server {
            line.extend_from_slice(b" server=");
            texts.push_other(line, server);
        }
        if forwarding.attempts > 1 {
            line.extend_from_slice(b" attempts=");
            push_number(line, forwarding.attempts.into());
        }
        if let Some(took) = forwarding.head_took {
            line.extend_from_slice(b" upstream_us=");
            push_number(line, Micros::from(took).0);
        }
    }
}

impl<'r> Texts<'r> {
    fn of(record: &'r Record, escape: fn(&mut Vec<u8>, &[u8])) -> Self {
        Self { record, is_plain: is_plain(record.all_texts()), escape }
    }

    /// Appends a text of the record.
    fn push(&self, line: &mut Vec<u8>, span: Span) {
        let text = self.record.text(span);
        if self.is_plain {
            line.extend_from_slice(text);
        } else {
            (self.escape)(line, text);
        }
    }

    /// Appends another text.
    fn push_other(&self, line: &mut Vec<u8>, text: &str) {
        let text = text.as_bytes();
        if is_plain(text) {
            line.extend_from_slice(text);
        } else {
            (self.escape)(line, text);
        }
    }

    /// Appends texts of the record with `separator` between them.
    fn join(&self, line: &mut Vec<u8>, spans: &[Span], separator: &[u8]) {
        for (place, span) in spans.iter().enumerate() {
            if place > 0 {
                line.extend_from_slice(separator);
            }
            self.push(line, *span);
        }
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

/// Each octet of an IPv4 address and a dot, in text, and how long that is.
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

/// By hand, since the standard library's formatting costs as much as half of the line.
fn push_ipv4(line: &mut Vec<u8>, address: Ipv4Addr) {
    let (mut text, mut end) = ([0; 16], 0);
    for octet in address.octets() {
        let (digits, length) = &OCTETS[usize::from(octet)];
        text[end..end + 4].copy_from_slice(digits);
        end += length;
    }
    // Without the last dot.
    line.extend_from_slice(&text[..end - 1]);
}

/// Appends a time.
fn push_time(line: &mut Vec<u8>, time: Timestamp) {
    let (second, micros) = (time.0 / 1_000_000, time.0 % 1_000_000);
    let (cached, mut formatted) = SECOND.get();
    if cached != second {
        formatted = format_second(second);
        SECOND.set((second, formatted));
    }
    let digit = |unit: u64| b"0123456789"[(micros / unit % 10) as usize];
    formatted[20..23].copy_from_slice(&[digit(100_000), digit(10_000), digit(1_000)]);
    line.extend_from_slice(&formatted);
}

/// The start of a second since the Unix epoch, in the years that have four digits.
fn format_second(second: u64) -> Time {
    let time = UNIX_EPOCH + Duration::from_secs(second.min(253_402_300_799));
    let text = humantime::format_rfc3339_millis(time).to_string();
    text.as_bytes().first_chunk().copied().unwrap_or([b'0'; 24])
}
