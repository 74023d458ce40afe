//! The values that a scrape reads.

use std::collections::{BTreeMap, HashMap};

use crate::limit::Policy;
use crate::telemetry::acme_counts::AcmeValues;
use crate::telemetry::listeners::ListenerValues;
use crate::telemetry::outcome::{ChargeBack, GrantValues};
use crate::telemetry::registry::Registry;
use crate::telemetry::upstreams::UpstreamValues;
use crate::time::Timestamp;

/// Values that are read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct GaugeValues {
    /// The values of each listener.
    pub listeners: Vec<ListenerValues>,
    /// The values of the store, if it is Redis.
    pub store: Option<StoreValues>,
    /// Whether each of its servers is available to all workers, by their addresses; none of a single server.
    pub store_servers: Vec<(Box<str>, bool)>,
    /// Keys in the in-process store.
    pub keys: usize,
    /// Keys that were evicted from the in-process store before they expired.
    pub evictions: u64,
    /// Lines of the access log that were dropped since the start.
    pub dropped_lines: u64,
    /// Lines of the log that were dropped since the start.
    pub dropped_log_lines: u64,
    /// Spans that were exported and dropped since the start.
    pub spans: [u64; 2],
    /// The values of certificates from an ACME server.
    pub acme: AcmeValues,
    /// How many keys each limit denied in the last minute; none for limits without denials.
    pub denied_keys: BTreeMap<Box<str>, usize>,
    /// Units that the store has granted, of each limit.
    pub grants: BTreeMap<Box<str>, GrantValues>,
    /// The values of each upstream.
    pub upstreams: Vec<UpstreamValues>,
}

/// Values of Redis, read at each scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreValues {
    /// Workers whose circuit breaker of the store is open.
    pub breakers_open: usize,
    /// How often a circuit breaker has opened since the start.
    pub breaker_openings: u64,
    /// Keys with debts to the store.
    pub owed_keys: usize,
    /// Units that were admitted while the store was unavailable, by [`ChargeBack`].
    pub charge_back: [u64; ChargeBack::COUNT],
}

/// The values that one scrape reads.
pub(super) struct Scrape<'a> {
    pub registry: &'a Registry,
    pub process: ProcessValues,
    pub gauges: &'a GaugeValues,
    /// The limits of the configuration by name.
    pub policies: HashMap<&'a str, &'a Policy>,
}

/// Values of the process.
pub(super) struct ProcessValues {
    pub started: Timestamp,
    /// When the configuration that is served was applied.
    pub applied_at: Timestamp,
    /// The numbers of applied and of rejected reloads.
    pub reloads: [u64; 2],
    /// Whether the last reload was rejected.
    pub is_stale: bool,
}
