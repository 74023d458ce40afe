//! Keeping keys fresh.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fetch::FetchError;
use super::{Endpoint, KeySource, Keys, Verifier};
use crate::time::monotonic;
use crate::tls::ClientTls;

/// How old keys may become.
const REFRESH: Duration = Duration::from_mins(5);
/// The least time between two fetches that requests cause, and after one that failed.
const PAUSE: Duration = Duration::from_secs(10);

/// Fetches a verifier's keys, again and again.
#[derive(Debug)]
pub struct Refresher {
    verifier: Arc<Verifier>,
    endpoint: Endpoint,
    tls: Option<ClientTls>,
    /// What the log was last told.
    said: String,
    has_failed: bool,
    /// When a token may ask for new keys again.
    next_asked: Instant,
}

impl Refresher {
    /// Keeps these keys fresh; none if they come from a file.
    #[must_use]
    pub fn new(verifier: &Arc<Verifier>) -> Option<Self> {
        let KeySource::Url(endpoint) = &verifier.spec.source else { return None };
        Some(Self {
            verifier: Arc::clone(verifier),
            endpoint: endpoint.clone(),
            tls: None,
            said: String::new(),
            has_failed: false,
            next_asked: monotonic(),
        })
    }

    /// Fetches the keys, and says in the log what has changed by that. Waits for five seconds at most.
    pub async fn fetch(&mut self) {
        let fetched = self.keys().await;
        self.has_failed = fetched.is_err();
        let from = &self.endpoint;
        let (is_well, said) = match fetched {
            Ok(keys) => {
                let (count, is_empty) = (keys.len(), keys.is_empty());
                let plural = if count == 1 { "" } else { "s" };
                if self.verifier.take(keys) {
                    // The same words tell of other keys.
                    self.said.clear();
                }
                if is_empty {
                    (false, format!("{from} has no key that fits `algorithms`: tokens count as missing"))
                } else {
                    (true, format!("tokens are verified with {count} key{plural} from {from}"))
                }
            }
            Err(error) if self.verifier.has_keys() => {
                (false, format!("can't fetch {from} ({error}): the last keys stay in use"))
            }
            Err(error) => {
                (false, format!("can't fetch {from} ({error}): until it answers, tokens count as missing"))
            }
        };
        if said == self.said {
            return;
        }
        if is_well {
            tracing::info!("{said}");
        } else {
            tracing::warn!("{said}");
        }
        self.said = said;
    }

    /// Fetches the keys whenever they have become old, and when a token names one that is not known.
    pub async fn run(mut self) {
        loop {
            let now = monotonic();
            let old = now + if self.has_failed { PAUSE } else { REFRESH };
            let asked = async {
                tokio::time::sleep_until(self.next_asked).await;
                self.verifier.wanted.notified().await;
            };
            if timeout_at(old, asked).await.is_ok() {
                self.next_asked = monotonic() + PAUSE;
            }
            self.fetch().await;
        }
    }

    async fn keys(&mut self) -> Result<Keys, FetchError> {
        if self.endpoint.is_tls() && self.tls.is_none() {
            self.tls = Some(ClientTls::of_the_system()?);
        }
        let text = self.endpoint.fetch(self.tls.as_ref()).await?;
        Ok(Keys::parse(&text, &self.verifier.spec.algorithms)?)
    }
}
