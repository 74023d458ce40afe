//! The names of formats.

use std::fmt;

use crate::replay::fields::FieldMap;
use crate::time::Micros;

/// The format of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// The Common Log Format. nginx stamps the end of a request, Apache its arrival; both without a fraction.
    Common,
    /// The common format with referer and user agent.
    Combined,
    /// Apache's combined format with the virtual host in front.
    VhostCombined,
    /// JSON with the names of nginx's variables.
    NginxJson,
    /// Caddy's JSON.
    CaddyJson,
    /// Traefik's extension of the common format.
    TraefikClf,
    /// Traefik's JSON.
    TraefikJson,
    /// Envoy's default format, or Istio's.
    EnvoyText,
    /// JSON with the names of Envoy's documentation.
    EnvoyJson,
    /// `HAProxy` with `option httplog`.
    HaproxyHttp,
    /// Application Load Balancers of AWS.
    AlbText,
    /// Classic Load Balancers of AWS.
    ElbText,
    /// Nginx Proxy Manager.
    NginxProxyManager,
    /// The extended format of the W3C, in which IIS and `CloudFront` write.
    W3c,
    /// Cloudflare Logpush.
    CloudflareJson,
    /// tidegate's own log with `access = "json"`.
    TidegateJson,
    /// tidegate's own log with `access = "text"`.
    TidegateText,
    /// Any other JSON, with these fields.
    JsonFields(FieldMap),
}

impl Format {
    /// The formats that need no further settings. Of two that fit the same lines, the more specific one comes first.
    pub const KNOWN: [Self; 17] = [
        Self::TidegateJson,
        Self::TidegateText,
        Self::TraefikClf,
        Self::VhostCombined,
        Self::Combined,
        Self::Common,
        Self::HaproxyHttp,
        Self::EnvoyText,
        Self::AlbText,
        Self::ElbText,
        Self::NginxProxyManager,
        Self::W3c,
        Self::CaddyJson,
        Self::TraefikJson,
        Self::EnvoyJson,
        Self::CloudflareJson,
        Self::NginxJson,
    ];

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Combined => "combined",
            Self::VhostCombined => "vhost-combined",
            Self::NginxJson => "nginx-json",
            Self::CaddyJson => "caddy-json",
            Self::TraefikClf => "traefik-clf",
            Self::TraefikJson => "traefik-json",
            Self::EnvoyText => "envoy-text",
            Self::EnvoyJson => "envoy-json",
            Self::HaproxyHttp => "haproxy-http",
            Self::AlbText => "alb",
            Self::ElbText => "elb",
            Self::NginxProxyManager => "nginx-proxy-manager",
            Self::W3c => "w3c",
            Self::CloudflareJson => "cloudflare-json",
            Self::TidegateJson => "tidegate-json",
            Self::TidegateText => "tidegate-text",
            Self::JsonFields(_) => "json",
        }
    }

    /// How much later than its arrival a request is logged at most, with few exceptions. Servers log a request when it ends;
    /// cloud services collect the lines of many servers, and write them in no order.
    #[must_use]
    pub fn window(&self) -> Micros {
        let is_collected = matches!(self, Self::AlbText | Self::ElbText | Self::W3c | Self::CloudflareJson);
        let seconds = if is_collected { 300 } else { 10 };
        Micros(seconds * Micros::SECOND.0)
    }

    /// The format with this name; none for `json`, which needs fields.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|format| format.name() == name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
