//! Heads of requests.

use std::mem::MaybeUninit;

use http::{Method, Uri, Version};
use smallvec::{SmallVec, smallvec_inline};

use super::fields::Fields;
use super::head::RequestHead;
use super::name::names::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use super::parse::{
    Framing, HeadLimits, ParseError, content_length, is_chunked, keeps_alive, may_be_complete,
};

/// Lines for which there is room without an allocation.
const USUAL_HEADERS: usize = 100;

/// The longest target, in bytes.
const MAX_TARGET: usize = 65_534;

/// A request whose head is complete.
#[derive(Debug)]
pub struct ParsedRequest {
    /// The head.
    pub head: RequestHead,
    /// How the end of the body is found.
    pub framing: Framing,
    /// Whether the client keeps the connection for another request.
    pub keeps_alive: bool,
    /// Whether the client sends the body only after `100 Continue`.
    pub expects_continue: bool,
    /// Bytes of the head.
    pub length: usize,
}

/// Parses the head of a request; none if it is not complete. `seen` bytes were known in an earlier call. `last` is an
/// earlier target of the same client, which is often the same.
///
/// # Errors
/// A head that can be read in more than one way, or is too large. What follows it can't be read either.
pub fn parse_request(
    bytes: &[u8],
    seen: usize,
    limits: HeadLimits,
    last: Option<&Uri>,
) -> Result<Option<ParsedRequest>, ParseError> {
    if !may_be_complete(bytes, seen) {
        return if bytes.len() < limits.max_bytes { Ok(None) } else { Err(ParseError::TooLarge) };
    }
    let mut lines: SmallVec<[MaybeUninit<httparse::Header<'_>>; USUAL_HEADERS]> =
        smallvec_inline![MaybeUninit::uninit(); USUAL_HEADERS];
    lines.resize(limits.max_headers, MaybeUninit::uninit());
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(bytes, &mut lines) {
        Ok(httparse::Status::Complete(length)) if length <= limits.max_bytes => length,
        Ok(httparse::Status::Partial) if bytes.len() < limits.max_bytes => return Ok(None),
        Ok(_) => return Err(ParseError::TooLarge),
        Err(httparse::Error::Token) if request.method.is_none() => return Err(ParseError::Method),
        Err(httparse::Error::Token) => return Err(ParseError::Target),
        Err(error) => return Err(error.into()),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| ParseError::Method)?;
    let uri = uri(target, last)?;
    let is_http_10 = request.version == Some(0);
    let mut fields = Fields::over(&bytes[..length]);
    let place = |part: &[u8]| (part.as_ptr().addr() - bytes.as_ptr().addr(), part.len());
    for line in request.headers.iter() {
        fields.add_line(place(line.name.as_bytes()), place(line.value));
    }
    let (framing, is_ambiguous) = framing(&mut fields, is_http_10)?;
    Ok(Some(ParsedRequest {
        framing,
        keeps_alive: !is_ambiguous && keeps_alive(&fields, is_http_10),
        expects_continue: !is_http_10
            && fields
                .get_all(EXPECT)
                .next_back()
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")),
        length,
        head: RequestHead {
            method,
            uri,
            version: if is_http_10 { Version::HTTP_10 } else { Version::HTTP_11 },
            fields,
        },
    }))
}

fn uri(target: &str, last: Option<&Uri>) -> Result<Uri, ParseError> {
    if let Some(last) = last.filter(|last| last.scheme().is_none())
        && last.path_and_query().is_some_and(|path| path.as_str() == target)
    {
        return Ok(last.clone());
    }
    if target.len() > MAX_TARGET {
        return Err(ParseError::TargetTooLong);
    }
    target.parse().map_err(|_| ParseError::Target)
}

/// How the body is framed, and whether there was a length beside the chunks: then the length is removed, and the
/// connection ends after the request, since its sender may have meant the length (RFC 9112 §6.3).
fn framing(fields: &mut Fields, is_http_10: bool) -> Result<(Framing, bool), ParseError> {
    let length = content_length(fields, false)?;
    if fields.contains(TRANSFER_ENCODING) {
        if is_http_10 {
            // HTTP/1.0 has no chunks: the sender may have meant something else.
            return Err(ParseError::Malformed(httparse::Error::HeaderValue));
        }
        is_chunked(fields)?;
        fields.remove(CONTENT_LENGTH);
        return Ok((Framing::Chunked, length.is_some()));
    }
    Ok((length.filter(|length| *length > 0).map_or(Framing::Empty, Framing::Length), false))
}
