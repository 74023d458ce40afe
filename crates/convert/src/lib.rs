#![doc = include_str!("../README.md")]

mod document;
mod envoy_descriptors;
mod envoy_rate;
mod envoy_ratelimit;
mod haproxy;
mod kong;
mod model;
mod names;
mod nginx;
mod note;
mod quote;
mod traefik;
mod writer;

use std::path::Path;

pub use self::model::Converted;
pub use self::note::{FileLine, Finding, SyntaxError};
pub use self::quote::toml_string;
pub use self::writer::toml;

/// What a file is converted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The configuration of nginx.
    Nginx,
    /// The configuration of HAProxy.
    Haproxy,
    /// The dynamic configuration of Traefik, in YAML or TOML.
    Traefik,
    /// The declarative configuration of Kong.
    Kong,
    /// The descriptors of Envoy's rate-limit service, for a service for Envoy.
    EnvoyRatelimit,
    /// The same descriptors, for a tidegate in place of Envoy.
    EnvoyRatelimitRoutes,
}

impl Origin {
    /// The name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
            Self::Traefik => "Traefik",
            Self::Kong => "Kong",
            Self::EnvoyRatelimit | Self::EnvoyRatelimitRoutes => "Envoy's rate-limit service",
        }
    }
}

/// A file of an origin.
#[derive(Clone, Copy, Debug)]
pub struct OriginFile<'a> {
    /// Its name, as in messages.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The directory of the files that it names.
    pub directory: &'a Path,
}

/// Converts a file. What can't be converted is in the result; an error means that the file can't be read at all.
pub fn convert(origin: Origin, file: &OriginFile<'_>) -> Result<Converted, SyntaxError> {
    let OriginFile { name, text, directory } = *file;
    match origin {
        Origin::Nginx => nginx::convert(name, text, directory),
        Origin::Haproxy => haproxy::convert(name, text, directory),
        Origin::Traefik => traefik::convert(name, text),
        Origin::Kong => kong::convert(name, text),
        Origin::EnvoyRatelimit => envoy_descriptors::convert(name, text),
        Origin::EnvoyRatelimitRoutes => envoy_ratelimit::convert(name, text),
    }
}
