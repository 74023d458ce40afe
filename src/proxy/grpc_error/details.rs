//! The details of a gRPC error status: when to try again. They are a `google.rpc.Status` with a `google.rpc.RetryInfo` in it
//! (googleapis: `google/rpc/status.proto`, `error_details.proto`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;

use crate::telemetry::protobuf::Message;

/// The type URL of the message in the `Any`.
const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
/// The longest `google.protobuf.Duration`, in seconds: about ten thousand years.
const MAX_DURATION: u64 = 315_576_000_000;

/// The value of `grpc-status-details-bin` for an error with this code and message, after which a client may retry in
/// `seconds`. Binary metadata is sent without padding (gRPC's PROTOCOL-HTTP2).
pub(super) fn retry_info(code: u16, message: &str, seconds: u64) -> String {
    let mut status = Message::default();
    status.integer(1, code.into());
    status.bytes(2, message.as_bytes());
    status.nested(3, |any| {
        any.bytes(1, RETRY_INFO);
        any.nested(2, |info| info.nested(1, |delay| delay.integer(1, seconds.min(MAX_DURATION))));
    });
    BASE64_STANDARD_NO_PAD.encode(status.into_bytes())
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
