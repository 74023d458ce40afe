//! The limits of a client, without a charge.

use super::admission::Admission;
use super::denial_cache::DenialCache;
use super::grants::GrantTable;
use super::limits::Limits;
use super::local_fallback::LocalFallback;
use super::server_limiter::ServerLimiter;
use super::status::StatusSource;
use super::store_client::StoreClient;
use crate::limit::{Charge, Charges, DecidedCharge, DecidedCharges};
use crate::store::{Redis, Store, StoreError};
use crate::time::cached_now;

impl ServerLimiter {
    /// Reads the state of each limit that `charges` name, without a charge.
    pub async fn peek(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        self.read(limits, charges, None).await
    }

    /// Reads these states for clients, who may ask as often as they like: what is less than a second old is not read again.
    pub async fn show(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        self.read(limits, charges, Some(&self.denials)).await
    }

    async fn read(&self, limits: &Limits, charges: &[Charge], cache: Option<&DenialCache>) -> Admission {
        let peek = Peek { client: &self.client, grants: &self.grants, cache };
        match self.raised.apply(limits, charges, cached_now()) {
            Some(raised) => peek.read(&raised.limits, &raised.charges).await,
            None => peek.read(limits, charges).await,
        }
    }
}

/// Reads the limits of a client.
struct Peek<'a> {
    client: &'a StoreClient,
    grants: &'a GrantTable,
    /// Decisions that need not be read again; `None` if they must not be older than the call.
    cache: Option<&'a DenialCache>,
}

impl Peek<'_> {
    /// Reads the state of each limit that `charges` name; nothing is charged or counted. A banned or blocked client may see its
    /// state as well, so the request is admitted, unless the store is unavailable and a limit denies requests then.
    async fn read(&self, limits: &Limits, charges: &[Charge]) -> Admission {
        if charges.is_empty() {
            return Admission::unlimited();
        }
        let peeks: Charges = charges.iter().map(|charge| charge.peek()).collect();
        let StoreClient { store, fallback, .. } = self.client;
        let decided = match store {
            Store::Memory(memory) => memory.decide(&limits.policies, &peeks),
            Store::Redis(_) if fallback.breaker.is_open() => return peek_locally(fallback, limits, &peeks),
            Store::Redis(redis) => match self.read_redis(redis, limits, &peeks).await {
                Ok(decided) => decided,
                Err(error) => {
                    self.client.record_failure(&error);
                    return peek_locally(fallback, limits, &peeks);
                }
            },
        };
        Admission::peeked(&limits.policies, &decided)
    }

    async fn read_redis(
        &self,
        redis: &Redis,
        limits: &Limits,
        peeks: &[Charge],
    ) -> Result<DecidedCharges, StoreError> {
        let now = cached_now();
        let known = self.cache.and_then(|cache| cache.repeat(&limits.policies, peeks, now));
        let mut decided = if let Some(known) = known {
            known
        } else {
            let lookup = self.cache.map(|cache| (cache, cache.lookup(now)));
            let decided = DecidedCharge::join(peeks, &redis.take(&limits.policies, peeks).await?);
            self.client.record_success();
            if let Some((cache, lookup)) = lookup {
                cache.record_shown(&limits.policies, &decided, lookup);
            }
            decided
        };
        for DecidedCharge { charge, decision } in &mut decided {
            *decision = self.grants.shown(limits.policy(charge), charge.key, *decision);
        }
        Ok(decided)
    }
}

/// Reads the shares of this process; limits that allow all requests while the store is unavailable have no state then.
fn peek_locally(fallback: &LocalFallback, limits: &Limits, peeks: &[Charge]) -> Admission {
    if fallback.denies(limits, peeks) {
        return Admission::unavailable(fallback.breaker.until_probe());
    }
    let local = limits.local(peeks);
    let decided = fallback.memory.decide(&limits.shares, &local);
    let admission = Admission::peeked(&limits.shares, &decided);
    Admission { source: StatusSource::Local, ..admission }
}
