//! The connection preface of HTTP/2 (RFC 9113 §3.4).

/// The first bytes that a client sends.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The response to a missing preface: an empty SETTINGS frame, which every server sends first, and a GOAWAY frame
/// with `PROTOCOL_ERROR`.
pub(super) const PREFACE_MISSING: [u8; 26] = *b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01";
