//! Bodies about the process and its configuration.

use serde::{Deserialize, Serialize};

/// An error or a warning of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemInfo {
    /// The file; empty if it could not be read.
    pub file: String,
    /// The line of its start, from 1; none if it is about the whole file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    /// The character in that line at which it starts, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub column: Option<usize>,
    /// The line of its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end_line: Option<usize>,
    /// The character after its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end_column: Option<usize>,
    /// The message of the problem.
    pub message: String,
    /// How to correct it.
    #[serde(default)]
    pub help: Vec<String>,
}

/// The request body of `/v1/reload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadRequest {}

/// The response of `/v1/reload` if the configuration was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadInfo {
    /// The configuration file.
    pub file: String,
    /// The SHA-256 hash of its text, which the texts of included files follow, in hexadecimal digits.
    pub sha256: String,
    /// The changes, one line for each kind; empty if nothing has changed.
    pub changes: Vec<String>,
    /// The warnings of the file.
    pub warnings: Vec<ProblemInfo>,
}

/// The response of `/v1/reload` if the configuration was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadError {
    /// Why the previous configuration is still served.
    pub error: String,
    /// How to correct it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub help: Option<String>,
    /// The errors of the file; empty if it is valid, and could not be applied.
    #[serde(default)]
    pub problems: Vec<ProblemInfo>,
}

/// The response of `/v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusInfo {
    /// The version of tidegate.
    pub version: String,
    /// `ready`; `leaving` or `draining` while the process shuts down.
    pub state: String,
    /// The start of the process, in RFC 3339.
    pub started: String,
    /// The time since then.
    pub uptime: f64,
    /// The configuration that is served.
    pub configuration: ConfigInfo,
    /// Where clients connect.
    pub listeners: Vec<ListenerInfo>,
    /// The number of routes.
    pub routes: usize,
    /// The limits, in the order of the file.
    pub limits: Vec<LimitStatusInfo>,
    /// Where limits are counted.
    pub store: StoreInfo,
    /// The upstreams, by name.
    pub upstreams: Vec<UpstreamInfo>,
    /// The certificates of `[acme]`; none without it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acme: Option<AcmeInfo>,
}

/// The configuration that is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigInfo {
    /// The configuration file.
    pub file: String,
    /// The SHA-256 hash of the text that is served, which the texts of included files follow, in hexadecimal digits.
    pub sha256: String,
    /// When that was loaded, in RFC 3339.
    pub loaded: String,
    /// Why the last reload has failed; none if it has not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_error: Option<ConfigError>,
}

/// Why a reload has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigError {
    /// When, in RFC 3339.
    pub at: String,
    /// Why, as in the response of `/v1/reload`.
    #[serde(flatten)]
    pub failure: ReloadError,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerInfo {
    /// Its address.
    pub address: String,
    /// Whether clients use TLS.
    pub tls: bool,
    /// Its open connections.
    pub connections: usize,
}

/// A limit of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStatusInfo {
    /// Its name.
    pub name: String,
    /// Its algorithm, by its name in the configuration.
    pub algorithm: String,
    /// `enforce`, `shadow` or `mark`.
    pub mode: String,
    /// Its rate and what belongs to it, such as `600/minute, burst 100`.
    pub numbers: String,
    /// The most units that can be available at once.
    pub limit: u64,
}

/// Where limits are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// `memory` or `redis`.
    pub kind: String,
    /// The address of Redis, without its password.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// `up`, or `unreachable` if a worker does not reach Redis.
    pub state: String,
    /// The keys that this process counts itself.
    pub keys: usize,
    /// The keys of which Redis does not know all units yet, after an outage.
    pub owed_keys: usize,
}

/// An upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamInfo {
    /// Its name, or its URL without the path.
    pub name: String,
    /// Whether its servers have health checks; without them all of their addresses count as healthy.
    pub health_checks: bool,
    /// Requests that wait for a connection.
    pub pending: usize,
    /// Its servers.
    pub servers: Vec<ServerInfo>,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its URL without the path.
    pub server: String,
    /// Its addresses; none before its name is resolved.
    pub addresses: usize,
    /// The addresses that are healthy.
    pub healthy: usize,
    /// The addresses that are ejected after failures.
    pub ejected: usize,
    /// Open connections to it.
    pub connections: usize,
}

/// The certificates that are obtained from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeInfo {
    /// Its host.
    pub server: String,
    /// One for each name.
    pub certificates: Vec<AcmeCertificateInfo>,
}

/// The certificate of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeCertificateInfo {
    /// The name.
    pub name: String,
    /// `obtained`; `pending` before the first attempt; or `failed` if the last attempt has.
    pub state: String,
    /// When the certificate in use expires, in RFC 3339; none if there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_after: Option<String>,
    /// When it is obtained or renewed next, in RFC 3339.
    pub next_attempt: String,
    /// Why the last attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_error: Option<AcmeErrorInfo>,
}

/// Why a certificate was not obtained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeErrorInfo {
    /// When, in RFC 3339.
    pub at: String,
    /// Why, with the text of the ACME server.
    pub error: String,
}
