#![doc = include_str!("../README.md")]

mod document;
mod envoy_descriptors;
mod envoy_ratelimit;
mod haproxy;
mod kong;
mod model;
mod nginx;
mod note;
mod traefik;
mod writer;

use std::path::Path;

pub use self::model::Converted;
pub use self::note::{FileLine, Finding, SyntaxError};
pub use self::writer::{toml, toml_string};

/// The format of a file to convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
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
    /// The descriptors of Envoy's rate-limit service, for a tidegate in place of Envoy.
    EnvoyRatelimitRoutes,
}

impl SourceFormat {
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

/// A file to convert.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// Its name, as in messages.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The directory of the files that it names.
    pub directory: &'a Path,
}

/// Converts a file. What can't be converted is in the result; an error means that the file can't be read at all.
pub fn convert(format: SourceFormat, file: &SourceFile<'_>) -> Result<Converted, SyntaxError> {
    let SourceFile { name, text, directory } = *file;
    match format {
        SourceFormat::Nginx => nginx::convert(name, text, directory),
        SourceFormat::Haproxy => haproxy::convert(name, text, directory),
        SourceFormat::Traefik => traefik::convert(name, text),
        SourceFormat::Kong => kong::convert(name, text),
        SourceFormat::EnvoyRatelimit => envoy_descriptors::convert(name, text),
        SourceFormat::EnvoyRatelimitRoutes => envoy_ratelimit::convert(name, text),
    }
}
