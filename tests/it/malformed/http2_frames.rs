//! Frames that no client may send (RFC 9113, RFC 7541), each followed by a valid request, which must not be served as if the
//! connection were intact.

use std::io::Read as _;
use std::sync::mpsc;

use crate::support::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame,
};
use crate::support::{Frames, Tidegate, Upstream, block, get};

const PRIORITY: u8 = 2;
const PUSH_PROMISE: u8 = 5;
const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 0x20;
const WHOLE: u8 = END_STREAM | END_HEADERS;

/// A head with one more field, whose representation is given.
fn head_and(more: &[u8]) -> Vec<u8> {
    let head = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    [&block(&head)[..], more].concat()
}

/// A setting by its number.
fn setting(name: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// Invalid bytes, each with the name of its fault.
fn invalid() -> Vec<(&'static str, Vec<u8>)> {
    let head = head_and(&[]);
    let (first, rest) = head.split_at(5);
    let begun = frame(HEADERS, END_STREAM, 1, first);
    let open = frame(HEADERS, END_HEADERS, 1, &head);
    let continued = frame(CONTINUATION, END_HEADERS, 1, rest);
    vec![
        ("data on an idle stream", frame(DATA, END_STREAM, 1, b"x")),
        ("data on no stream", frame(DATA, END_STREAM, 0, b"x")),
        ("a head on no stream", frame(HEADERS, WHOLE, 0, &head)),
        ("a head on a server's stream", frame(HEADERS, WHOLE, 2, &head)),
        ("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, &head)),
        (
            "a continuation of another stream",
            [&begun[..], &frame(CONTINUATION, END_HEADERS, 3, rest)].concat(),
        ),
        ("a ping within a head", [&begun[..], &frame(PING, 0, 0, &[0; 8]), &continued].concat()),
        ("an unknown frame within a head", [&begun[..], &frame(0x16, 0, 1, b""), &continued].concat()),
        ("another head within a head", [&begun[..], &frame(HEADERS, WHOLE, 3, &head)].concat()),
        ("more padding than head", frame(HEADERS, WHOLE | PADDED, 1, &[&[255][..], &head].concat())),
        ("more padding than data", [&open[..], &frame(DATA, END_STREAM | PADDED, 1, &[9, b'h'])].concat()),
        ("a priority cut short", frame(HEADERS, WHOLE | HAS_PRIORITY, 1, &[0])),
        ("a priority on no stream", frame(PRIORITY, 0, 0, &[0; 5])),
        ("settings of a stream", frame(SETTINGS, 0, 1, &[])),
        ("settings cut short", frame(SETTINGS, 0, 0, &[0; 5])),
        ("settings in their acknowledgement", frame(SETTINGS, END_STREAM, 0, &[0; 6])),
        ("half a push", setting(2, 2)),
        ("too large a window", setting(4, 1 << 31)),
        ("too small a frame", setting(5, 1)),
        ("too large a frame", setting(5, 1 << 24)),
        ("a longer frame than may be", frame(HEADERS, WHOLE, 1, &[&head[..], &[0; 16_400]].concat())),
        ("a ping cut short", frame(PING, 0, 0, &[0; 7])),
        ("a ping of a stream", frame(PING, 0, 1, &[0; 8])),
        ("a goodbye of a stream", frame(GOAWAY, 0, 1, &[0; 8])),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2][..], &head].concat())),
        ("a reset of an idle stream", frame(RST_STREAM, 0, 1, &[0; 4])),
        ("a reset of no stream", frame(RST_STREAM, 0, 0, &[0; 4])),
        ("a reset cut short", [&open[..], &frame(RST_STREAM, 0, 1, &[0; 3])].concat()),
        ("no more window", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window cut short", frame(WINDOW_UPDATE, 0, 0, &[0; 3])),
        ("a window of an idle stream", frame(WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1])),
        ("a window beyond all bounds", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])),
        (
            "a stream that goes back",
            [frame(HEADERS, WHOLE, 5, &head), frame(HEADERS, WHOLE, 3, &head)].concat(),
        ),
    ]
}

/// Heads that can't be decompressed, each with the name of its fault.
fn not_decodable() -> Vec<(&'static str, Vec<u8>)> {
    let head = head_and(&[]);
    vec![
        ("a field that no table has", frame(HEADERS, WHOLE, 1, &head_and(&[0xff, 0xff, 0xff, 0x7f]))),
        ("the field of number zero", frame(HEADERS, WHOLE, 1, &head_and(&[0x80]))),
        ("a head cut short", frame(HEADERS, WHOLE, 1, &head[..head.len() - 3])),
        (
            "a string that ends in Huffman's end",
            frame(HEADERS, WHOLE, 1, &head_and(b"\0\x01x\x84\xff\xff\xff\xff")),
        ),
        ("a string with padding of zeros", frame(HEADERS, WHOLE, 1, &head_and(b"\0\x01x\x81\0"))),
        (
            "a larger table than was offered",
            frame(HEADERS, WHOLE, 1, &[&[0x3f, 0xe1, 0xff, 3][..], &head].concat()),
        ),
        ("a table's size behind a field", frame(HEADERS, WHOLE, 1, &head_and(&[0x20]))),
    ]
}

/// The error code of a GOAWAY or `RST_STREAM` frame, or 0 for a response on stream 7.
fn error_code(frame: Frame) -> Option<u32> {
    match frame.kind {
        GOAWAY => Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap())),
        RST_STREAM => Some(u32::from_be_bytes(frame.payload.try_into().unwrap())),
        HEADERS if frame.stream == 7 => Some(0),
        _ => None,
    }
}

#[test]
fn invalid_frames_end_their_stream_or_connection() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    for (fault, bytes) in invalid().into_iter().chain(not_decodable()) {
        let mut connection = Frames::connect(proxy.addr(), &[]);
        // The proxy may close the connection before it has read all.
        let _ = connection.raw(&bytes);
        let _ = connection.try_send(HEADERS, WHOLE, 7, &head_and(&[]));
        let code = std::iter::from_fn(|| connection.read()).find_map(error_code);
        assert!(code != Some(0), "{fault} is accepted");
    }
    let good = frames::frame(HEADERS, END_STREAM, 1, &head_and(&[])[..5]);
    let mut connection = Frames::connect(proxy.addr(), &[]);
    let unknown = frame(0x16, 0xff, 0, b"xyz");
    let rest = frame(CONTINUATION, END_HEADERS, 1, &head_and(&[])[5..]);
    connection.raw(&[unknown, good, rest].concat()).unwrap();
    assert_eq!(
        connection.status(1),
        Some(Ok(200)),
        "frames of unknown types and several fragments of a head are valid"
    );
}

/// The error code of a connection that ends because a head can't be decompressed: `PROTOCOL_ERROR`, which h2 sends for every
/// invalid head (`decode_frame` in its `codec/framed_read.rs`). RFC 9113 §4.3 requires `COMPRESSION_ERROR`, 9.
const NOT_DECODABLE: u32 = 1;

#[test]
fn a_request_that_cannot_be_decompressed_ends_its_connection() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    for (fault, bytes) in not_decodable() {
        let mut connection = Frames::connect(proxy.addr(), &[]);
        connection.raw(&bytes).unwrap();
        assert_eq!(connection.end(), Some(NOT_DECODABLE), "{fault}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn a_response_that_cannot_be_decompressed_ends_its_connection() {
    for (fault, bytes) in not_decodable() {
        let (sender, codes) = mpsc::channel();
        let server = Upstream::scripted(move |caller| {
            caller.stream().read_exact(&mut [0; 24]).unwrap();
            let mut connection = Frames::over(caller.stream().try_clone().unwrap());
            connection.send(SETTINGS, 0, 0, &[]);
            if connection.find(HEADERS).is_some() {
                connection.raw(&bytes).unwrap();
                sender.send(connection.end()).unwrap();
            }
        });
        let proxy = Tidegate::start(&format!(
            "[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n[[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
            server.url()
        ));
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502, "{fault}");
        assert_eq!(codes.recv().unwrap(), Some(NOT_DECODABLE), "{fault}");
    }
}
