//! The details of a gRPC error status: when to try again.
//!
//! The details are a `google.rpc.Status` with a `google.rpc.RetryInfo` in it (googleapis: `google/rpc/status.proto`,
//! `error_details.proto`), in protobuf's encoding (<https://protobuf.dev/programming-guides/encoding/>). They are
//! encoded by hand to avoid a protobuf dependency: each field is a tag (field number and wire type), and then the value;
//! a nested message is a string of bytes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;

/// The type URL of the message in the `Any`.
const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
/// The longest `google.protobuf.Duration`, in seconds: about ten thousand years.
const MAX_DURATION: u64 = 315_576_000_000;

/// An encoder of one protobuf message.
#[derive(Default)]
struct Message(Vec<u8>);

/// The value of `grpc-status-details-bin` for an error with this code and message, after which a client may retry in
/// `seconds`. Binary metadata is sent without padding (gRPC's PROTOCOL-HTTP2).
pub(super) fn retry_info(code: u16, message: &str, seconds: u64) -> String {
    let duration = Message::default().number(1, seconds.min(MAX_DURATION));
    let retry_info = Message::default().bytes(1, &duration.0);
    let any = Message::default().bytes(1, RETRY_INFO).bytes(2, &retry_info.0);
    let status = Message::default().number(1, code.into()).bytes(2, message.as_bytes()).bytes(3, &any.0);
    BASE64_STANDARD_NO_PAD.encode(status.0)
}

impl Message {
    /// Adds a field with a number that is not negative.
    fn number(mut self, field: u8, value: u64) -> Self {
        self.0.push(field << 3);
        self.varint(value);
        self
    }

    /// Adds a field with a string or a message.
    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a varint: seven bits a byte, the lowest first; the eighth bit is set if more bytes follow.
    fn varint(&mut self, mut rest: u64) {
        loop {
            let [low, ..] = rest.to_le_bytes();
            rest >>= 7;
            if rest == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use tonic_types::pb::{RetryInfo, Status};

    use super::*;

    #[test]
    fn prost_decodes_the_encoded_status() {
        for (message, seconds) in [
            ("", 0),
            ("wait", 1),
            ("\u{7f}100 % für heute\n", 127),
            (&*"long".repeat(100), 128),
            ("never", u64::MAX),
        ] {
            let header = retry_info(8, message, seconds);
            let bytes = BASE64_STANDARD_NO_PAD.decode(header).unwrap();
            let status = Status::decode(&*bytes).unwrap();
            assert_eq!((status.code, &*status.message, status.details.len()), (8, message, 1));
            assert_eq!(status.details[0].type_url.as_bytes(), RETRY_INFO);
            let delay = RetryInfo::decode(&*status.details[0].value).unwrap().retry_delay.unwrap();
            assert_eq!((delay.seconds.cast_unsigned(), delay.nanos), (seconds.min(MAX_DURATION), 0));
        }
    }
}
