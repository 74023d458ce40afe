//! HTTP/1.1 as bytes: heads, bodies, and how both are read and written (RFC 9112).
//!
//! Nothing here knows sockets or clocks. [`RequestHead`] and [`ResponseHead`] are what the whole proxy works on; messages
//! over HTTP/2 are converted to them and back.

mod body;
mod chunked;
mod convert;
mod decoded;
mod fields;
mod head;
mod name;
mod number;
mod parse;
mod request;
mod response;
mod write;

pub use body::BodyDecoder;
pub use decoded::{BodyFault, Decoded};
pub use fields::{Field, Fields, Values, ascii};
pub use head::{RequestHead, ResponseHead};
pub use name::{FieldName, NameSet, names};
pub use number::{parse_decimal, push_decimal};
pub use parse::{Framing, HeadLimits, MAX_INTERIM, ParseError, content_length, is_plainly_coded};
pub use request::{ParsedRequest, parse_request};
pub use response::{ParsedResponse, parse_response};
pub use write::{BodyEncoder, write_continue, write_request, write_response};
