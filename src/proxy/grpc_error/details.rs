//! What a refusal says in the details of its status: when to try again.
//!
//! They are a `google.rpc.Status` with a `google.rpc.RetryInfo` in it (googleapis: `google/rpc/status.proto`,
//! `error_details.proto`), in protobuf's encoding (<https://protobuf.dev/programming-guides/encoding/>), which is short
//! enough to be written by hand: each field is its number and the kind of its value, and then the value; a message in a
//! message is a string of bytes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;

/// What kind of message is in an `Any`.
const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
/// The longest that a `google.protobuf.Duration` may be, in seconds: about ten thousand years.
const LONGEST: u64 = 315_576_000_000;

/// A message on its way to be one.
#[derive(Default)]
struct Message(Vec<u8>);

/// The value of `grpc-status-details-bin` for a refusal with this code and message, after which a client may try again
/// in so many seconds. Binary metadata is sent without padding (gRPC's PROTOCOL-HTTP2).
pub(super) fn retry_info(code: u16, message: &str, seconds: u64) -> String {
    let duration = Message::default().number(1, seconds.min(LONGEST));
    let retry_info = Message::default().bytes(1, &duration.0);
    let any = Message::default().bytes(1, RETRY_INFO).bytes(2, &retry_info.0);
    let status = Message::default().number(1, code.into()).bytes(2, message.as_bytes()).bytes(3, &any.0);
    BASE64_STANDARD_NO_PAD.encode(status.0)
}

impl Message {
    /// Adds a field with a number, which is not negative.
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

    /// Seven bits a byte, the lowest first; the eighth says that there are more.
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
    fn the_library_reads_what_was_written() {
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
            assert_eq!((delay.seconds.cast_unsigned(), delay.nanos), (seconds.min(LONGEST), 0));
        }
    }
}
