//! HTTP/1.1 messages as bytes: parsers and writers of heads and bodies (RFC 9112).
//!
//! Nothing here uses sockets or clocks. The whole proxy works on [`RequestHead`] and [`ResponseHead`]; messages of HTTP/2
//! are converted to them and back.
//!
//! # Parsing a request
//! A head is parsed when it is complete. The framing determines how the body after it is decoded:
//! ```
//! use bytes::{Bytes, BytesMut};
//! use tidegate::http1::{BodyDecoder, Decoded, FieldName, Framing, HeadLimits, names, parse_request};
//!
//! let limits = HeadLimits { max_bytes: 32 * 1024, max_headers: 100 };
//! let mut buffer = BytesMut::from("POST /orders?id=7 HTTP/1.1\r\nHost: example.com\r\nX-Key: a\r\n");
//! assert!(parse_request(&buffer, 0, limits, None)?.is_none(), "incomplete");
//!
//! let seen = buffer.len();
//! buffer.extend_from_slice(b"Content-Length: 5\r\n\r\nhello");
//! let request = parse_request(&buffer, seen, limits, None)?.expect("a complete head");
//! assert_eq!(request.head.uri.path(), "/orders");
//! assert_eq!(request.head.fields.get(names::HOST), Some(&b"example.com"[..]));
//! assert_eq!(request.head.fields.get_str(FieldName::new(b"x-key")), Some("a"));
//! assert!(request.keeps_alive && request.framing == Framing::Length(5));
//!
//! let mut body = BodyDecoder::for_request(request.framing);
//! let _ = buffer.split_to(request.length);
//! assert_eq!(body.decode(&mut buffer)?, Some(Decoded::Data(Bytes::from("hello"))));
//! assert!(body.is_end());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Ambiguous heads are errors, each with the status code of the response:
//! ```
//! use tidegate::http1::{HeadLimits, parse_request};
//!
//! let limits = HeadLimits { max_bytes: 32 * 1024, max_headers: 100 };
//! let head = b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n";
//! let error = parse_request(head, 0, limits, None).unwrap_err();
//! assert_eq!(error.to_string(), "invalid Content-Length");
//! assert_eq!(error.status(), 400);
//! ```
//! # Writing a response
//! ```
//! use http::{StatusCode, Version};
//! use tidegate::http1::{BodyEncoder, Framing, ResponseHead, names, write_response};
//!
//! let mut head = ResponseHead::new(StatusCode::OK);
//! head.fields.push(names::CONTENT_TYPE, b"text/plain");
//! let framing = Framing::Chunked;
//! let mut out = Vec::new();
//! write_response(&mut out, &head, (Version::HTTP_11, framing), true, b"Sun, 06 Nov 1994 08:49:37 GMT");
//!
//! let mut encoder = BodyEncoder::new(framing, &head.fields, false);
//! let length = encoder.start_data(5, &mut out);
//! out.extend_from_slice(&b"hello"[..length]);
//! out.extend_from_slice(encoder.data_suffix(5));
//! assert!(encoder.finish(None, &mut out));
//! assert_eq!(
//!     String::from_utf8(out)?,
//!     "HTTP/1.1 200 OK\r\n\
//!      content-type: text/plain\r\n\
//!      date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
//!      transfer-encoding: chunked\r\n\
//!      connection: close\r\n\r\n\
//!      5\r\nhello\r\n0\r\n\r\n"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
mod trailers;
mod write;

pub use body::BodyDecoder;
pub use decoded::{BodyFault, Decoded};
pub use fields::{Field, Fields, Values, ascii};
pub use head::{RequestHead, ResponseHead};
pub use name::{FieldName, NameSet, names};
pub use number::{parse_decimal, parse_decimal_saturating, push_decimal};
pub use parse::{Framing, HeadLimits, MAX_INTERIM, ParseError, content_length, has_only_chunked_coding};
pub use request::{ParsedRequest, parse_request};
pub use response::{ParsedResponse, parse_response};
pub use write::{BodyEncoder, write_continue, write_request, write_response};
