//! Fetching keys in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fetch::{FetchError, KeySetUrl};
use super::keys::Keys;
use super::spec::KeySource;
use super::verifier::Verifier;
use crate::text::plural;
use crate::time::monotonic;
use crate::tls::ClientTls;

/// How long keys are used before they are fetched again.
const MAX_AGE: Duration = Duration::from_mins(5);
/// The shortest time between two fetches that tokens cause, and after a failed one.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Fetches a verifier's keys periodically.
#[derive(Debug)]
pub struct Refresher {
    verifier: Arc<Verifier>,
    url: KeySetUrl,
    tls: Option<ClientTls>,
    /// The last message in the log, so that it is not repeated.
    last_message: String,
    has_failed: bool,
    /// When a token with an unknown key may cause the next fetch.
    next_on_demand: Instant,
}

impl Refresher {
    /// A refresher for this verifier; none if its keys come from a file.
    #[must_use]
    pub fn new(verifier: &Arc<Verifier>) -> Option<Self> {
        let KeySource::Url(url) = &verifier.spec().source else { return None };
        Some(Self {
            verifier: Arc::clone(verifier),
            url: url.clone(),
            tls: None,
            last_message: String::new(),
            has_failed: false,
            next_on_demand: monotonic(),
        })
    }

    /// Fetches the keys, for five seconds at most, and logs changes and failures.
    pub async fn fetch(&mut self) {
        let fetched = self.fetch_keys().await;
        self.has_failed = fetched.is_err();
        let from = &self.url;
        let (is_usable, message) = match fetched {
            Ok(keys) => {
                let (count, is_empty) = (keys.len(), keys.is_empty());
                let plural = plural(count);
                if self.verifier.replace_keys(keys) {
                    // Log new keys even if the message is the same.
                    self.last_message.clear();
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
            Err(error) => (
                false,
                format!("can't fetch {from} ({error}): until a fetch succeeds, tokens count as missing"),
            ),
        };
        if message == self.last_message {
            return;
        }
        if is_usable {
            tracing::info!("{message}");
        } else {
            tracing::warn!("{message}");
        }
        self.last_message = message;
    }

    /// Fetches the keys, for five seconds at most, and returns how many fit the allowed algorithms. Uses none of them.
    pub async fn check(&mut self) -> Result<usize, FetchError> {
        self.fetch_keys().await.map(|keys| keys.len())
    }

    /// Where the keys are fetched from.
    #[must_use]
    pub fn url(&self) -> &KeySetUrl {
        &self.url
    }

    /// Fetches the keys when they are old, and when a token has a key that is not known.
    pub async fn run(mut self) {
        loop {
            let now = monotonic();
            let due = now + if self.has_failed { MIN_INTERVAL } else { MAX_AGE };
            let on_demand = async {
                tokio::time::sleep_until(self.next_on_demand).await;
                self.verifier.unknown_key().await;
            };
            if timeout_at(due, on_demand).await.is_ok() {
                self.next_on_demand = monotonic() + MIN_INTERVAL;
            }
            self.fetch().await;
        }
    }

    async fn fetch_keys(&mut self) -> Result<Keys, FetchError> {
        if self.url.is_tls() && self.tls.is_none() {
            self.tls = Some(ClientTls::with_system_roots()?);
        }
        let text = self.url.fetch(self.tls.as_ref()).await?;
        Ok(Keys::parse(&text, &self.verifier.spec().algorithms)?)
    }
}
