#![doc = include_str!("../README.md")]

mod body;
mod chunked;
mod decoded;
mod fields;
mod head;
mod name;
mod number;
mod parse;
mod request;
mod response;
mod title_case;
mod write;

pub use body::BodyDecoder;
pub use decoded::{BodyFault, Decoded};
pub use fields::{FieldLine, Fields, Values, ascii};
pub use head::{RequestHead, ResponseHead};
pub use name::{FieldName, NameSet, names};
pub use number::{
    LOWER_HEX, UPPER_HEX, hex_digits, is_digits, parse_decimal, parse_decimal_saturating, push_decimal,
};
pub use parse::{Framing, HeadLimits, MAX_INTERIM, ParseError, content_length, has_only_chunked_coding};
pub use request::{ParsedRequest, parse_request};
pub use response::{ParsedResponse, parse_response};
pub use title_case::title_case;
pub use write::{BodyEncoder, ResponseFraming, write_continue, write_interim, write_request, write_response};
