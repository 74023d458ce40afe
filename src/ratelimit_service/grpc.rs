//! gRPC over HTTP/2, for calls with one request message.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hyper::body::Frame;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;

use crate::http1::names::{CONTENT_TYPE, GRPC_MESSAGE, GRPC_STATUS};
use crate::http1::{FieldName, Fields, push_decimal};
use crate::proxy::{FrameStream, ServiceBody, ServiceReply};

/// The characters that are percent-encoded in `grpc-message`: all but visible ASCII and spaces, and `%` itself.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');
/// The name of the trailer with the code of a call.
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// A deadline has at most eight digits.
const DEADLINE_DIGITS: usize = 8;

/// The codes of errors, as google.rpc.Code has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrpcCode {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrpcError {
    pub code: GrpcCode,
    pub message: String,
}

impl GrpcError {
    pub fn new(code: GrpcCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The error of a call that took too long.
    pub fn late() -> Self {
        Self::new(GrpcCode::DeadlineExceeded, "the deadline has passed")
    }

    /// The trailers of a response that ends with this error.
    pub fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(2);
        trailers.insert(STATUS, HeaderValue::from(self.code as u16));
        // An escaped text is visible ASCII.
        if let Ok(message) = HeaderValue::try_from(utf8_percent_encode(&self.message, ESCAPED).to_string()) {
            trailers.insert(HeaderName::from_static("grpc-message"), message);
        }
        trailers
    }

    /// The response with this error: headers alone (Trailers-Only).
    pub fn reply(&self) -> ServiceReply {
        let mut reply = ServiceReply::new(StatusCode::OK, Bytes::new());
        let fields = &mut reply.head.fields;
        fields.push(CONTENT_TYPE, b"application/grpc");
        fields.set_with(GRPC_STATUS, |out| push_decimal(out, self.code as u64));
        fields.set_with(GRPC_MESSAGE, |out| {
            let parts = utf8_percent_encode(&self.message, ESCAPED);
            parts.for_each(|part| out.extend_from_slice(part.as_bytes()));
        });
        reply
    }
}

/// Reads the only message of a body. Rejects a compressed message, one that is not whole or more than one, and what is no such
/// message.
pub(super) fn read<M: Message + Default>(body: &Bytes) -> Result<M, GrpcError> {
    let invalid = |message: &str| GrpcError::new(GrpcCode::InvalidArgument, message);
    let Some((prefix, message)) = body.split_first_chunk::<PREFIX>() else {
        return Err(invalid("the call has no message"));
    };
    let [flag, length @ ..] = *prefix;
    match flag {
        0 => {}
        1 => {
            let text = "compressed messages are not supported";
            return Err(GrpcError::new(GrpcCode::Unimplemented, text));
        }
        _ => return Err(invalid("the flags of the message are not valid")),
    }
    if usize::try_from(u32::from_be_bytes(length)).ok() != Some(message.len()) {
        return Err(invalid("the call must have one whole message"));
    }
    M::decode(message).map_err(|error| invalid(&format!("the message is not valid: {error}")))
}

/// The response with a message.
pub(super) fn reply(message: &impl Message) -> ServiceReply {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    with_body(ServiceBody::WithTrailers(frame(message), Box::new(trailers)))
}

/// The response with messages that are made while it is sent; the last frame has trailers.
pub(super) fn reply_with(frames: impl Stream<Item = Frame<Bytes>> + 'static) -> ServiceReply {
    with_body(ServiceBody::Frames(FrameStream::new(frames)))
}

fn with_body(body: ServiceBody) -> ServiceReply {
    let mut reply = ServiceReply { body, ..ServiceReply::new(StatusCode::OK, Bytes::new()) };
    reply.head.fields.push(CONTENT_TYPE, b"application/grpc");
    reply
}

/// A message with its prefix.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut body = BytesMut::with_capacity(PREFIX + length);
    body.put_u8(0);
    // A response has at most as many statuses as a request has descriptors.
    body.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The buffer grows as needed, so there is always room.
    let _ = message.encode(&mut body);
    body.freeze()
}

/// The time that the client gives a call, from its field `grpc-timeout`; none if it has no such field, or no valid one.
pub(super) fn deadline(fields: &Fields) -> Option<Duration> {
    let value = std::str::from_utf8(fields.get(FieldName::new(b"grpc-timeout"))?).ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty()
        || digits.len() > DEADLINE_DIGITS
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3_600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratelimit_service::messages::HealthCheckRequest;

    fn message(bytes: &[u8]) -> Result<HealthCheckRequest, (GrpcCode, String)> {
        read(&Bytes::copy_from_slice(bytes)).map_err(|error: GrpcError| (error.code, error.message))
    }

    #[test]
    fn a_body_is_one_whole_message_that_is_not_compressed() {
        assert_eq!(message(b"\0\0\0\0\x03\x0a\x01a").unwrap().service, "a");
        assert_eq!(message(b"\0\0\0\0\0").unwrap().service, "");
        for (body, code) in [
            (&b""[..], GrpcCode::InvalidArgument),
            (b"\0\0\0\0", GrpcCode::InvalidArgument),
            (b"\0\0\0\0\x03\x0a\x01", GrpcCode::InvalidArgument),
            (b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\0", GrpcCode::InvalidArgument),
            (b"\0\0\0\0\x01\x0a", GrpcCode::InvalidArgument),
            (b"\x02\0\0\0\0", GrpcCode::InvalidArgument),
            (b"\x01\0\0\0\x03\x0a\x01a", GrpcCode::Unimplemented),
        ] {
            assert_eq!(message(body).unwrap_err().0, code, "{body:?}");
        }
    }

    #[test]
    fn deadlines_have_a_unit() {
        let read = |value: &str| deadline(&[("grpc-timeout", value)].into_iter().collect());
        assert_eq!(read("20m"), Some(Duration::from_millis(20)));
        assert_eq!(read("99999999H"), Some(Duration::from_hours(99_999_999)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        for wrong in ["", "5", "m", "999999999m", "+5m", "5 m", "5d"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
