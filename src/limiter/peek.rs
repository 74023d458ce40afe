//! The limits of a client, without a charge.

use smallvec::SmallVec;

use super::admission::Admission;
use super::grants::GrantTable;
use super::limits::Limits;
use super::local_fallback::LocalFallback;
use super::status::{StatusSource, enforced};
use super::store_client::StoreClient;
use crate::limit::Charge;
use crate::store::Store;

/// Reads the state of each limit that `charges` name; nothing is charged or counted. A banned or blocked client may see its
/// state as well, so the request is admitted, unless the store is unavailable and a limit denies requests then.
pub(super) async fn peek(
    client: &StoreClient,
    grants: &GrantTable,
    limits: &Limits,
    charges: &[Charge],
) -> Admission {
    if charges.is_empty() {
        return Admission::unlimited();
    }
    let peeks: SmallVec<[Charge; 4]> = charges.iter().map(|charge| charge.peek()).collect();
    let StoreClient { store, fallback, .. } = client;
    let decisions = match store {
        Store::Memory(memory) => memory.take(&limits.policies, &peeks),
        Store::Redis(_) if fallback.breaker.is_open() => return peek_locally(fallback, limits, &peeks),
        Store::Redis(redis) => match redis.take(&limits.policies, &peeks).await {
            Ok(mut decisions) => {
                client.record_success();
                for (charge, decision) in peeks.iter().zip(&mut decisions) {
                    *decision = grants.shown(limits.policy(charge), charge.key, *decision);
                }
                decisions
            }
            Err(error) => {
                client.record_failure(&error);
                return peek_locally(fallback, limits, &peeks);
            }
        },
    };
    Admission::peeked(enforced(&limits.policies, &peeks, &decisions))
}

/// Reads the shares of this process; limits that allow all requests while the store is unavailable have no state then.
fn peek_locally(fallback: &LocalFallback, limits: &Limits, peeks: &[Charge]) -> Admission {
    if fallback.denies(limits, peeks) {
        return Admission::unavailable(fallback.breaker.until_probe());
    }
    let local = limits.local(peeks);
    let decisions = fallback.memory.take(&limits.shares, &local);
    let admission = Admission::peeked(enforced(&limits.shares, &local, &decisions));
    Admission { source: StatusSource::Local, ..admission }
}
