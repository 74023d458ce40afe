//! Code that the parsers of requests and responses share: errors, limits, framing and keep-alive.

use http::StatusCode;
use memchr::memchr_iter;

use super::fields::Fields;
use super::name::names::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use super::number::{parse_decimal, push_decimal};

/// The most interim responses (1xx) before a final one.
pub const MAX_INTERIM: u8 = 100;

/// The largest Content-Length, so that no sum of lengths overflows.
const MAX_LENGTH: u64 = u64::MAX >> 1;

/// From this many bytes on, empty lines before a head are rejected.
const MAX_EMPTY: usize = 64;

/// Limits on the size of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The most bytes, with the start line and the empty line.
    pub max_bytes: usize,
    /// The most header lines.
    pub max_headers: usize,
}

/// How the end of a body is determined (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    Empty,
    /// By a Content-Length, in bytes.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
    /// By the close of the connection.
    UntilClose,
}

/// Why a head is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The head is not HTTP/1.
    #[error("malformed head: {0}")]
    Malformed(httparse::Error),
    /// The method is malformed.
    #[error("malformed method")]
    Method,
    /// The request target is malformed.
    #[error("malformed request target")]
    Target,
    /// The request target is too long.
    #[error("request target is too long")]
    TargetTooLong,
    /// The status code is malformed.
    #[error("malformed status code")]
    Status,
    /// The head has more bytes or lines than allowed.
    #[error("head is too large")]
    TooLarge,
    /// A Content-Length is not a number or too large, or several differ.
    #[error("invalid Content-Length")]
    ContentLength,
    /// There is another transfer coding than chunked, or one in HTTP/1.0.
    #[error("unsupported transfer coding: only chunked is supported, and only in HTTP/1.1")]
    TransferCoding,
    /// A response has a Content-Length and a transfer coding.
    #[error("ambiguous framing: the response has both Content-Length and Transfer-Encoding")]
    Ambiguous,
}

impl ParseError {
    /// The status code of the response to a request with such a head.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            // RFC 9112 §6.1.
            Self::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Malformed(_)
            | Self::Method
            | Self::Target
            | Self::Status
            | Self::ContentLength
            | Self::Ambiguous => StatusCode::BAD_REQUEST,
        }
    }
}

impl From<httparse::Error> for ParseError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooLarge,
            error => Self::Malformed(error),
        }
    }
}

/// Whether the bytes may contain the end of a head that is not in the first `seen` bytes. Otherwise a head that is received
/// byte by byte would be parsed for each byte.
pub(super) fn may_be_complete(bytes: &[u8], seen: usize) -> bool {
    let begin = seen.saturating_sub(3);
    seen == 0
        || memchr_iter(b'\n', &bytes[begin..])
            .any(|at| matches!(&bytes[begin + at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// Rejects a head after many empty lines. Each of these could be the end of the head, so that all of them would be parsed again
/// whenever more bytes are received. Fails when there are more empty lines than allowed.
pub(super) fn check_empty_lines(bytes: &[u8]) -> Result<(), ParseError> {
    let begin = bytes.get(..MAX_EMPTY).unwrap_or_default();
    if !begin.is_empty() && begin.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(ParseError::Malformed(httparse::Error::NewLine));
    }
    Ok(())
}

/// The Content-Length of a head, if it has one. Several equal ones, and one with leading zeros, are replaced by one line in
/// canonical form. `allows_lists` says whether one line may repeat the number, separated by commas (RFC 9110 §8.6). Fails when a
/// Content-Length is not a number or too large, or several differ.
pub fn content_length(fields: &mut Fields, allows_lists: bool) -> Result<Option<u64>, ParseError> {
    if !fields.contains(CONTENT_LENGTH) {
        return Ok(None);
    }
    let mut values = fields.get_all(CONTENT_LENGTH);
    let Some(first) = values.next() else { return Ok(None) };
    let is_canonical = values.next().is_none() && matches!(first, [b'0'] | [b'1'..=b'9', ..]);
    if let Some(length) = parse_decimal(first).filter(|length| is_canonical && *length <= MAX_LENGTH) {
        return Ok(Some(length));
    }
    let mut all = fields.get_all(CONTENT_LENGTH).flat_map(|value| {
        let separator = move |byte: &u8| allows_lists && *byte == b',';
        value.split(separator).map(|number| parse_decimal(number.trim_ascii()))
    });
    let length =
        all.next().flatten().filter(|length| *length <= MAX_LENGTH).ok_or(ParseError::ContentLength)?;
    if all.any(|other| other != Some(length)) {
        return Err(ParseError::ContentLength);
    }
    fields.set_with(CONTENT_LENGTH, |out| push_decimal(out, length));
    Ok(Some(length))
}

/// Whether the transfer coding is chunked, rather than none. Fails when there is another transfer coding, or more than one.
pub(super) fn is_chunked(fields: &Fields) -> Result<bool, ParseError> {
    if !fields.contains(TRANSFER_ENCODING) {
        return Ok(false);
    }
    let mut codings = fields.get_all(TRANSFER_ENCODING);
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(ParseError::TransferCoding),
    }
}

/// Whether the body has no other transfer coding than chunked.
#[must_use]
pub fn has_only_chunked_coding(fields: &Fields) -> bool {
    is_chunked(fields).is_ok()
}

/// Whether the sender of a head keeps the connection alive (RFC 9112 §9.3).
pub(super) fn keeps_alive(fields: &Fields, is_http_10: bool) -> bool {
    if !fields.contains(CONNECTION) {
        return !is_http_10;
    }
    let mut values = fields.get_all(CONNECTION);
    if let (Some(value), None) = (values.next(), values.next())
        && value.eq_ignore_ascii_case(b"keep-alive")
    {
        return true;
    }
    let has = |option: &[u8]| {
        let mut options = fields.get_all(CONNECTION).flat_map(|value| value.split(|byte| *byte == b','));
        options.any(|it| it.trim_ascii().eq_ignore_ascii_case(option))
    };
    if has(b"close") {
        return false;
    }
    // Some servers ignore the whole field if it has bytes that are not ASCII.
    !is_http_10 || (has(b"keep-alive") && fields.get_all(CONNECTION).all(<[u8]>::is_ascii))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(values: &[&str], lists: bool) -> Result<Option<String>, ParseError> {
        let mut fields: Fields = values.iter().map(|value| ("content-length", *value)).collect();
        let length = content_length(&mut fields, lists)?;
        let lines: Vec<&str> = fields.iter().map(|field| std::str::from_utf8(field.value).unwrap()).collect();
        assert_eq!(length.map(|length| length.to_string()), lines.first().map(|&line| line.to_owned()));
        assert!(lines.len() <= 1);
        Ok(lines.first().map(|&line| line.to_owned()))
    }

    /// RFC 9110 §8.6.
    #[test]
    fn a_content_length_gets_its_canonical_form() {
        for (values, written) in [
            (&[][..], None),
            (&["0"], Some("0")),
            (&["10"], Some("10")),
            (&["00"], Some("0")),
            (&["5", "05"], Some("5")),
        ] {
            assert_eq!(length(values, false), Ok(written.map(str::to_owned)), "{values:?}");
        }
        assert_eq!(length(&["5", "05 , 5"], true), Ok(Some("5".to_owned())));
        for invalid in [&["5", "6"][..], &["5, 6"], &["+5"], &["5,"], &[""], &["x"], &["9223372036854775808"]]
        {
            for lists in [false, true] {
                assert_eq!(length(invalid, lists), Err(ParseError::ContentLength), "{invalid:?}");
            }
        }
        assert_eq!(length(&["5, 5"], false), Err(ParseError::ContentLength));
    }

    #[test]
    fn chunked_is_the_only_transfer_coding() {
        let fields = |codings: &[&str]| -> Fields {
            codings.iter().map(|coding| ("transfer-encoding", *coding)).collect()
        };
        for plain in [&[][..], &["chunked"], &["Chunked"]] {
            assert!(has_only_chunked_coding(&fields(plain)), "{plain:?}");
        }
        for other in
            [&["gzip"][..], &["gzip, chunked"], &["chunked", "chunked"], &["chunked, chunked"], &[""]]
        {
            assert!(!has_only_chunked_coding(&fields(other)), "{other:?}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_is_split() {
        for head in ["a\r\nb\r\n\r\n", "a\nb\n\n", "a\nb\n\r\n"] {
            let found = (1..=head.len())
                .find(|end| may_be_complete(&head.as_bytes()[..*end], end - 1 + usize::from(*end == 1)));
            assert_eq!(found, Some(head.len()), "{head:?}");
        }
    }

    #[test]
    fn a_head_that_is_received_byte_by_byte_is_parsed_once() {
        for line_end in ["\r\n", "\n"] {
            let head = format!("GET / HTTP/1.1{line_end}{}{line_end}", format!("X: y{line_end}").repeat(50));
            let parsed = (2..=head.len()).filter(|&end| may_be_complete(&head.as_bytes()[..end], end - 1));
            assert_eq!(parsed.collect::<Vec<_>>(), [head.len()]);
        }
    }

    /// RFC 9112 §6.1.
    #[test]
    fn transfer_codings_other_than_chunked_are_rejected() {
        let coded = |values: &[&'static str]| {
            is_chunked(&values.iter().map(|value| ("transfer-encoding", *value)).collect::<Fields>())
        };
        assert_eq!((coded(&[]), coded(&["chunked"]), coded(&["CHUNKED"])), (Ok(false), Ok(true), Ok(true)));
        for invalid in [
            &["gzip"][..],
            &["gzip, chunked"],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &[""],
            &["chunked;a"],
        ] {
            assert_eq!(coded(invalid), Err(ParseError::TransferCoding), "{invalid:?}");
        }
    }

    /// RFC 9112 §9.3.
    #[test]
    fn connection_options_decide_about_keep_alive() {
        for (values, in_11, in_10) in [
            (&[][..], true, false),
            (&["keep-alive"], true, true),
            (&["Keep-Alive , x"], true, true),
            (&["x"], true, false),
            (&["x", "keep-alive"], true, true),
            (&["close"], false, false),
            (&["x,\tCLOSE"], false, false),
            (&["keep-alive", "close"], false, false),
            (&["close", "keep-alive"], false, false),
            (&["closed, xclose, keep-alives"], true, false),
            (&[",,"], true, false),
            (&["\u{e9}, keep-alive"], true, false),
            (&["\u{e9}", "keep-alive"], true, false),
            (&["\u{e9}, close"], false, false),
        ] {
            let fields: Fields = values.iter().map(|value| ("connection", *value)).collect();
            assert_eq!(
                (keeps_alive(&fields, false), keeps_alive(&fields, true)),
                (in_11, in_10),
                "{values:?}"
            );
        }
    }
}
