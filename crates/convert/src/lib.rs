#![doc = include_str!("../README.md")]

mod account;
mod document;
mod duration;
mod envoy_descriptors;
mod envoy_ratelimit;
mod envoy_refusals;
mod haproxy;
mod kong;
mod kubernetes;
mod model;
mod nginx;
mod note;
mod restrictions;
mod route;
mod source;
mod traefik;
mod valid;
mod writer;

pub use self::model::Converted;
pub use self::note::{FileLine, Finding, SyntaxError};
pub use self::restrictions::{Account, Tally};
pub use self::source::SourceFile;
pub use self::writer::{toml, toml_string};

/// The format of files to convert.
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
    /// Objects of Kubernetes: Ingress, `HTTPRoute`, and those of Envoy Gateway and Traefik.
    Kubernetes,
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
            Self::Kubernetes => "Kubernetes",
            Self::EnvoyRatelimit | Self::EnvoyRatelimitRoutes => "Envoy's rate-limit service",
        }
    }
}

/// Converts files, which are one configuration together. What can't be converted is in the result; an error means that a file
/// can't be read at all.
pub fn convert(format: SourceFormat, files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let mut converted = match format {
        SourceFormat::Nginx => nginx::convert(files),
        SourceFormat::Haproxy => haproxy::convert(files),
        SourceFormat::Traefik => traefik::convert(files),
        SourceFormat::Kong => kong::convert(files),
        SourceFormat::Kubernetes => kubernetes::convert(files),
        SourceFormat::EnvoyRatelimit => envoy_descriptors::convert(files),
        SourceFormat::EnvoyRatelimitRoutes => envoy_ratelimit::convert(files),
    }
    .map_err(|error| in_template(error, files))?;
    converted.add_refusals();
    valid::correct(&mut converted);
    account::account(&mut converted);
    Ok(converted)
}

/// Says of an error that its file is a template, if it is one.
fn in_template(error: SyntaxError, files: &[SourceFile<'_>]) -> SyntaxError {
    let is_template = |file: &SourceFile<'_>| *file.name == *error.place.file && file.text.contains("{{");
    if !files.iter().any(is_template) {
        return error;
    }
    let message = format!("{}: this is a template: convert the file that is made of it", error.message);
    SyntaxError { message, ..error }
}
