//! Settings of tracing: the `[tracing]` table of the configuration.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::{Position, Url};

use crate::telemetry::Sampling;
use crate::tls::ClientTls;

/// The path at which collectors accept spans (OTLP specification).
const PATH: &str = "/v1/traces";

/// Settings of tracing.
#[derive(Clone, Debug)]
pub struct TracingSpec {
    /// Which requests are sampled.
    pub sampling: Sampling,
    /// Where their spans are exported; none if they are only passed on.
    pub export: Option<ExportSpec>,
}

/// How spans are exported.
#[derive(Clone, Debug)]
pub struct ExportSpec {
    /// The collector.
    pub endpoint: CollectorUrl,
    /// TLS to it, if its URL has `https`.
    pub tls: Option<ClientTls>,
    /// Headers of each request to it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The timeout of the export of a batch, with its retries.
    pub timeout: Duration,
    /// The attributes of the process, `service.name` among them.
    pub resource: Vec<(Box<str>, Box<str>)>,
}

/// The URL of a collector. Displayed without path and query, which may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectorUrl(Url);

/// Why a text is no URL of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL.
    #[error("this is no URL")]
    Malformed,
    /// Another scheme.
    #[error("spans are exported over http:// or https://")]
    Scheme,
    /// The URL has a user or a password.
    #[error("the URL of a collector has no user information")]
    UserInformation,
}

impl CollectorUrl {
    /// Parses the base URL of a collector, to which `/v1/traces` is added unless it ends with that.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let mut url = Url::parse(text).map_err(|_| EndpointError::Malformed)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInformation);
        }
        let base = url.path().trim_end_matches('/');
        if !base.ends_with(PATH) {
            let path = format!("{base}{PATH}");
            url.set_path(&path);
        }
        Ok(Self(url))
    }

    /// Whether it needs TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The URI of requests.
    pub(super) fn uri(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0[..Position::BeforePath])
    }
}

impl fmt::Debug for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_once() {
        for (text, uri) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("https://otlp.example.com/base/", "https://otlp.example.com/base/v1/traces"),
            ("https://[::1]:4318/v1/traces", "https://[::1]:4318/v1/traces"),
            ("http://h/v1/traces?key=a", "http://h/v1/traces?key=a"),
        ] {
            assert_eq!(CollectorUrl::parse(text).unwrap().uri(), uri, "{text}");
        }
    }

    #[test]
    fn other_urls_are_errors() {
        for (text, error) in [
            ("localhost:4318", EndpointError::Scheme),
            ("collector", EndpointError::Malformed),
            ("grpc://localhost:4317", EndpointError::Scheme),
            ("http://user@localhost:4318", EndpointError::UserInformation),
        ] {
            assert_eq!(CollectorUrl::parse(text), Err(error), "{text}");
        }
    }
}
