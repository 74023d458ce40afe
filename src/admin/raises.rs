//! Operations on the raises of keys: start, end, list.

use std::time::Duration;

use http::StatusCode;

use super::api::{KeyChange, KeyRequest, RaiseInfo, RaiseRequest, RaisesList};
use super::keys::{KeyOperations, rfc3339, unavailable};
use super::limits;
use super::response::AdminError;
use super::state::StoreServer;
use crate::limit::{Factor, PolicyId};
use crate::limiter::ActiveRaise;
use crate::store::{Raise, RaiseChange, RaiseError, Store};
use crate::time::{Micros, monotonic};

/// The longest raise: what lasts longer belongs in the configuration.
const MAX_LENGTH: Duration = Duration::from_hours(24 * 366);

/// Raises the numbers of a key for a while.
pub(super) async fn start(keys: &KeyOperations<'_>, request: RaiseRequest) -> Result<KeyChange, AdminError> {
    let RaiseRequest { limit, key, consumer, by, length } = request;
    let Some(factor) = Factor::parse(&by) else {
        let error = AdminError::bad_request(format!("`{by}` is not a factor of a raise"));
        return Err(
            error.help("write how many times more, above 1x and at most 1000x, such as \"2x\" or \"1.5x\"")
        );
    };
    let length = humantime::parse_duration(&length)
        .ok()
        .filter(|length| (Duration::from_secs(1)..=MAX_LENGTH).contains(length))
        .ok_or_else(|| {
            let error = AdminError::bad_request(format!("`{length}` is not a duration of a raise"));
            error.help("write it with its unit, from \"1s\" to \"366 days\", such as \"10m\" or \"1h\"")
        })?;
    let key = keys.key_text(&limit, key, consumer.as_deref())?;
    let (key, policies) = keys.key(&limit, &key)?;
    check(keys, &policies, factor)?;
    let until = keys.clock.now().after(Micros::from(length));
    let raise = Raise {
        limit: limit.as_str().into(),
        key,
        factor,
        rest: length.into(),
        by: keys.operator.to_string().into(),
    };
    change(keys, RaiseChange::Start(raise), &limit).await?;
    let done = format!("raised by {factor}");
    let until = rfc3339(until);
    tracing::info!(
        "admin: key {} of limit {limit} {done} until {until} by {}",
        limits::tag(key),
        keys.operator
    );
    Ok(KeyChange { limit, key: limits::tag(key), done, until: Some(until) })
}

/// Ends the raise of a key.
pub(super) async fn end(keys: &KeyOperations<'_>, request: KeyRequest) -> Result<KeyChange, AdminError> {
    let KeyRequest { limit, key, consumer } = request;
    let key = keys.key_text(&limit, key, consumer.as_deref())?;
    let (key, _) = keys.key(&limit, &key)?;
    change(keys, RaiseChange::End { limit: limit.as_str().into(), key }, &limit).await?;
    let done = "no longer raised".to_owned();
    tracing::info!("admin: key {} of limit {limit} {done} by {}", limits::tag(key), keys.operator);
    Ok(KeyChange { limit, key: limits::tag(key), done, until: None })
}

/// The raises that have not ended, as this process knows them.
pub(super) fn list(keys: &KeyOperations<'_>) -> RaisesList {
    let now = monotonic();
    let info = |raise: ActiveRaise| RaiseInfo {
        limit: raise.limit.into(),
        key: limits::tag(raise.key),
        by: raise.factor.to_string(),
        until: rfc3339(keys.clock.now().after(Micros::from(raise.ends - now))),
        started_by: raise.by.into(),
    };
    // A server may still have a raise of a key that has moved to another one, where it has no effect.
    let active = keys.store.iter().enumerate().flat_map(|(index, server)| {
        let active = server.shared.raises.active(now);
        active.into_iter().filter(move |raise| keys.store.index(raise.key) == index)
    });
    let mut raises: Vec<RaiseInfo> = active.map(info).collect();
    raises.sort_by(|one, other| {
        (&one.limit, &one.until, &one.key).cmp(&(&other.limit, &other.until, &other.key))
    });
    RaisesList { raises }
}

/// Rejects a factor for numbers that could not be counted.
fn check(keys: &KeyOperations<'_>, policies: &[PolicyId], factor: Factor) -> Result<(), AdminError> {
    for id in policies {
        let policy = &keys.gate.limits.policies[*id];
        policy.raised(*id, factor).map_err(|error| {
            AdminError::bad_request(format!("limit {} can't be raised by {factor}: {error}", policy.stored))
        })?;
    }
    Ok(())
}

async fn change(keys: &KeyOperations<'_>, change: RaiseChange, limit: &str) -> Result<(), AdminError> {
    let now = monotonic();
    let (RaiseChange::Start(Raise { key, .. }) | RaiseChange::End { key, .. }) = &change;
    let server @ StoreServer { store, shared } = keys.store.of(*key);
    let changed = match store {
        Store::Memory(_) => shared.raises.change(change, now),
        Store::Redis(redis) => {
            let changed = redis.change_raises(&change).await.map_err(|error| unavailable(server, &error))?;
            changed.map(|list| shared.raises.replace(list, now))
        }
    };
    changed.map_err(|error| match error {
        RaiseError::Full => AdminError::new(StatusCode::CONFLICT, error.to_string()).help(
            "end some with `tidegate keys raise LIMIT KEY --end`, or raise the limit in the configuration",
        ),
        RaiseError::NotRaised => AdminError::new(StatusCode::NOT_FOUND, format!("{error} in limit {limit}"))
            .help("`tidegate keys raises` lists those that are"),
    })
}
