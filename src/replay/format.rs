//! The formats of access logs: finds the format of a log, and reads its lines.

mod alb;
mod clf;
mod container;
mod dates;
mod envoy;
mod haproxy;
mod json;
mod json_values;
mod known;
mod nginx_proxy_manager;
mod request_line;
mod scanner;
mod tidegate;
mod w3c;

use std::borrow::Cow;

use jiff::tz::TimeZone;
use thiserror::Error;

use self::container::{LineParts, container_message};
use self::dates::Dates;
pub use self::dates::TimeUnit;
use self::json::{CADDY, CLOUDFLARE, ENVOY, Known, NGINX, TIDEGATE, TRAEFIK};
pub use self::known::Format;
pub(super) use self::request_line::{address, address_with_port};
use self::scanner::syslog_message;
use super::entry::{LineError, LoggedRequest};
use super::fields::{FieldMap, FieldMapError};

/// Reads the lines of one log. Times without an offset from UTC are in its time zone.
#[derive(Clone, Debug)]
pub struct LineReader {
    format: Format,
    /// The fields of a JSON format, or those that the last directive of the W3C's format has named.
    map: FieldMap,
    dates: Dates,
    /// Those of lines that a container runtime has divided.
    parts: LineParts,
}

impl LineReader {
    /// A reader of lines in this format.
    #[must_use]
    pub fn new(format: Format, zone: TimeZone) -> Self {
        let map = match &format {
            Format::JsonFields(map) => map.clone(),
            _ => FieldMap::known(known_fields(&format)),
        };
        Self { format, map, dates: Dates::new(zone), parts: LineParts::default() }
    }

    /// The reader with a further field of JSON lines, by its path. Entries of other formats have all fields anyway. Fails if
    /// there are too many fields.
    pub fn with_field(mut self, path: &str) -> Result<Self, FieldMapError> {
        self.map = self.map.with_field(path)?;
        Ok(self)
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Reads a line, which has no line ending, perhaps as a container runtime has written it: parts of a line are joined. Fails if
    /// the line is not in the format, if it is about a connection without a request, or if further parts of it follow.
    pub fn read<'l>(&mut self, line: &'l [u8]) -> Result<LoggedRequest<'l>, LineError> {
        match self.parts.whole(line)? {
            Cow::Borrowed(message) => {
                self.read_message(message).map_err(|error| error.after(line.len() - message.len()))
            }
            Cow::Owned(message) => self.read_message(&message).map(LoggedRequest::into_owned),
        }
    }

    fn read_message<'l>(&mut self, line: &'l [u8]) -> Result<LoggedRequest<'l>, LineError> {
        let dates = &mut self.dates;
        match &self.format {
            Format::EnvoyText => return envoy::text(line, dates),
            Format::AlbText => return alb::text(line, dates),
            Format::ElbText => return alb::classic(line, dates),
            Format::W3c => return w3c::text(line, &mut self.map, dates),
            Format::TidegateText => return tidegate::text(line, dates),
            _ => {}
        }
        let message = syslog_message(line);
        let read = match &self.format {
            Format::Common => clf::common(message, dates),
            Format::Combined => clf::combined(message, dates),
            Format::VhostCombined => clf::vhost_combined(message, dates),
            Format::TraefikClf => clf::traefik(message, dates),
            Format::NginxProxyManager => nginx_proxy_manager::text(message, dates),
            Format::HaproxyHttp => haproxy::http(message, dates),
            Format::TidegateJson => json::parse(&self.map, message, dates).map(tidegate::with_whole_target),
            _ => json::parse(&self.map, message, dates),
        };
        read.map_err(|error| error.after(line.len() - message.len()))
    }
}

/// The fields of a JSON format; none of a text format.
fn known_fields(format: &Format) -> Known {
    match format {
        Format::NginxJson => NGINX,
        Format::CaddyJson => CADDY,
        Format::TraefikJson => TRAEFIK,
        Format::EnvoyJson => ENVOY,
        Format::CloudflareJson => CLOUDFLARE,
        Format::TidegateJson => TIDEGATE,
        _ => &[],
    }
}

/// How many lines are tried together.
const LINES: usize = 100;
/// How many names of a JSON line's fields an error has.
const MAX_NAMES: usize = 12;

/// Why the format of a log is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The log is in UTF-16.
    #[error("the log is in UTF-16: convert it, for example with `iconv -f UTF-16 -t UTF-8`")]
    Utf16,
    /// The log is compressed in a way that is not read.
    #[error("the log is compressed with {by}: decompress it first, for example with `{command}`")]
    Compressed {
        /// The program that has compressed it.
        by: &'static str,
        /// A command that decompresses it.
        command: &'static str,
    },
    /// No format fits.
    #[error("the lines are in no known format; the nearest is `{nearest}`, but {error}")]
    Unknown {
        /// The format that fits the longest part of the first line.
        nearest: &'static str,
        /// Why the first line is not in this format.
        error: LineError,
    },
    /// The lines are JSON of an unknown format.
    #[error(
        "the lines are JSON, but in no known format: name the fields with --fields; the first line has {0}"
    )]
    UnknownJson(String),
    /// The format that was named does not fit, and another one does.
    #[error("the lines are not in the format `{named}` ({error}), but in `{right}`")]
    Wrong {
        /// The format that was named.
        named: &'static str,
        /// Why the first line is not in this format.
        error: LineError,
        /// The format that fits.
        right: &'static str,
    },
    /// The format that was named does not fit, nor does any other.
    #[error("the lines are not in the format `{named}`: {error}")]
    WrongAlone {
        /// The format that was named.
        named: &'static str,
        /// Why the first line is not in this format.
        error: LineError,
    },
}

/// How well a format fits.
struct FormatFit {
    format: Format,
    /// The number of lines with a request.
    requests: usize,
    /// The number of lines without one, which are in the format too.
    others: usize,
    /// The error of the first line that does not fit.
    error: Option<LineError>,
}

/// The format of a log, from the first of its lines that any format fits. Of several that fit nearly as well as the best, the
/// most specific one counts. Fails if no known format fits any line.
pub fn detect_format<L: AsRef<[u8]>>(lines: &[L], zone: &TimeZone) -> Result<Format, FormatError> {
    let fits = |lines: &[L]| -> Vec<FormatFit> {
        Format::KNOWN.into_iter().map(|format| FormatFit::of(format, lines, zone)).collect()
    };
    let (first, rest) = lines.split_at(lines.len().min(LINES));
    let first_fits = fits(first);
    if let Some(format) =
        best(&first_fits).or_else(|| rest.chunks(LINES).find_map(|lines| best(&fits(lines))))
    {
        return Ok(format);
    }
    if let Some(names) = lines.iter().find_map(|line| field_names(line.as_ref())) {
        return Err(FormatError::UnknownJson(names));
    }
    let column = |fit: &&FormatFit| fit.error.as_ref().map_or(0, LineError::column);
    let nearest = first_fits.iter().max_by_key(column);
    let error = nearest.and_then(|fit| fit.error.clone()).unwrap_or(LineError::NoRequest);
    Err(FormatError::Unknown { nearest: nearest.map_or("", |fit| fit.format.name()), error })
}

/// Checks that a format that was named by hand fits at least one of the first lines.
pub fn check_format<L: AsRef<[u8]>>(
    format: &Format,
    lines: &[L],
    zone: &TimeZone,
) -> Result<(), FormatError> {
    let mut fits = lines.chunks(LINES).map(|lines| FormatFit::of(format.clone(), lines, zone));
    let Some(first) = fits.next() else { return Ok(()) };
    let Some(error) = first.error.filter(|_| first.requests + first.others == 0) else { return Ok(()) };
    if fits.any(|fit| fit.requests + fit.others > 0) {
        return Ok(());
    }
    let named = format.name();
    Err(match detect_format(lines, zone) {
        Ok(right) => FormatError::Wrong { named, error, right: right.name() },
        Err(_) => FormatError::WrongAlone { named, error },
    })
}

impl FormatFit {
    fn of<L: AsRef<[u8]>>(format: Format, lines: &[L], zone: &TimeZone) -> Self {
        let mut reader = LineReader::new(format.clone(), zone.clone());
        let mut fit = Self { format, requests: 0, others: 0, error: None };
        for line in lines {
            match reader.read(line.as_ref()) {
                Ok(_) => fit.requests += 1,
                Err(LineError::NoRequest | LineError::Directive) => fit.others += 1,
                Err(LineError::Part) => {}
                Err(error) => drop(fit.error.get_or_insert(error)),
            }
        }
        fit
    }
}

/// The first format that fits at least nine tenths as many lines as the best one.
fn best(fits: &[FormatFit]) -> Option<Format> {
    let numbers: [fn(&FormatFit) -> usize; 2] = [|fit| fit.requests, |fit| fit.others];
    numbers.into_iter().find_map(|number| {
        let most = fits.iter().map(number).max().filter(|most| *most > 0)?;
        fits.iter().find(|fit| number(fit) * 10 >= most * 9).map(|fit| fit.format.clone())
    })
}

/// The names of the fields of a JSON object; none if the line is not one.
fn field_names(line: &[u8]) -> Option<String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&container_message(line)).ok()?;
    let mut names: Vec<&str> = object.keys().map(String::as_str).take(MAX_NAMES).collect();
    if object.len() > MAX_NAMES {
        names.push("…");
    }
    Some(names.join(", "))
}

#[cfg(test)]
mod tests;
