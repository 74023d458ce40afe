//! Compares our parser of HTTP/1.1 with hyper's: both get the same bytes, in different pieces. Ours may refuse more than
//! hyper; a message that it accepts it must read as hyper does.

// The paths are written out since the fuzz targets include this file from another folder.
#[path = "http1/hyper.rs"]
mod by_hyper;
#[path = "http1/ours.rs"]
mod ours;
#[path = "http1/written.rs"]
mod written;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};

pub use ours::{End, Reading, read_requests, read_response};

/// A request that follows the others, and is served if the connection can still be used.
pub const CANARY: &[u8] = b"GET /canary HTTP/1.1\r\nhost: canary\r\n\r\n";

/// Field lines by name; those of one name in their order.
type Lines = Vec<(String, Vec<u8>)>;

/// A message as a parser has read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The start line.
    pub start: String,
    pub lines: Lines,
    /// The received part of the body.
    pub body: Vec<u8>,
    pub trailers: Lines,
    /// Whether the body is complete.
    pub is_complete: bool,
}

/// Compares how requests on one connection are read. The first byte chooses the pieces.
pub fn requests(bytes: &[u8]) {
    let [seed, bytes @ ..] = bytes else { return };
    written::check_request(bytes);
    for bytes in [bytes.to_vec(), [bytes, CANARY].concat()] {
        let ours = read_requests(pieces(*seed, &bytes));
        let (theirs, continues) = by_hyper::read_requests(pieces(!*seed, &bytes));
        check(&ours, &theirs, &bytes);
        let agree = ours.end == End::Open && ours.messages == theirs;
        assert!(!agree || ours.continues == continues, "100 Continue: {continues} by hyper, not {ours:?}");
    }
}

/// Compares how the response to a GET or a HEAD is read. The first byte chooses the pieces, the second the method.
pub fn responses(bytes: &[u8]) {
    let [seed, method, bytes @ ..] = bytes else { return };
    let method = if method % 4 == 0 { Method::HEAD } else { Method::GET };
    written::check_response(&method, bytes);
    let ours = read_response(&method, pieces(*seed, bytes));
    let (mut theirs, is_reusable) = by_hyper::read_response(&method, pieces(!*seed, bytes));
    for message in &mut theirs {
        // Our parser removes the transfer coding of a body that is not sent; hyper leaves it in the head.
        let is_bodiless = ["101 ", "204 ", "304 "].iter().any(|status| message.start.starts_with(status));
        if is_bodiless || method == Method::HEAD {
            message.lines.retain(|(name, _)| name != "transfer-encoding");
        }
    }
    check(&ours, &theirs, bytes);
    let is_refused = may_exceed_extensions(bytes);
    assert!(
        ours.end != End::Open || is_reusable || is_refused,
        "hyper does not use the connection again: {ours:?}"
    );
}

/// Compares the messages up to the point where ours refuses one or closes the connection.
fn check(ours: &Reading, theirs: &[Message], bytes: &[u8]) {
    for (place, message) in ours.messages.iter().enumerate() {
        let other = theirs.get(place).unwrap_or_else(|| panic!("hyper does not accept it: {message:?}"));
        assert_eq!((&message.start, &message.lines), (&other.start, &canonical(&other.lines)));
        if message.is_complete && !other.is_complete && may_exceed_extensions(bytes) {
            assert!(message.body.starts_with(&other.body));
            return;
        }
        if message.is_complete && !other.is_complete {
            assert!(may_have_bare_lf(message, bytes), "hyper does not accept it: {message:?}, {other:?}");
            assert_eq!(message.body, other.body);
            assert_eq!(place + 1, ours.messages.len(), "the connection ends after them");
            return;
        }
        if message.is_complete {
            assert_eq!((&message.body, &message.trailers), (&other.body, &other.trailers));
        } else {
            let length = message.body.len().min(other.body.len());
            assert_eq!(message.body[..length], other.body[..length]);
            // A fault that only we see may be in the last bytes of a body; an end that only hyper sees may not.
            assert!(!other.is_complete || matches!(ours.end, End::Body(_)), "{ours:?}, {other:?}");
        }
    }
    let may_have_more = matches!(ours.end, End::Head(_) | End::Body(_) | End::Interim | End::Closed);
    assert!(may_have_more || theirs.len() <= ours.messages.len(), "only hyper goes on: {ours:?}, {theirs:?}");
}

/// Whether a line of the trailers may end in a bare LF, the one case in which we accept what hyper may refuse. hyper has
/// room for as many trailers as there are CRLFs, and checks bytes behind an early empty line that it does not read. We
/// read such lines as they are read in a head, skip what is behind an early empty line, and close the connection.
fn may_have_bare_lf(message: &Message, bytes: &[u8]) -> bool {
    let is_chunked = message.lines.iter().any(|(name, _)| name == "transfer-encoding");
    is_chunked && bytes.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r')
}

/// Whether hyper may refuse a body because of its extensions, of which it accepts 16 KiB in all. We accept more if there is
/// data for them.
fn may_exceed_extensions(bytes: &[u8]) -> bool {
    bytes.len() > 16 * 1024 && bytes.contains(&b';')
}

/// Lines of hyper with one Content-Length in its shortest form: hyper leaves repeats and leading zeros as they are.
fn canonical(lines: &Lines) -> Lines {
    let mut lines = lines.clone();
    lines.dedup_by(|later, first| later.0 == "content-length" && first.0 == "content-length");
    for (_, value) in lines.iter_mut().filter(|(name, _)| name == "content-length") {
        let first = value.split(|&byte| byte == b',').next().unwrap_or_default().trim_ascii();
        let zeros = first.iter().take_while(|&&byte| byte == b'0').count();
        *value = first[zeros.min(first.len() - 1)..].to_vec();
    }
    lines
}

fn sorted<'a>(lines: impl Iterator<Item = (&'a str, &'a [u8])>) -> Lines {
    let mut lines: Lines = lines.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    lines
}

fn sorted_map(map: &HeaderMap) -> Lines {
    sorted(map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// The start of a response in one spelling.
fn status_line(status: u16, reason: &[u8], version: Version) -> String {
    format!("{status} {} {version:?}", reason.escape_ascii())
}

/// Cuts bytes into pieces of up to `seed` and one bytes; 255 leaves them whole.
pub fn pieces(seed: u8, bytes: &[u8]) -> impl Iterator<Item = Bytes> {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut state = u32::from(seed);
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length =
            if seed == 255 { rest.len() } else { 1 + (state >> 8) as usize % (1 + usize::from(seed)) };
        let piece = rest.split_to(length.min(rest.len()));
        (!piece.is_empty()).then_some(piece)
    })
}
