//! What requests and responses have in common: the errors of their heads, and how their bodies are framed.

use http::StatusCode;
use memchr::memchr_iter;

use super::fields::Fields;
use super::name::names::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use super::number::{parse_decimal, push_decimal};

/// The most interim responses (1xx) before a response.
pub const MAX_INTERIM: u8 = 100;

/// The longest body that a Content-Length may announce, so that no sum of lengths overflows.
const MAX_LENGTH: u64 = u64::MAX >> 1;

/// The most bytes of empty lines before a head.
const MAX_EMPTY: usize = 64;

/// How large a head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes, with the start line and the empty line.
    pub max_bytes: usize,
    /// Lines.
    pub max_headers: usize,
}

/// How the end of a body is found (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// By its length in bytes.
    Length(u64),
    /// By its chunks.
    Chunked,
    /// By the end of its connection.
    UntilClose,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is no HTTP/1.
    #[error("the head is malformed: {0}")]
    Malformed(httparse::Error),
    /// Its method is none.
    #[error("the method is malformed")]
    Method,
    /// Its target is none.
    #[error("the target is malformed")]
    Target,
    /// Its target is too long.
    #[error("the target is too long")]
    TargetTooLong,
    /// Its status is none.
    #[error("the status is malformed")]
    Status,
    /// It has more bytes or lines than it may have.
    #[error("the head is too large")]
    TooLarge,
    /// A Content-Length is no number, or several differ.
    #[error("the Content-Length is invalid")]
    ContentLength,
    /// A transfer coding that is not understood, or one in HTTP/1.0.
    #[error("the only transfer coding that is understood is chunked")]
    TransferCoding,
    /// A response has a length and a transfer coding.
    #[error("the end of the body is ambiguous")]
    Ambiguous,
}

impl ParseError {
    /// The status of a response to a request whose head is refused for this.
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

/// Whether there may be the end of a head, of which `seen` bytes had none. A head that comes byte by byte would
/// otherwise be parsed as often.
pub(super) fn may_be_complete(bytes: &[u8], seen: usize) -> bool {
    let begin = seen.saturating_sub(3);
    seen == 0
        || memchr_iter(b'\n', &bytes[begin..])
            .any(|at| matches!(&bytes[begin + at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// Refuses a head behind many empty lines. Each of these could be its end, so that they would be looked through whenever
/// more comes.
///
/// # Errors
/// When there are more of them than it may have.
pub(super) fn check_empty_lines(bytes: &[u8]) -> Result<(), ParseError> {
    let begin = bytes.get(..MAX_EMPTY).unwrap_or_default();
    if !begin.is_empty() && begin.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(ParseError::Malformed(httparse::Error::NewLine));
    }
    Ok(())
}

/// The Content-Length of a head, in one line and in its shortest form afterwards; none if there is none.
///
/// # Errors
/// One that is no number, and several that differ. `lists` says whether a value may repeat the number (RFC 9110 §8.6).
pub fn content_length(fields: &mut Fields, lists: bool) -> Result<Option<u64>, ParseError> {
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
        let separator = move |byte: &u8| lists && *byte == b',';
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

/// Whether the body comes in chunks; a head has no transfer coding otherwise.
///
/// # Errors
/// Other transfer codings, or several.
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

/// Whether the body comes as it is, or in chunks and in no other transfer coding.
#[must_use]
pub fn is_plainly_coded(fields: &Fields) -> bool {
    is_chunked(fields).is_ok()
}

/// Whether the sender of a head keeps the connection (RFC 9112 §9.3).
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
    // Not every server finds an option beside bytes beyond ASCII.
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

    #[test]
    fn a_length_has_one_spelling_or_none() {
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
        for odd in [&["5", "6"][..], &["5, 6"], &["+5"], &["5,"], &[""], &["x"], &["9223372036854775808"]] {
            for lists in [false, true] {
                assert_eq!(length(odd, lists), Err(ParseError::ContentLength), "{odd:?}");
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
            assert!(is_plainly_coded(&fields(plain)), "{plain:?}");
        }
        for other in
            [&["gzip"][..], &["gzip, chunked"], &["chunked", "chunked"], &["chunked, chunked"], &[""]]
        {
            assert!(!is_plainly_coded(&fields(other)), "{other:?}");
        }
    }

    #[test]
    fn an_end_of_a_head_is_found_wherever_it_is_cut() {
        for head in ["a\r\nb\r\n\r\n", "a\nb\n\n", "a\nb\n\r\n"] {
            let found = (1..=head.len())
                .find(|end| may_be_complete(&head.as_bytes()[..*end], end - 1 + usize::from(*end == 1)));
            assert_eq!(found, Some(head.len()), "{head:?}");
        }
    }

    #[test]
    fn a_head_that_comes_byte_by_byte_is_parsed_once() {
        for line_end in ["\r\n", "\n"] {
            let head = format!("GET / HTTP/1.1{line_end}{}{line_end}", format!("X: y{line_end}").repeat(50));
            let parsed = (2..=head.len()).filter(|&end| may_be_complete(&head.as_bytes()[..end], end - 1));
            assert_eq!(parsed.collect::<Vec<_>>(), [head.len()]);
        }
    }

    #[test]
    fn codings_are_chunked_alone() {
        let coded = |values: &[&'static str]| {
            is_chunked(&values.iter().map(|value| ("transfer-encoding", *value)).collect::<Fields>())
        };
        assert_eq!((coded(&[]), coded(&["chunked"]), coded(&["CHUNKED"])), (Ok(false), Ok(true), Ok(true)));
        for odd in [
            &["gzip"][..],
            &["gzip, chunked"],
            &["chunked, chunked"],
            &["chunked", "chunked"],
            &[""],
            &["chunked;a"],
        ] {
            assert_eq!(coded(odd), Err(ParseError::TransferCoding), "{odd:?}");
        }
    }

    #[test]
    fn a_connection_is_kept_as_its_options_say() {
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
