//! The certificate of one name: the one in use, when it is renewed, and failed attempts to do so.

use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;

use super::schedule::{asked_wait, backoff, first_question, renewal, until};
use super::status::{CertificateStatus, ObtainError, RenewalFailure};
use crate::time::{Timestamp, format_duration};
use crate::tls::Identity;

/// The certificate of one name.
#[derive(Debug)]
pub(super) struct Managed {
    pub name: String,
    current: Option<CurrentCertificate>,
    /// How many attempts have failed in a row.
    failures: u32,
    /// The last attempt, if it has failed.
    failure: Option<RenewalFailure>,
    /// After a failure no attempt is made before this time, unless the configuration is reloaded.
    backoff_until: Option<Instant>,
    /// The ACME server has asked to make no attempt before this time.
    server_wait_until: Option<Instant>,
    /// When the ACME server is asked when it suggests to renew the certificate.
    pub ask_at: Option<Instant>,
}

#[derive(Debug)]
struct CurrentCertificate {
    identity: Identity,
    /// The hash of its file.
    hash: blake3::Hash,
    renew_at: Timestamp,
}

impl Managed {
    pub fn new(name: String) -> Self {
        Self {
            name,
            current: None,
            failures: 0,
            failure: None,
            backoff_until: None,
            server_wait_until: None,
            ask_at: None,
        }
    }

    /// Goes on after another configuration for the same ACME server, whose backoff is forgotten.
    pub fn inherit(&mut self, earlier: &CertificateStatus) {
        self.failure.clone_from(&earlier.failure);
        self.server_wait_until = earlier.server_wait_until;
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
        self.current = Some(CurrentCertificate { identity, hash, renew_at });
        // With a wrong clock every new certificate is to be renewed at once; then waits still become longer.
        if renew_at > wall {
            self.failure = None;
            self.forget_backoff();
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

    /// Allows the next attempt at once, unless the ACME server has asked to wait.
    pub fn forget_backoff(&mut self) {
        (self.failures, self.backoff_until) = (0, None);
    }

    /// Delays the next attempt, without a failure.
    pub fn postpone(&mut self, until: Instant) {
        self.backoff_until = Some(until);
    }

    /// Delays the next attempt because the ACME server asks for it.
    pub fn wait_for_server(&mut self, until: Instant) {
        self.server_wait_until = self.server_wait_until.max(Some(until));
    }

    /// How long to wait until the next attempt.
    pub fn wait(&self, now: Instant, wall: Timestamp) -> Duration {
        let backoff = self.backoff_until.map_or(Duration::ZERO, |time| time.saturating_duration_since(now));
        self.due(wall).max(backoff).max(self.server_wait(now))
    }

    /// For how long only the ACME server, which has asked to wait, delays the next attempt.
    pub fn held_by_server(&self, now: Instant, wall: Timestamp) -> Option<Duration> {
        let wait = self.server_wait(now);
        (wait > self.due(wall)).then_some(wait)
    }

    fn due(&self, wall: Timestamp) -> Duration {
        self.renew_at().map_or(Duration::ZERO, |renew_at| until(renew_at, wall))
    }

    fn server_wait(&self, now: Instant) -> Duration {
        self.server_wait_until.map_or(Duration::ZERO, |time| time.saturating_duration_since(now))
    }

    /// The state at this time.
    pub fn status(&self, now: Instant, wall: Timestamp) -> CertificateStatus {
        CertificateStatus {
            name: self.name.clone(),
            not_after: self.identity().map(Identity::not_after),
            failure: self.failure.clone(),
            next_attempt: wall.after(self.wait(now, wall).into()),
            server_wait_until: self.server_wait_until,
        }
    }

    /// Records that an attempt has failed; returns what to log.
    pub fn fail(&mut self, error: &ObtainError, now: Instant, wall: Timestamp) -> String {
        self.failure = Some(RenewalFailure { at: wall, error: error.message.clone() });
        self.failures = self.failures.saturating_add(1);
        let backoff = backoff(self.failures, error, fastrand::f64());
        self.backoff_until = Some(now + backoff);
        if let Some(wait) = asked_wait(error) {
            self.wait_for_server(now + wait);
        }
        let asked = self.server_wait(now);
        let (wait, who) = if asked > backoff { (asked, ", as the ACME server asks") } else { (backoff, "") };
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
        format!("{state}: {}; next attempt in {next}{who}", error.message)
    }
}

/// Reads the certificate of a name. The error does not show the key.
pub(super) fn parse_certificate(pem: &[u8], name: &str) -> Result<Identity, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| "it has no private key".to_owned())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() {
        return Err("it has no certificate".to_owned());
    }
    let identity = Identity::new(chain, key).map_err(|error| error.to_string())?;
    if identity.names().iter().any(|own| own == name) {
        Ok(identity)
    } else {
        Err(format!("its certificate is not for {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::monotonic;

    fn refused(retry_after: u64) -> ObtainError {
        let retry_after = Some(Duration::from_secs(retry_after));
        ObtainError { retry_after, ..ObtainError::rejected("rejected") }
    }

    #[test]
    fn a_reload_forgets_the_backoff_and_not_the_wait_of_the_server() {
        let (mut one, now, wall) = (Managed::new("a.test".to_owned()), monotonic(), Timestamp(1_000_000));
        assert_eq!(one.wait(now, wall), Duration::ZERO);
        let message = one.fail(&ObtainError::rejected("refused"), now, wall);
        assert!(message.contains(": refused; next attempt in 2m") && !message.contains("asks"), "{message}");
        assert!(one.wait(now, wall) >= Duration::from_mins(2));
        one.forget_backoff();
        assert_eq!((one.wait(now, wall), one.held_by_server(now, wall)), (Duration::ZERO, None));
        let message = one.fail(&refused(3_600), now, wall);
        assert!(message.ends_with("; next attempt in 1h, as the ACME server asks"), "{message}");
        // A later failure does not shorten the wait.
        let message = one.fail(&refused(1), now, wall);
        assert!(message.ends_with("; next attempt in 1h, as the ACME server asks"), "{message}");
        one.forget_backoff();
        let hour = Duration::from_hours(1);
        assert_eq!((one.wait(now, wall), one.held_by_server(now, wall)), (hour, Some(hour)));
        let status = one.status(now, wall);
        assert_eq!(status.next_attempt, Timestamp(3_601_000_000));
        assert_eq!(status.failure, Some(RenewalFailure { at: wall, error: "rejected".to_owned() }));
        // The next configuration.
        let mut next = Managed::new("a.test".to_owned());
        next.inherit(&status);
        assert_eq!(next.wait(now, wall), hour);
        assert_eq!(next.wait(now + hour, wall), Duration::ZERO);
    }
}
