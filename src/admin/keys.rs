//! Operations on the keys of limits: peek, list, reset, block and unblock.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;

use super::api::{BlockRequest, KeyChange, KeyList, KeyRequest, KeyStatus};
use super::client::Operator;
use super::limits;
use super::response::AdminError;
use super::state::StoreServer;
use crate::gate::{Gate, KeyPart};
use crate::limit::{Charge, Decision, DenyReason, Key, Policy, PolicyId};
use crate::store::{Servers, StateChange, StoreError};
use crate::suggest::nearest;
use crate::telemetry::{Counter, KeyConsumer, Summary, TopBy, TopKeys, TopWindow};
use crate::text::join_and;
use crate::time::{Clock, Micros, Timestamp, monotonic};

/// How many keys are listed by default.
const DEFAULT_LISTED: usize = 100;
/// The most keys that are listed.
const MAX_LISTED: usize = 10_000;
/// The longest block: a century, whose end RFC 3339 can still represent.
const MAX_BLOCK: Duration = Duration::from_hours(24 * 36_525);

/// Operations on the keys of one configuration's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyOperations<'a> {
    pub gate: &'a Gate,
    pub store: &'a Servers<StoreServer>,
    /// The most frequent keys, which tell the consumer of a tag.
    pub top: Option<&'a TopKeys>,
    /// Who operates, for the log.
    pub operator: &'a Operator,
    pub clock: &'a Clock,
}

impl KeyOperations<'_> {
    /// The status of a key in a limit and in the tiers that may count it.
    pub async fn peek(&self, query: &str) -> Result<KeyList, AdminError> {
        let (limit, key) = self.named(query)?;
        let consumer = self.consumer_of(&limit, &key)?;
        Ok(KeyList { keys: self.statuses(&limit, &key, consumer.as_deref()).await?, more: false })
    }

    /// The consumer of a key, which its name has; that of a tag is known if requests were denied in the last hour.
    fn consumer_of(&self, limit: &str, text: &str) -> Result<Option<String>, AdminError> {
        let (id, (key, _)) = (self.limit(limit)?, self.key(limit, text)?);
        let window = (TopWindow::Hour, TopBy::Denials);
        let denied = self.top.map(|top| top.summaries([limit], window, monotonic())).unwrap_or_default();
        let mut counters = denied.iter().flat_map(Summary::counters);
        let recent = counters.find(|counter| counter.key == key).and_then(consumer_of);
        Ok(recent.or_else(|| self.gate.keys(id).consumer_in(text)))
    }

    /// The limit and the key that the parameters of a query name.
    pub fn named(&self, query: &str) -> Result<(String, String), AdminError> {
        let [limit, key, consumer] = parameters(query, ["limit", "key", "consumer"])?;
        let limit = required(limit, "limit")?;
        let key = match consumer {
            None => Some(required(key, "key")?),
            Some(_) => key.filter(|key| !key.is_empty()),
        };
        let key = self.key_text(&limit, key, consumer.as_deref())?;
        Ok((limit, key))
    }

    /// The status of a key in a limit and each of its tiers. Where consumers have tiers, only the one that counts the key of
    /// this consumer.
    pub async fn statuses(
        &self,
        limit: &str,
        key: &str,
        consumer: Option<&str>,
    ) -> Result<Vec<KeyStatus>, AdminError> {
        let (key, mut policies) = self.key(limit, key)?;
        let rule = &self.gate.limit_rules[self.limit(limit)?];
        let tiers = rule.tiers.as_ref().filter(|tiers| tiers.by == KeyPart::Consumer && policies.len() > 1);
        let consumers = self.gate.consumers.as_ref();
        let consumer = consumer.and_then(|name| consumers?.named(name).ok());
        if let (Some(tiers), Some(consumer)) = (tiers, consumer) {
            let tier = consumer.tier.as_deref().and_then(|tier| tiers.get(tier));
            policies = vec![tier.map_or(policies[0], |(_, policy)| policy)];
        }
        let mut keys = Vec::with_capacity(policies.len());
        for policy in policies {
            keys.extend(self.status(policy, key).await?);
        }
        Ok(keys)
    }

    /// The stored keys of one limit or of all.
    pub async fn list(&self, query: &str) -> Result<KeyList, AdminError> {
        let [limit, max] = parameters(query, ["limit", "max"])?;
        let max = max_listed(max)?;
        let limits = match &limit {
            Some(limit) => vec![self.limit(limit)?],
            None => self.gate.limits().map(|(limit, _)| limit).collect(),
        };
        let mut listed = KeyList { keys: Vec::new(), more: false };
        for limit in limits {
            for (id, policy) in limits::stored(self.gate, limit) {
                let free = max - listed.keys.len();
                // Requests one key more than there is room for, to find out whether there are more.
                let (mut keys, more) = self.stored_keys(policy, free + 1).await?;
                listed.more |= more;
                keys.truncate(free);
                for key in keys {
                    let statuses = self.status(self.counting_policy(limit, id, key), key).await?;
                    // The store may keep a record for a moment after it equals that of an unused key.
                    listed.keys.extend(statuses.into_iter().filter(KeyStatus::is_notable));
                }
            }
        }
        Ok(listed)
    }

    /// The keys of a policy on all servers, at most `max`, and whether a server may have more. A server may still have a key that
    /// has moved to another one.
    async fn stored_keys(&self, policy: &Policy, max: usize) -> Result<(Vec<Key>, bool), AdminError> {
        let (mut found, mut more) = (Vec::new(), false);
        for (index, server) in self.store.iter().enumerate() {
            let free = max - found.len();
            let keys = server.store.keys(policy, free).await;
            let keys = keys.map_err(|error| unavailable(server, &error))?;
            // Moved keys count too: the server was asked for no more.
            more |= keys.len() >= free;
            found.extend(keys.into_iter().filter(|key| self.store.index(*key) == index));
        }
        Ok((found, more))
    }

    /// Resets the count, the denials and the ban of a key; a block stays.
    pub async fn reset(&self, request: KeyRequest) -> Result<KeyChange, AdminError> {
        let KeyRequest { limit, key, consumer } = request;
        let key = self.key_text(&limit, key, consumer.as_deref())?;
        self.change(&limit, &key, StateChange::Reset, "reset").await
    }

    /// Blocks a key for a while, whatever its quota.
    pub async fn block(&self, request: BlockRequest) -> Result<KeyChange, AdminError> {
        let length = humantime::parse_duration(&request.length)
            .ok()
            .filter(|length| (Duration::from_millis(1)..=MAX_BLOCK).contains(length));
        let Some(length) = length.map(Micros::from) else {
            let error = AdminError::bad_request(format!("`{}` is not a duration of a block", request.length));
            return Err(error.help("write it with its unit, such as \"30s\", \"10m\", \"1h\" or \"7 days\""));
        };
        let limit = self.limit(&request.limit)?;
        let policy = &self.gate.limits.policies[limit];
        if policy.shadow {
            let error = AdminError::bad_request(format!(
                "limit {} is in {} mode, so a block would deny no request",
                request.limit,
                policy.mode()
            ));
            return Err(error.help("block the key in a limit that enforces, or set mode = \"enforce\""));
        }
        let until = self.clock.now().after(length);
        let key = self.key_text(&request.limit, request.key, request.consumer.as_deref())?;
        let done = self.change(&request.limit, &key, StateChange::Block(length), "blocked").await?;
        Ok(KeyChange { until: Some(rfc3339(until)), ..done })
    }

    /// Lifts the block and the ban of a key.
    pub async fn unblock(&self, request: KeyRequest) -> Result<KeyChange, AdminError> {
        let KeyRequest { limit, key, consumer } = request;
        let key = self.key_text(&limit, key, consumer.as_deref())?;
        self.change(&limit, &key, StateChange::Unblock, "unblocked").await
    }

    async fn change(
        &self,
        limit: &str,
        key: &str,
        change: StateChange,
        done: &str,
    ) -> Result<KeyChange, AdminError> {
        let (key, policies) = self.key(limit, key)?;
        let keys: Vec<(PolicyId, Key)> = policies.into_iter().map(|policy| (policy, key)).collect();
        let all = &self.gate.limits.policies;
        let server @ StoreServer { store, shared } = self.store.of(key);
        store.change(all, &keys, change).await.map_err(|error| unavailable(server, &error))?;
        // What this process knows of the key is outdated.
        shared.grants.drop_keys(all, &keys);
        shared.denials.clear();
        shared.kept_slots.expire(all, &keys, monotonic());
        let key = limits::tag(key);
        tracing::info!("admin: key {key} of limit {limit} {done} by {}", self.operator);
        Ok(KeyChange { limit: limit.to_owned(), key, done: done.to_owned(), until: None })
    }

    /// The status of a key in a policy, by a take of cost 0.
    async fn status(&self, id: PolicyId, key: Key) -> Result<Vec<KeyStatus>, AdminError> {
        let policies = &self.gate.limits.policies;
        let policy = &policies[id];
        let server @ StoreServer { store, shared } = self.store.of(key);
        let raise = shared.raises.find(&policy.name, key, monotonic());
        let raised = raise.and_then(|raise| policy.raised(id, raise.factor).ok());
        let decisions = match &raised {
            Some(raised) => {
                let charge = Charge::take(PolicyId(0), key, 0);
                store.take(&Arc::from([raised.clone()]), &[charge]).await
            }
            None => store.take(policies, &[Charge::take(id, key, 0)]).await,
        };
        let decisions = decisions.map_err(|error| unavailable(server, &error))?;
        let policy = raised.as_ref().unwrap_or(policy);
        let reserved = policy.settles().then(|| shared.reserved.units(policy, key));
        let status = |decision| KeyStatus { reserved, ..key_status(policy, key, decision, self.clock.now()) };
        Ok(decisions.iter().map(status).collect())
    }

    /// The key that a request names.
    pub(super) fn key_text(
        &self,
        limit: &str,
        key: Option<String>,
        consumer: Option<&str>,
    ) -> Result<String, AdminError> {
        limits::text(self.gate, self.limit(limit)?, key, consumer).map_err(|error| {
            AdminError::bad_request(error).help(
                "write the values of all parts with a bar between them, or name a consumer and the values of the other parts",
            )
        })
    }

    /// Looks up a limit by name.
    pub fn limit(&self, name: &str) -> Result<PolicyId, AdminError> {
        if let Some(limit) = self.gate.limit_named(name) {
            return Ok(limit);
        }
        let names: Vec<&str> = self.gate.limits().map(|(_, policy)| &*policy.name).collect();
        let error = AdminError::new(StatusCode::NOT_FOUND, format!("unknown limit `{name}`"));
        Err(match nearest(name, names.iter().copied()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => error.help("the file has no limits"),
            None => error.help(format!("the limits are {}", names.join(", "))),
        })
    }

    /// Parses a key of a limit; returns it with the policies that may count it: that of its override, or the limit's own
    /// and those of its tiers.
    pub(super) fn key(&self, limit: &str, text: &str) -> Result<(Key, Vec<PolicyId>), AdminError> {
        let named = limits::key(self.gate, self.limit(limit)?, text).map_err(|error| {
            AdminError::bad_request(error).help(
                "write the values of all parts with a bar between them, or the key's tag as a list shows it",
            )
        })?;
        let tiers = named.tiers.iter().map(|(_, policy)| *policy);
        Ok((named.key, [named.policy].into_iter().chain(tiers).collect()))
    }

    /// The policy that counts a key which is stored under the policy `stored` of a limit: its override if there is one.
    fn counting_policy(&self, limit: PolicyId, stored: PolicyId, key: Key) -> PolicyId {
        let policies = &self.gate.limits.policies;
        let salt = |id: PolicyId| policies[id].salt();
        let own = self.gate.keys(limit).known(key).policy;
        if salt(own) == salt(stored) { own } else { stored }
    }
}

/// Parses the parameters of a query, in the order of `names`.
pub(super) fn parameters<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[Option<String>; N], AdminError> {
    let mut found = [const { None }; N];
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let index = names.iter().position(|known| *known == name);
        let Some(index) = index else {
            let error = AdminError::bad_request(format!("unknown parameter `{name}`"));
            return Err(error.help(format!("the parameters are {}", join_and(&names))));
        };
        if found[index].replace(value.into_owned()).is_some() {
            return Err(AdminError::bad_request(format!("the parameter `{name}` is given twice")));
        }
    }
    Ok(found)
}

fn required(value: Option<String>, name: &str) -> Result<String, AdminError> {
    value.ok_or_else(|| AdminError::bad_request(format!("the parameter `{name}` is missing")))
}

/// The consumer of all counted requests of a key.
pub(super) fn consumer_of(counter: &Counter) -> Option<String> {
    match &counter.label.as_deref()?.consumer {
        KeyConsumer::One(name) => Some(name.to_string()),
        _ => None,
    }
}

/// The `max` of a query.
pub(super) fn max_listed(max: Option<String>) -> Result<usize, AdminError> {
    max.map_or(Ok(DEFAULT_LISTED), |max| number(&max))
}

fn number(text: &str) -> Result<usize, AdminError> {
    let number = text.parse().ok().filter(|number| (1..=MAX_LISTED).contains(number));
    number
        .ok_or_else(|| AdminError::bad_request(format!("`max` must be from 1 to {MAX_LISTED}, not `{text}`")))
}

/// The error of a call to a server of the store.
pub(super) fn unavailable(server: &StoreServer, error: &StoreError) -> AdminError {
    let store = server.shared.breakers.name();
    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, format!("{store} is unavailable: {error}"))
}

fn key_status(policy: &Policy, key: Key, decision: &Decision, now: Timestamp) -> KeyStatus {
    let held = decision.reason != DenyReason::Quota;
    // A take of cost 0 is denied only by a ban or a block; a request of cost 1 also if nothing remains.
    let cause = match (decision.allowed, decision.reason) {
        (true, _) if decision.remaining > 0 => None,
        (_, DenyReason::Quota) => Some("quota"),
        (_, DenyReason::Ban) => Some("ban"),
        (_, DenyReason::Block) => Some("block"),
    };
    KeyStatus {
        limit: policy.name.to_string(),
        tier: limits::tier_of(policy).map(str::to_owned),
        key: limits::tag(key),
        allowed: cause.is_none(),
        cause: cause.map(str::to_owned),
        denials: None,
        consumer: None,
        of: decision.limit,
        remaining: decision.remaining,
        reserved: None,
        raised: policy.derived_from.and_then(|from| from.factor).map(|factor| factor.to_string()),
        reset_after: decision.reset_after.as_secs_f64(),
        until: decision.retry_after.filter(|_| held).map(|rest| rfc3339(now.after(rest))),
    }
}

/// A time as RFC 3339 writes it.
pub(super) fn rfc3339(time: Timestamp) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from(Micros(time.0))).to_string()
}
