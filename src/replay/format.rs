//! The formats of access logs.

mod alb;
mod clf;
mod dates;
mod detect;
mod envoy;
mod escapes;
mod haproxy;
mod json;
mod json_maps;
mod json_values;
mod known;
mod reader;
mod request_line;
mod scanner;
mod syslog;
mod tidegate;

pub use self::dates::TimeUnit;
pub use self::detect::{FormatError, check_format, detect_format};
pub use self::known::Format;
pub use self::reader::LineReader;
pub(super) use self::request_line::{address, address_with_port};

#[cfg(test)]
mod tests;
