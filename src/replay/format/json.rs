//! Access logs with a JSON object in each line, and the fields of known JSON formats.

use std::borrow::Cow;

use super::dates::{Dates, LogTime, TimeUnit, duration, float_micros, micros, unix, unix_float};
use super::json_values::{JsonValue, JsonValues};
use super::request_line::{address, address_with_port, last_forwarded, set_request, set_target};
use super::scanner::{size, status};
use crate::replay::entry::{LineError, LogText, LoggedRequest};
use crate::replay::fields::{FieldMap, FieldRole};
use crate::time::Micros;

/// An entry while the fields of its line are read.
struct Draft<'l, 'd> {
    entry: LoggedRequest<'l>,
    dates: &'d mut Dates,
    time: Option<LogTime>,
    end: Option<LogTime>,
    path: Option<LogText<'l>>,
    query: Option<LogText<'l>>,
    /// Whether a field is there that tells what was requested, though perhaps empty.
    has_request: bool,
}

/// Reads a line.
pub(super) fn parse<'l>(
    map: &FieldMap,
    line: &'l [u8],
    dates: &mut Dates,
) -> Result<LoggedRequest<'l>, LineError> {
    match str::from_utf8(line) {
        Ok(line) => parse_text(map, line, dates),
        // nginx's `escape=json` leaves invalid UTF-8 as it is.
        Err(_) => parse_text(map, &String::from_utf8_lossy(line), dates).map(LoggedRequest::into_owned),
    }
}

fn parse_text<'l>(map: &FieldMap, line: &'l str, dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    let JsonValues { fields, headers } = JsonValues::find(map, line).map_err(|error| json_error(&error))?;
    from_fields(map, fields, headers, dates)
}

/// The entry of the values of fields of the map, by their indices in it, and of further headers.
pub(super) fn from_fields<'l>(
    map: &FieldMap,
    fields: impl IntoIterator<Item = (usize, JsonValue<'l>)>,
    headers: impl IntoIterator<Item = (LogText<'l>, LogText<'l>)>,
    dates: &mut Dates,
) -> Result<LoggedRequest<'l>, LineError> {
    let mut draft = Draft {
        entry: LoggedRequest::default(),
        dates,
        time: None,
        end: None,
        path: None,
        query: None,
        has_request: false,
    };
    for (index, value) in fields {
        let (role, path) = &map.fields()[index];
        let error = |expected| LineError::Field { field: path.clone(), expected };
        draft.set(role, value).map_err(|mismatch| match mismatch {
            Mismatch::Expected(expected) => error(expected),
            Mismatch::NoRequest => LineError::NoRequest,
        })?;
    }
    for (name, value) in headers {
        draft.set_header(name, value);
    }
    draft.finish(map)
}

fn json_error(error: &serde_json::Error) -> LineError {
    let reason = error.to_string();
    let end = reason.find(" at line ").unwrap_or(reason.len());
    LineError::Json { column: error.column().max(1), reason: reason[..end].to_owned() }
}

/// Why a value can't be used.
enum Mismatch {
    Expected(&'static str),
    NoRequest,
}

impl<'l> Draft<'l, '_> {
    /// Sets what has this role, unless an earlier field of the map has set it.
    fn set(&mut self, role: &FieldRole, value: JsonValue<'l>) -> Result<(), Mismatch> {
        if matches!(role, FieldRole::Method | FieldRole::Target | FieldRole::Path | FieldRole::Request) {
            self.has_request = true;
        }
        match role {
            FieldRole::Time if self.time.is_none() => self.time = self.stamp(value)?,
            FieldRole::End if self.end.is_none() => self.end = self.stamp(value)?,
            FieldRole::Duration(unit) => self.set_duration(value, *unit)?,
            FieldRole::Status => self.set_status(value)?,
            FieldRole::Bytes => self.set_bytes(value)?,
            _ => {
                if let Some(text) = value.text() {
                    self.set_text(role, text)?;
                }
            }
        }
        Ok(())
    }

    fn set_text(&mut self, role: &FieldRole, text: LogText<'l>) -> Result<(), Mismatch> {
        let entry = &mut self.entry;
        match role {
            FieldRole::Client => self.set_client(text),
            FieldRole::Method if entry.method.is_empty() => entry.method = text,
            FieldRole::Target if entry.target.is_empty() => {
                let host = entry.host.take();
                set_target(entry, text);
                entry.host = host.or(entry.host.take());
            }
            FieldRole::Request if entry.method.is_empty() && entry.target.is_empty() => {
                set_request(entry, text).map_err(|_| Mismatch::NoRequest)?;
            }
            FieldRole::Path => drop(self.path.get_or_insert(text)),
            FieldRole::Query => drop(self.query.get_or_insert(text)),
            FieldRole::Host => drop(entry.host.get_or_insert(text)),
            FieldRole::Protocol => drop(entry.protocol.get_or_insert(text)),
            FieldRole::UserAgent => drop(entry.user_agent.get_or_insert(text)),
            FieldRole::Referer => drop(entry.referer.get_or_insert(text)),
            FieldRole::User => drop(entry.user.get_or_insert(text)),
            FieldRole::Consumer => drop(entry.consumer.get_or_insert(text)),
            FieldRole::Header(name) => self.set_header(Cow::Owned(name.as_bytes().to_vec()), text),
            FieldRole::Field(name) => entry.fields.push((name.clone(), text)),
            _ => {}
        }
        Ok(())
    }

    /// Headers of which an entry has a field of its own are not in its list.
    fn set_header(&mut self, name: LogText<'l>, value: LogText<'l>) {
        let own = match name.to_ascii_lowercase().as_slice() {
            b"host" => &mut self.entry.host,
            b"user-agent" => &mut self.entry.user_agent,
            b"referer" => &mut self.entry.referer,
            _ => {
                self.entry.headers.push((name, value));
                return;
            }
        };
        own.get_or_insert(value);
    }

    fn set_client(&mut self, text: LogText<'l>) {
        if self.entry.client.is_none() {
            let client =
                address(&text).or_else(|| last_forwarded(&text)).or_else(|| address_with_port(&text));
            self.entry.client = client;
            if client.is_none() {
                self.entry.fields.push((Cow::Borrowed("client"), text));
            }
        }
    }

    fn stamp(&mut self, value: JsonValue<'l>) -> Result<Option<LogTime>, Mismatch> {
        let stamp = match value {
            JsonValue::Unsigned(number) => Some(unix(number)),
            JsonValue::Float(number) => unix_float(number),
            value => match value.text() {
                Some(text) => self.dates.any(&text),
                None => return Ok(None),
            },
        };
        stamp.map(Some).ok_or(Mismatch::Expected("a time"))
    }

    fn set_duration(&mut self, value: JsonValue<'l>, unit: TimeUnit) -> Result<(), Mismatch> {
        let took = match value {
            JsonValue::Unsigned(number) => Some(Micros(micros(number, unit))),
            JsonValue::Float(number) => float_micros(number, unit).map(Micros),
            value => match value.text() {
                Some(text) => duration(&text, unit),
                None => return Ok(()),
            },
        };
        let took = took.ok_or(Mismatch::Expected("a duration"))?;
        self.entry.duration.get_or_insert(took);
        Ok(())
    }

    fn set_status(&mut self, value: JsonValue<'l>) -> Result<(), Mismatch> {
        let Some(text) = value.text() else { return Ok(()) };
        let code = status(&text).ok_or(Mismatch::Expected("a status code"))?;
        self.entry.status = self.entry.status.or(code);
        Ok(())
    }

    fn set_bytes(&mut self, value: JsonValue<'l>) -> Result<(), Mismatch> {
        let Some(text) = value.text() else { return Ok(()) };
        let bytes = size(&text).ok_or(Mismatch::Expected("a number of bytes"))?;
        self.entry.bytes.get_or_insert(bytes);
        Ok(())
    }

    fn finish(mut self, map: &FieldMap) -> Result<LoggedRequest<'l>, LineError> {
        self.set_times(map)?;
        if !self.has_request {
            return Err(missing(
                map,
                &[FieldRole::Target, FieldRole::Path, FieldRole::Request, FieldRole::Method],
                "a request",
            ));
        }
        if let Some(path) = self.path.filter(|_| self.entry.target.is_empty()) {
            let query = self.query.as_deref().map(|query| query.strip_prefix(b"?").unwrap_or(query));
            self.entry.target = match query {
                Some(query) if !query.is_empty() => Cow::Owned([&path, &b"?"[..], query].concat()),
                _ => path,
            };
        }
        if self.entry.method.is_empty() && !map.has(&[FieldRole::Method, FieldRole::Request]) {
            self.entry.method = Cow::Borrowed(b"GET");
        }
        if self.entry.method.is_empty() || self.entry.target.is_empty() {
            return Err(LineError::NoRequest);
        }
        Ok(self.entry)
    }

    /// Sets the arrival. From two times follows the duration.
    fn set_times(&mut self, map: &FieldMap) -> Result<(), LineError> {
        let took = &mut self.entry.duration;
        let stamp = match (self.time, self.end) {
            (Some(time), Some(end)) => {
                took.get_or_insert(end.time.since(time.time));
                time
            }
            (Some(time), None) => time,
            (None, Some(end)) => {
                let arrival = end.time.0.saturating_sub(took.unwrap_or_default().0);
                LogTime { time: crate::time::Timestamp(arrival), ..end }
            }
            (None, None) => return Err(missing(map, &[FieldRole::Time, FieldRole::End], "a time")),
        };
        self.entry.arrival = stamp.time;
        self.entry.second = self.time.or(self.end).and_then(LogTime::second);
        Ok(())
    }
}

/// The error that no field has one of these roles.
fn missing(map: &FieldMap, roles: &[FieldRole], expected: &'static str) -> LineError {
    let field = map.fields().iter().find(|(role, _)| roles.contains(role));
    LineError::Field { field: field.map(|(_, path)| path.clone()).unwrap_or_default(), expected }
}

/// The fields of a format.
pub(super) type Known = &'static [(FieldRole, &'static str)];

/// nginx has no JSON format of its own; these are the names of its variables, as most configurations use them.
pub(super) const NGINX: Known = &[
    (FieldRole::End, "msec"),
    (FieldRole::End, "time_iso8601"),
    (FieldRole::End, "time_local"),
    (FieldRole::End, "time"),
    (FieldRole::End, "timestamp"),
    (FieldRole::End, "@timestamp"),
    (FieldRole::Method, "request_method"),
    (FieldRole::Target, "request_uri"),
    (FieldRole::Request, "request"),
    (FieldRole::Host, "host"),
    (FieldRole::Host, "http_host"),
    (FieldRole::Client, "remote_addr"),
    (FieldRole::Protocol, "server_protocol"),
    (FieldRole::Status, "status"),
    (FieldRole::Bytes, "body_bytes_sent"),
    (FieldRole::Bytes, "bytes_sent"),
    (FieldRole::Duration(TimeUnit::Seconds), "request_time"),
    (FieldRole::User, "remote_user"),
    (FieldRole::Headers, "http_*"),
];

/// Caddy 2, in the formats of its encoder for times and durations except numbers of milliseconds or nanoseconds.
pub(super) const CADDY: Known = &[
    (FieldRole::End, "ts"),
    (FieldRole::Method, "request.method"),
    (FieldRole::Target, "request.uri"),
    (FieldRole::Host, "request.host"),
    (FieldRole::Client, "request.client_ip"),
    (FieldRole::Client, "request.remote_ip"),
    (FieldRole::Client, "request.remote_addr"),
    (FieldRole::Protocol, "request.proto"),
    (FieldRole::Headers, "request.headers"),
    (FieldRole::Status, "status"),
    (FieldRole::Bytes, "size"),
    (FieldRole::Duration(TimeUnit::Seconds), "duration"),
    (FieldRole::User, "user_id"),
];

/// Traefik.
pub(super) const TRAEFIK: Known = &[
    (FieldRole::Time, "StartUTC"),
    (FieldRole::Time, "StartLocal"),
    (FieldRole::Method, "RequestMethod"),
    (FieldRole::Target, "RequestPath"),
    (FieldRole::Host, "RequestAddr"),
    (FieldRole::Host, "RequestHost"),
    (FieldRole::Client, "ClientHost"),
    (FieldRole::Client, "ClientAddr"),
    (FieldRole::Protocol, "RequestProtocol"),
    (FieldRole::Status, "DownstreamStatus"),
    (FieldRole::Bytes, "DownstreamContentSize"),
    (FieldRole::Duration(TimeUnit::Nanos), "Duration"),
    (FieldRole::User, "ClientUsername"),
    (FieldRole::Headers, "request_*"),
];

/// Envoy has no JSON format of its own; these are the names of its documentation, of Istio and of Envoy Gateway.
pub(super) const ENVOY: Known = &[
    (FieldRole::Time, "start_time"),
    (FieldRole::Method, "method"),
    (FieldRole::Method, ":method"),
    (FieldRole::Target, "x-envoy-origin-path"),
    (FieldRole::Target, "x-envoy-original-path"),
    (FieldRole::Target, "path"),
    (FieldRole::Target, ":path"),
    (FieldRole::Host, "authority"),
    (FieldRole::Host, ":authority"),
    (FieldRole::Client, "downstream_remote_address"),
    (FieldRole::Client, "x_forwarded_for"),
    (FieldRole::Client, "x-forwarded-for"),
    (FieldRole::Header(Cow::Borrowed("x-forwarded-for")), "x_forwarded_for"),
    (FieldRole::Header(Cow::Borrowed("x-forwarded-for")), "x-forwarded-for"),
    (FieldRole::Protocol, "protocol"),
    (FieldRole::Status, "response_code"),
    (FieldRole::Bytes, "bytes_sent"),
    (FieldRole::Duration(TimeUnit::Millis), "duration"),
    (FieldRole::UserAgent, "user_agent"),
    (FieldRole::UserAgent, "user-agent"),
];

/// Cloudflare Logpush, the data set `http_requests`.
pub(super) const CLOUDFLARE: Known = &[
    (FieldRole::Time, "EdgeStartTimestamp"),
    (FieldRole::End, "EdgeEndTimestamp"),
    (FieldRole::Method, "ClientRequestMethod"),
    (FieldRole::Target, "ClientRequestURI"),
    (FieldRole::Target, "ClientRequestPath"),
    (FieldRole::Host, "ClientRequestHost"),
    (FieldRole::Client, "ClientIP"),
    (FieldRole::Protocol, "ClientRequestProtocol"),
    (FieldRole::Status, "EdgeResponseStatus"),
    (FieldRole::Bytes, "EdgeResponseBytes"),
    (FieldRole::UserAgent, "ClientRequestUserAgent"),
    (FieldRole::Referer, "ClientRequestReferer"),
    (FieldRole::Headers, "RequestHeaders"),
];

/// tidegate's own log.
pub(super) const TIDEGATE: Known = &[
    (FieldRole::Time, "time"),
    (FieldRole::Client, "client"),
    (FieldRole::Method, "method"),
    (FieldRole::Target, "target"),
    (FieldRole::Host, "host"),
    (FieldRole::Protocol, "protocol"),
    (FieldRole::Status, "status"),
    (FieldRole::Bytes, "bytes"),
    (FieldRole::Duration(TimeUnit::Micros), "took_us"),
    (FieldRole::Consumer, "consumer"),
    (FieldRole::Headers, "headers"),
    (FieldRole::Field(Cow::Borrowed("route")), "route"),
    (FieldRole::Field(Cow::Borrowed("denied_by")), "denied_by"),
    (FieldRole::Field(Cow::Borrowed("shadow_denied_by")), "shadow_denied_by"),
    (FieldRole::Field(Cow::Borrowed("key")), "key"),
];
