//! A valid configuration, and facts about its file.

use std::path::PathBuf;
use std::time::Duration;

use super::fingerprint::Fingerprint;
use super::report::Report;
use super::secrets::{self, Variables};
use crate::acme::AcmeSpec;
use crate::admin::AdminSpec;
use crate::id_vec::IdVec;
use crate::limit::PolicyId;
use crate::otlp::TracingSpec;
use crate::proxy::ConfigSnapshot;
use crate::server::ListenerSpec;
use crate::store::StoreSpec;
use crate::telemetry::LogSpec;

/// A valid configuration.
#[derive(Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<ListenerSpec>,
    /// Threads that serve; at least one.
    pub workers: usize,
    /// How long a stopping process still accepts new requests while it reports that it is not ready.
    pub shutdown_delay: Duration,
    /// How long it then waits for requests in flight.
    pub shutdown_grace: Duration,
    /// Whether the file is reloaded whenever it changes.
    pub watch: bool,
    /// Where limits are counted.
    pub store: StoreSpec,
    /// The most keys that this process counts itself.
    pub max_keys: usize,
    /// Routes, limits, upstreams and the response policy.
    pub snapshot: ConfigSnapshot,
    /// Settings of the log.
    pub log: LogSpec,
    /// Settings of tracing, if it is on.
    pub tracing: Option<TracingSpec>,
    /// The admin interface, if there is one.
    pub admin: Option<AdminSpec>,
    /// From where certificates are obtained, if listeners ask for that.
    pub acme: Option<AcmeSpec>,
}

/// The numbers of a limit as the file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenLimit {
    /// In words, such as `100/minute, burst 500`.
    pub numbers: Box<str>,
}

/// A configuration, with its warnings and facts about its file.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings: valid but suspicious configuration.
    pub warnings: Report,
    /// The numbers of each limit, tier and override as the file has them, by [`PolicyId`].
    pub limits: IdVec<PolicyId, WrittenLimit>,
    /// The SHA-256 hash of the file's text, in hexadecimal digits, as `sha256sum` prints it.
    pub sha256: String,
    /// A hash of each part of the file.
    pub fingerprint: Fingerprint,
    /// The other files that it names: keys and certificates.
    pub files: Vec<PathBuf>,
    /// Why the file of consumers seems to be incomplete, if it does.
    pub incomplete: Option<String>,
    pub(super) variables: Variables,
}

impl Loaded {
    /// The text with `${NAME}` in place of the value of each variable that the file names.
    #[must_use]
    pub fn without_variables(&self, text: &str) -> String {
        secrets::without_values(text, &self.variables.0)
    }
}
