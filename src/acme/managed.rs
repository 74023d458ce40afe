//! The certificate of one name: the one in use, when it is renewed, and failed attempts to do so.

use std::time::Duration;

use tokio::time::Instant;

use super::error::ObtainError;
use super::schedule::{backoff, first_question, renewal, until};
use crate::time::{Timestamp, format_duration};
use crate::tls::Identity;

/// The certificate of one name.
#[derive(Debug)]
pub(super) struct Managed {
    pub name: String,
    current: Option<Current>,
    /// How many attempts have failed in a row.
    failures: u32,
    /// No attempt is made before this time.
    not_before: Option<Instant>,
    /// When the ACME server is asked when it suggests to renew the certificate.
    pub ask_at: Option<Instant>,
}

#[derive(Debug)]
struct Current {
    identity: Identity,
    /// The hash of its file.
    hash: blake3::Hash,
    renew_at: Timestamp,
}

impl Managed {
    pub fn new(name: String) -> Self {
        Self { name, current: None, failures: 0, not_before: None, ask_at: None }
    }

    /// The certificate in use.
    pub fn identity(&self) -> Option<&Identity> {
        self.current.as_ref().map(|current| &current.identity)
    }

    /// Whether the certificate in use is from a file with this hash.
    pub fn is_from(&self, hash: blake3::Hash) -> bool {
        self.current.as_ref().is_some_and(|current| current.hash == hash)
    }

    /// When the certificate is to be renewed.
    pub fn renew_at(&self) -> Option<Timestamp> {
        self.current.as_ref().map(|current| current.renew_at)
    }

    /// Uses a certificate, which comes from a file with this hash.
    pub fn replace(&mut self, identity: Identity, hash: blake3::Hash, (now, wall): (Instant, Timestamp)) {
        let renew_at = renewal(identity.not_before(), identity.not_after(), fastrand::f64());
        // Not at once, so that a server which suggests to renew new certificates can't cause a flood of orders.
        let ask_at = first_question(identity.not_before(), identity.not_after());
        self.ask_at = now.checked_add(until(ask_at, wall));
        self.current = Some(Current { identity, hash, renew_at });
        // With a wrong clock every new certificate is to be renewed at once; then waits still become longer.
        if renew_at > wall {
            self.forget_failures();
        }
    }

    /// Renews the certificate at this time, or a tenth of its lifetime before it expires if that is earlier.
    pub fn renew_then(&mut self, time: Timestamp) {
        if let Some(current) = &mut self.current {
            let (start, end) = (current.identity.not_before(), current.identity.not_after());
            let latest = Timestamp(end.0.saturating_sub(end.since(start).0 / 10));
            current.renew_at = time.min(latest);
        }
    }

    /// Allows the next attempt at once.
    pub fn forget_failures(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }

    /// Delays the next attempt, without a failure.
    pub fn postpone(&mut self, until: Instant) {
        self.not_before = Some(until);
    }

    /// How long to wait until the next attempt.
    pub fn wait(&self, now: Instant, wall: Timestamp) -> Duration {
        let due = self.renew_at().map_or(Duration::ZERO, |renew_at| until(renew_at, wall));
        let allowed = self.not_before.map_or(Duration::ZERO, |time| time.saturating_duration_since(now));
        due.max(allowed)
    }

    /// Records that an attempt has failed; returns what to log.
    pub fn fail(&mut self, error: &ObtainError, now: Instant, wall: Timestamp) -> String {
        self.failures = self.failures.saturating_add(1);
        let wait = backoff(self.failures, error, fastrand::f64());
        self.not_before = Some(now + wait);
        let (name, next) = (&self.name, format_duration(Duration::from_secs(wait.as_secs())));
        let state = match self.identity().map(Identity::not_after) {
            None => format!("no certificate for {name}, so that TLS handshakes for it fail"),
            Some(expiry) if expiry <= wall => {
                format!("the certificate for {name} has expired at {}, and is not renewed", expiry.rfc3339())
            }
            Some(expiry) => {
                format!("the certificate for {name} is not renewed, and expires at {}", expiry.rfc3339())
            }
        };
        format!("{state}: {}; next attempt in {next}", error.message)
    }
}
