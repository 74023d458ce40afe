//! Reads the lines of one log.

use jiff::tz::TimeZone;

use super::dates::Dates;
use super::json_maps::{CADDY, CLOUDFLARE, ENVOY, Known, NGINX, TIDEGATE, TRAEFIK};
use super::known::Format;
use super::{alb, clf, envoy, haproxy, json, syslog, tidegate};
use crate::replay::entry::Entry;
use crate::replay::fields::{FieldMap, FieldMapError};
use crate::replay::line_error::LineError;

/// Reads the lines of one log. Times without an offset from UTC are in its time zone.
#[derive(Clone, Debug)]
pub struct LineReader {
    format: Format,
    /// The fields of a JSON format.
    map: FieldMap,
    dates: Dates,
}

impl LineReader {
    /// A reader of lines in this format.
    #[must_use]
    pub fn new(format: Format, zone: TimeZone) -> Self {
        let map = match &format {
            Format::JsonFields(map) => map.clone(),
            _ => FieldMap::known(known_fields(&format)),
        };
        Self { format, map, dates: Dates::new(zone) }
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

    /// Reads a line, which has no line ending. Fails if the line is not in the format, or is about a connection without a
    /// request.
    pub fn read<'l>(&mut self, line: &'l [u8]) -> Result<Entry<'l>, LineError> {
        let dates = &mut self.dates;
        match &self.format {
            Format::EnvoyText => return envoy::text(line, dates),
            Format::AlbText => return alb::text(line, dates),
            Format::TidegateText => return tidegate::text(line, dates),
            _ => {}
        }
        let message = syslog::message(line);
        let read = match &self.format {
            Format::Common => clf::common(message, dates),
            Format::Combined => clf::combined(message, dates),
            Format::VhostCombined => clf::vhost_combined(message, dates),
            Format::TraefikClf => clf::traefik(message, dates),
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
