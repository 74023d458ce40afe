//! When an ACME server suggests to renew certificates (ARI, RFC 9773).

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Suggestion};
use super::managed::Managed;
use super::schedule::within;
use super::shared::Shared;
use crate::time::monotonic;

/// How long to wait until the ACME server is asked again: what it says, within these bounds.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(24));
/// The same after a failure.
const ASK_AFTER_FAILURE: Duration = Duration::from_hours(1);

/// Asks for those certificates for which it is time, and renews them when the ACME server suggests it.
pub(super) async fn ask(certificates: &mut [Managed], shared: &Arc<Shared>) {
    let now = monotonic();
    let due = certificates.iter_mut().filter(|one| one.ask_at.is_some_and(|time| time <= now));
    let mut client = None;
    for one in due {
        one.ask_at = Some(now + ASK_AGAIN.1);
        let Some(identity) = one.identity() else { continue };
        // Without an account the certificate is from elsewhere.
        if client.is_none() && shared.storage.account().exists() {
            client = Some(Client::open(shared).await);
        }
        let suggestion = match &client {
            None => continue,
            Some(Ok(client)) => client.suggestion(identity).await,
            Some(Err(error)) => Err(error.clone()),
        };
        let wait = match suggestion {
            Ok(Some(suggestion)) => follow(one, &suggestion),
            Ok(None) => ASK_AGAIN.1,
            Err(error) => {
                tracing::debug!("no suggestion when to renew {}: {}", one.name, error.message);
                ASK_AFTER_FAILURE
            }
        };
        one.ask_at = Some(monotonic() + wait);
    }
}

/// Renews a certificate as suggested; returns when to ask again.
fn follow(one: &mut Managed, suggestion: &Suggestion) -> Duration {
    let (start, end) = suggestion.window;
    // A time that was chosen earlier stays if it is within the window. An empty window is invalid (RFC 9773 §4.2).
    if start < end && one.renew_at().is_none_or(|time| time < start || end < time) {
        let time = within(suggestion.window, fastrand::f64());
        tracing::info!("the ACME server suggests to renew {} at {}", one.name, time.rfc3339());
        one.renew_then(time);
    }
    suggestion.ask_again.clamp(ASK_AGAIN.0, ASK_AGAIN.1)
}
