//! When an ACME server suggests to renew certificates (ARI, RFC 9773).

use std::sync::Arc;
use std::time::Duration;

use super::client::RenewalInfo;
use super::managed::Managed;
use super::schedule::{SuggestedWindow, asked_wait, within};
use super::shared::InstalledCertificates;
use crate::time::monotonic;

/// How long to wait until the ACME server is asked again: what it says, within these bounds.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(24));
/// How long to wait after a failure until the ACME server is asked again.
const ASK_AFTER_FAILURE: Duration = Duration::from_hours(1);

/// Asks for those certificates for which it is time, and renews them when the ACME server suggests it.
pub(super) async fn ask(certificates: &mut [Managed], shared: &Arc<InstalledCertificates>) {
    let now = monotonic();
    let due = certificates.iter_mut().filter(|one| one.ask_at.is_some_and(|time| time <= now));
    let mut opened = None;
    for one in due {
        one.ask_at = Some(now + ASK_AGAIN.1);
        let Some(identity) = one.identity() else { continue };
        if opened.is_none() {
            opened = Some(RenewalInfo::open(shared).await);
        }
        let suggestion = match &opened {
            // Without an account the certificate is from elsewhere.
            None | Some(Ok(None)) => continue,
            Some(Ok(Some(info))) => info.suggestion(identity).await,
            Some(Err(error)) => Err(error.clone()),
        };
        let wait = match suggestion {
            Ok(Some(suggestion)) => follow(one, &suggestion),
            Ok(None) => ASK_AGAIN.1,
            Err(error) => {
                tracing::debug!("no suggestion when to renew {}: {}", one.name, error.message);
                asked_wait(&error).unwrap_or_default().max(ASK_AFTER_FAILURE)
            }
        };
        one.ask_at = Some(monotonic() + wait);
    }
}

/// Renews a certificate as suggested; returns when to ask again.
fn follow(one: &mut Managed, suggestion: &SuggestedWindow) -> Duration {
    let (start, end) = suggestion.window;
    // A time that was chosen earlier stays if it is within the window. An empty window is invalid (RFC 9773 §4.2).
    if start < end && one.renew_at().is_none_or(|time| time < start || end < time) {
        let time = within(suggestion.window, fastrand::f64());
        tracing::info!("the ACME server suggests to renew {} at {}", one.name, time.rfc3339());
        one.renew_then(time);
    }
    suggestion.ask_again.clamp(ASK_AGAIN.0, ASK_AGAIN.1)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::managed::parse_certificate;
    use super::*;
    use crate::time::Timestamp;

    const DAY: u64 = 86_400_000_000;

    /// A certificate that is valid from 2026-01-01 to 2026-03-31, and in use since its first day.
    fn managed() -> (Managed, Timestamp) {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 3, 31);
        let key = KeyPair::generate().unwrap();
        let pem = key.serialize_pem() + &params.self_signed(&key).unwrap().pem();
        let identity = parse_certificate(pem.as_bytes(), "a.test").unwrap();
        let (mut one, start) = (Managed::new("a.test".to_owned()), identity.not_before());
        one.replace(identity, blake3::hash(pem.as_bytes()), (monotonic(), start));
        (one, start)
    }

    /// The days after the start of the certificate on which it is renewed.
    fn days(one: &Managed, start: Timestamp) -> u64 {
        one.renew_at().unwrap().since(start).0 / DAY
    }

    fn suggestion(start: Timestamp, days: RangeInclusive<u64>, ask_again: Duration) -> SuggestedWindow {
        let at = |days| Timestamp(start.0 + days * DAY);
        SuggestedWindow { window: (at(*days.start()), at(*days.end())), ask_again }
    }

    #[test]
    fn a_certificate_is_renewed_within_the_suggested_window() {
        let hour = Duration::from_hours(1);
        let (mut one, start) = managed();
        // Before a suggestion, when a third of the lifetime remains.
        assert!((58..=59).contains(&days(&one, start)));
        for window in [10..=12, 70..=72, 0..=1] {
            assert_eq!(follow(&mut one, &suggestion(start, window.clone(), hour)), hour);
            assert!(window.contains(&days(&one, start)), "{window:?}");
        }
        // A time that was chosen at random is kept while the window has it.
        let chosen = one.renew_at();
        follow(&mut one, &suggestion(start, 0..=30, hour));
        assert_eq!(one.renew_at(), chosen);
        // A tenth of the lifetime of 89 days remains in any case.
        follow(&mut one, &suggestion(start, 88..=200, hour));
        assert_eq!(days(&one, start), 80);
    }

    #[test]
    fn windows_without_a_length_are_ignored() {
        let (mut one, start) = managed();
        let before = one.renew_at();
        for (first, last) in [(3, 3), (4, 2)] {
            let window = [first, last].map(|days| Timestamp(start.0 + days * DAY)).into();
            follow(&mut one, &SuggestedWindow { window, ask_again: Duration::ZERO });
        }
        assert_eq!(one.renew_at(), before);
    }

    #[test]
    fn the_server_says_when_to_ask_again_within_bounds() {
        let (mut one, start) = managed();
        let waits = [0, 7_200, 10_000_000].map(|seconds| {
            follow(&mut one, &suggestion(start, 10..=12, Duration::from_secs(seconds))).as_secs()
        });
        assert_eq!(waits, [60, 7_200, 86_400]);
    }
}
