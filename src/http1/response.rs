//! Heads of responses.

use std::mem::MaybeUninit;

use http::{Method, StatusCode, Version};

use super::fields::Fields;
use super::head::ResponseHead;
use super::name::names::TRANSFER_ENCODING;
use super::parse::{
    Framing, HeadLimits, ParseError, content_length, is_chunked, keeps_alive, may_be_complete,
};

/// The most lines of a response.
const MAX_HEADERS: usize = 100;

/// A response whose head is complete.
#[derive(Debug)]
pub struct ParsedResponse {
    /// The head. That of an interim response other than 101 has no fields.
    pub head: ResponseHead,
    /// How the end of the body is found.
    pub framing: Framing,
    /// Whether the server keeps the connection for another request.
    pub keeps_alive: bool,
    /// Bytes of the head.
    pub length: usize,
}

/// Parses the head of a response to a request with this method, which may be an interim response; none if it is not
/// complete. `seen` bytes were known in an earlier call.
///
/// # Errors
/// A head that can be read in more than one way, or is too large. The number of lines has a bound of its own.
pub fn parse_response(
    bytes: &[u8],
    seen: usize,
    limits: HeadLimits,
    method: &Method,
) -> Result<Option<ParsedResponse>, ParseError> {
    if !may_be_complete(bytes, seen) {
        return if bytes.len() < limits.max_bytes { Ok(None) } else { Err(ParseError::TooLarge) };
    }
    let mut lines = [MaybeUninit::uninit(); MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut lines)? {
        httparse::Status::Complete(length) if length <= limits.max_bytes => length,
        httparse::Status::Partial if bytes.len() < limits.max_bytes => return Ok(None),
        _ => return Err(ParseError::TooLarge),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(ParseError::Status)?;
    let mut head = ResponseHead { fields: Fields::default(), ..ResponseHead::new(status) };
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Some(ParsedResponse { head, framing: Framing::Empty, keeps_alive: true, length }));
    }
    let is_http_10 = response.version == Some(0);
    if is_http_10 {
        head.version = Version::HTTP_10;
    }
    let reason = response.reason.unwrap_or_default();
    if status.canonical_reason() != Some(reason) {
        head.reason = Some(reason.as_bytes().into());
    }
    head.fields = Fields::over(&bytes[..length]);
    let place = |part: &[u8]| (part.as_ptr().addr() - bytes.as_ptr().addr(), part.len());
    for line in response.headers.iter() {
        head.fields.add_line(place(line.name.as_bytes()), place(line.value));
    }
    let framing = framing(&mut head, is_http_10, method)?;
    let keeps_alive = framing != Framing::UntilClose && keeps_alive(&head.fields, is_http_10);
    Ok(Some(ParsedResponse { head, framing, keeps_alive, length }))
}

fn framing(head: &mut ResponseHead, is_http_10: bool, method: &Method) -> Result<Framing, ParseError> {
    let length = content_length(&mut head.fields, true)?;
    let is_chunked = is_chunked(&head.fields)?;
    if is_chunked && is_http_10 {
        return Err(ParseError::TransferCoding);
    }
    if is_chunked && length.is_some() {
        return Err(ParseError::Ambiguous);
    }
    if *method == Method::HEAD || head.is_bodiless() {
        head.fields.remove(TRANSFER_ENCODING);
        return Ok(Framing::Empty);
    }
    Ok(match length {
        _ if is_chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    })
}
