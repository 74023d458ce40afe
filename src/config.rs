//! The configuration file: from text to checked types, or to a list of everything that is wrong with it.

use std::time::Duration;

use crate::proxy::Site;
use crate::server::ListenerSpec;
use crate::store::StoreSpec;
use crate::telemetry::LogSpec;

/// A configuration that is right in itself.
#[derive(Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<ListenerSpec>,
    /// Threads that serve; at least one.
    pub workers: usize,
    /// How long a stopping server waits for what it has begun.
    pub shutdown_grace: Duration,
    /// Where counts live.
    pub store: StoreSpec,
    /// The bound on keys that this process counts by itself.
    pub max_keys: usize,
    /// Routes, limits, upstreams and answers.
    pub site: Site,
    /// What is logged.
    pub log: LogSpec,
}
