//! One request as a line of an access log has it, or why a line has no request.

use std::borrow::Cow;
use std::net::IpAddr;

use thiserror::Error;

use crate::time::{Micros, Timestamp};

/// Bytes of a line, or a copy of them without escapes.
pub type LogText<'l> = Cow<'l, [u8]>;

/// Texts that most lines share. An owned entry refers to them instead of a copy.
const FREQUENT: [&[u8]; 12] = [
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"HTTP/2",
    b"HTTP/1.0",
    b"HTTP/3.0",
];

/// A request as a log has it. What the line lacks is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequest<'l> {
    /// When the request arrived. If the line has its end and its duration, this is their difference.
    pub arrival: Timestamp,
    /// The time in the line, in seconds since the Unix epoch, if it has no fraction. `arrival` is then exact to a second only.
    pub second: Option<u64>,
    /// The address of the client; none if the line has none, or a name instead.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: LogText<'l>,
    /// The request target with its query. The authority of an absolute target is in `host` instead.
    pub target: LogText<'l>,
    /// The requested host, perhaps with a port.
    pub host: Option<LogText<'l>>,
    /// The protocol, such as `HTTP/1.1`.
    pub protocol: Option<LogText<'l>>,
    /// The status of the response.
    pub status: Option<u16>,
    /// Bytes of the response, with or without its head, as the server counts them.
    pub bytes: Option<u64>,
    /// From the arrival to the end of the response.
    pub duration: Option<Micros>,
    /// The header User-Agent.
    pub user_agent: Option<LogText<'l>>,
    /// The header Referer.
    pub referer: Option<LogText<'l>>,
    /// The name of the authenticated user.
    pub user: Option<LogText<'l>>,
    /// The consumer, from tidegate's own log.
    pub consumer: Option<LogText<'l>>,
    /// Names and values of further request headers.
    pub headers: Vec<(LogText<'l>, LogText<'l>)>,
    /// Names and values of further fields.
    pub fields: Vec<(Cow<'l, str>, LogText<'l>)>,
}

impl LoggedRequest<'_> {
    /// The end of the response, or the arrival if the line has no duration.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.arrival.after(self.duration.unwrap_or_default())
    }

    /// Moves the arrival to a later time. The end stays, unless that is earlier.
    pub(super) fn arrive_later(&mut self, arrival: Timestamp) {
        if arrival > self.arrival {
            let end = self.end();
            self.arrival = arrival;
            self.duration = self.duration.map(|_| end.since(arrival));
        }
    }

    /// The value of a request header, if the line has it. The name can be in any case.
    #[must_use]
    pub fn header(&self, name: &[u8]) -> Option<&[u8]> {
        if name.eq_ignore_ascii_case(b"user-agent") && self.user_agent.is_some() {
            return self.user_agent.as_deref();
        }
        if name.eq_ignore_ascii_case(b"referer") && self.referer.is_some() {
            return self.referer.as_deref();
        }
        self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// The value of a further field, if the line has it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// The bytes of all texts that the entry owns.
    pub(super) fn text_bytes(&self) -> usize {
        let parts = [&self.method, &self.target].into_iter();
        let optional =
            [&self.host, &self.protocol, &self.user_agent, &self.referer, &self.user, &self.consumer];
        let headers = self.headers.iter().flat_map(|(name, value)| [name, value]);
        let fields = self.fields.iter().map(|(name, value)| name.len() + owned_bytes(value)).sum::<usize>();
        let texts = parts.chain(optional.into_iter().flatten()).chain(headers);
        fields + texts.map(owned_bytes).sum::<usize>()
    }

    /// A copy that does not refer to the line.
    #[must_use]
    pub fn into_owned(self) -> LoggedRequest<'static> {
        let texts = |(name, value)| (own(name), own(value));
        let field = |(name, value): (Cow<'_, str>, _)| (Cow::Owned(name.into_owned()), own(value));
        LoggedRequest {
            arrival: self.arrival,
            second: self.second,
            client: self.client,
            method: own(self.method),
            target: own(self.target),
            host: self.host.map(own),
            protocol: self.protocol.map(own),
            status: self.status,
            bytes: self.bytes,
            duration: self.duration,
            user_agent: self.user_agent.map(own),
            referer: self.referer.map(own),
            user: self.user.map(own),
            consumer: self.consumer.map(own),
            headers: self.headers.into_iter().map(texts).collect(),
            fields: self.fields.into_iter().map(field).collect(),
        }
    }
}

fn owned_bytes(text: &LogText<'_>) -> usize {
    if let Cow::Owned(text) = text { text.len() } else { 0 }
}

fn own(text: LogText<'_>) -> LogText<'static> {
    match FREQUENT.iter().find(|frequent| ***frequent == *text) {
        Some(frequent) => Cow::Borrowed(frequent),
        None => Cow::Owned(text.into_owned()),
    }
}

/// Why a line of a log has no entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// The line is not in the format.
    #[error("column {column}: expected {expected}")]
    Column {
        /// The column, in bytes; the first is 1.
        column: usize,
        /// The element of the format that was expected.
        expected: &'static str,
    },
    /// A field of a JSON line is missing, or has no valid value.
    #[error("field `{field}`: expected {expected}")]
    Field {
        /// The path of the field.
        field: Cow<'static, str>,
        /// The element of the format that was expected.
        expected: &'static str,
    },
    /// The line is not JSON.
    #[error("column {column}: {reason}")]
    Json {
        /// The column, in bytes; the first is 1.
        column: usize,
        /// The message of the parser.
        reason: String,
    },
    /// The format is right, but the server got no valid request line: it has answered 400 or 408, or nothing.
    #[error("there is no request, only a connection or invalid bytes")]
    NoRequest,
    /// A line about the lines after it.
    #[error("this is a directive")]
    Directive,
    /// A part of a line that a container runtime has divided; others follow.
    #[error("this is a part of a line")]
    Part,
    /// A line in parts that together are too long.
    #[error("the line is longer than 1 MiB")]
    TooLong,
}

impl LineError {
    /// How far the line was in the format, to find the nearest of several formats.
    #[must_use]
    pub fn column(&self) -> usize {
        match self {
            Self::Column { column, .. } | Self::Json { column, .. } => *column,
            Self::Field { .. } | Self::NoRequest | Self::Directive | Self::Part | Self::TooLong => usize::MAX,
        }
    }
    /// The same error in a line that has this many bytes before the text in which it was found.
    #[must_use]
    pub fn after(mut self, length: usize) -> Self {
        if let Self::Column { column, .. } | Self::Json { column, .. } = &mut self {
            *column += length;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_in_any_case() {
        let headers = vec![(Cow::Borrowed(&b"X-Key"[..]), Cow::Borrowed(&b"k"[..]))];
        let entry =
            LoggedRequest { user_agent: Some(Cow::Borrowed(b"curl")), headers, ..LoggedRequest::default() };
        assert_eq!(entry.header(b"USER-AGENT"), Some(&b"curl"[..]));
        assert_eq!(entry.header(b"x-key"), Some(&b"k"[..]));
        assert_eq!(entry.header(b"referer"), None);
    }

    #[test]
    fn texts_that_an_entry_owns_are_counted() {
        let text = |text: &'static str| Cow::Borrowed(text.as_bytes());
        let entry = LoggedRequest {
            method: text("GET"),
            target: text("/ab"),
            user: Some(text("u")),
            headers: vec![(text("h"), text("1234"))],
            fields: vec![(Cow::Borrowed("f"), text("12"))],
            ..LoggedRequest::default()
        };
        assert_eq!(entry.into_owned().text_bytes(), 3 + 1 + 5 + 3);
    }

    #[test]
    fn an_owned_entry_equals_its_source() {
        let line = b"GET /a k v".to_vec();
        let entry = LoggedRequest {
            method: Cow::Borrowed(&line[..3]),
            target: Cow::Borrowed(&line[4..6]),
            fields: vec![(Cow::Borrowed("k"), Cow::Borrowed(&line[9..]))],
            ..LoggedRequest::default()
        };
        assert_eq!(entry.clone().into_owned(), entry);
    }
}
