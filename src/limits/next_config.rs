//! A configuration that was read, and how it replaces an earlier one.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::active::{Active, Writers};
use crate::config::{ConfigPart, Fingerprint, Loaded};
use crate::limiter::SharedState;
use crate::proxy::ConfigSnapshot;
use crate::store::{Memory, StoreSpec};
use crate::telemetry::Metrics;
use crate::time::Clock;

/// A valid configuration that is not in use yet.
pub(super) struct NextConfig {
    snapshot: ConfigSnapshot,
    store: StoreSpec,
    max_keys: usize,
    fingerprint: Fingerprint,
}

/// The sections that have changed, of those with a state of their own.
#[derive(Clone, Copy)]
pub(super) struct Changed {
    pub store: bool,
    pub jwt: bool,
}

impl NextConfig {
    /// The configuration of a file; its warnings are logged.
    pub fn new(loaded: Loaded) -> Self {
        for warning in loaded.warnings.lines() {
            tracing::warn!("{warning}");
        }
        let Loaded { config, fingerprint, .. } = loaded;
        Self { snapshot: config.snapshot, store: config.store, max_keys: config.max_keys, fingerprint }
    }

    /// The first configuration of a limiter, and its store.
    pub fn into_first(self, metrics: &Metrics) -> (StoreSpec, Active) {
        let memory = Arc::new(Memory::new(self.max_keys, Clock::Monotonic));
        let state = SharedState::new(memory, self.instances());
        self.with_state(state, metrics, Arc::default())
    }

    /// What has changed since an earlier configuration.
    pub fn changes_since(&self, earlier: &Active) -> Changed {
        let changes = self.fingerprint.changes_since(&earlier.fingerprint);
        let has_changed = |table: &str| {
            changes.iter().any(|(part, _)| matches!(part, ConfigPart::Table(it) if it == table))
        };
        Changed { store: has_changed("store"), jwt: has_changed("jwt") }
    }

    /// The configuration after an earlier one, with the state of what has not changed, and its store.
    pub fn into_active(
        mut self,
        earlier: &Active,
        changed: Changed,
        metrics: &Metrics,
    ) -> (StoreSpec, Active) {
        if self.max_keys != earlier.max_keys {
            tracing::warn!("`max_keys` of [store] has changed: this takes effect in a new limiter only");
            self.max_keys = earlier.max_keys;
        }
        let (gate, last) = (&mut self.snapshot.gate, &earlier.snapshot.gate);
        if !changed.jwt {
            // The same verifier, with the keys that it has fetched and the tokens that it has verified.
            gate.jwt.clone_from(&last.jwt);
        }
        let last = last.consumers.as_deref().filter(|_| !changed.store);
        gate.consumers.iter_mut().for_each(|rules| rules.inherit_stored(last));
        let state = if changed.store { self.next_state(&earlier.state) } else { earlier.state.clone() };
        self.with_state(state, metrics, earlier.counts.writers())
    }

    /// The state of another store.
    fn next_state(&self, earlier: &SharedState) -> SharedState {
        let next = SharedState::new(Arc::clone(&earlier.fallback), self.instances());
        match self.store {
            // Debts are paid to the next store: its counts apply from now on.
            StoreSpec::Redis(_) => SharedState { ledger: Arc::clone(&earlier.ledger), ..next },
            StoreSpec::Memory => next,
        }
    }

    fn with_state(self, state: SharedState, metrics: &Metrics, writers: Arc<Writers>) -> (StoreSpec, Active) {
        let Self { snapshot, store, max_keys, fingerprint } = self;
        let (counts, thread_counts) = Active::counters(&snapshot, metrics, writers);
        let is_redis = matches!(store, StoreSpec::Redis(_));
        (
            store,
            Active {
                snapshot: Arc::new(snapshot),
                counts,
                thread_counts,
                state,
                is_redis,
                max_keys,
                fingerprint,
            },
        )
    }

    fn instances(&self) -> NonZeroU64 {
        self.snapshot.gate.limits.instances
    }
}
