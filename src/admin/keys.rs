//! The keys of a limit: where they stand, and what is done to them by hand.

use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;

use super::answer::Refusal;
use super::api::{Block, Done, OneKey, Standing, Standings};
use super::{Admin, limits, names};
use crate::limit::{Charge, Decision, DenyReason, Key, Policy, PolicyId};
use crate::store::{Change, StoreError};
use crate::suggest::nearest;
use crate::time::{Micros, Timestamp};

/// How many keys are listed unless the request says.
const LISTED: usize = 100;
/// The most that are listed.
const MAX_LISTED: usize = 10_000;
/// The longest block: as good as for ever, and a time that can still be written.
const MAX_BLOCK: Duration = Duration::from_hours(24 * 36_525);

impl Admin {
    /// Where a key stands with a limit and each of its tiers.
    pub(super) async fn peek(&self, query: &str) -> Result<Standings, Refusal> {
        let [limit, key] = asked(query, ["limit", "key"])?;
        let (limit, key) = (needed(limit, "limit")?, needed(key, "key")?);
        let (key, policies) = self.key(&limit, &key)?;
        let mut keys = Vec::with_capacity(policies.len());
        for policy in policies {
            keys.extend(self.stand(policy, key).await?);
        }
        Ok(Standings { keys, more: false })
    }

    /// The keys that are known, of one limit or of all.
    pub(super) async fn list(&self, query: &str) -> Result<Standings, Refusal> {
        let [limit, max] = asked(query, ["limit", "max"])?;
        let max = max.map_or(Ok(LISTED), |max| number(&max))?;
        let limits = match &limit {
            Some(limit) => vec![self.limit(limit)?],
            None => self.gate().limits().map(|(limit, _)| limit).collect(),
        };
        let mut listed = Standings { keys: Vec::new(), more: false };
        for limit in limits {
            for (policy, about) in limits::stored(self.gate(), limit) {
                let free = max - listed.keys.len();
                // One more than there is room for tells whether there are more.
                let mut keys = self.store.keys(about, free + 1).await.map_err(|error| unavailable(&error))?;
                listed.more |= keys.len() > free;
                keys.truncate(free);
                for key in keys {
                    let standings = self.stand(self.numbers(limit, policy, key), key).await?;
                    // A store may keep a record for a moment longer than it says anything.
                    listed.keys.extend(standings.into_iter().filter(Standing::says_something));
                }
            }
        }
        Ok(listed)
    }

    /// Forgets what a key has spent, its denials and its ban; a block stays.
    pub(super) async fn reset(&self, asked: OneKey) -> Result<Done, Refusal> {
        self.change(&asked.limit, &asked.key, Change::Reset, "reset").await
    }

    /// Refuses a key for a while, whatever its quota says.
    pub(super) async fn block(&self, asked: Block) -> Result<Done, Refusal> {
        let length = humantime::parse_duration(&asked.length)
            .ok()
            .filter(|length| (Duration::from_millis(1)..=MAX_BLOCK).contains(length));
        let Some(length) = length.map(Micros::from) else {
            let refusal = Refusal::wrong(format!("`{}` is not a time to block for", asked.length));
            return Err(refusal.help("write it with its unit: \"30s\", \"10m\", \"1h\", \"7 days\""));
        };
        let limit = self.limit(&asked.limit)?;
        if self.gate().limits.policies[limit].shadow {
            let refusal =
                Refusal::wrong(format!("limit {} only watches: it would turn nobody away", asked.limit));
            return Err(refusal.help("block the key in a limit that enforces, or set mode = \"enforce\""));
        }
        let until = self.clock.now().after(length);
        let done = self.change(&asked.limit, &asked.key, Change::Block(length), "blocked").await?;
        Ok(Done { until: Some(written(until)), ..done })
    }

    /// Lifts the block and the ban of a key.
    pub(super) async fn unblock(&self, asked: OneKey) -> Result<Done, Refusal> {
        self.change(&asked.limit, &asked.key, Change::Unblock, "unblocked").await
    }

    async fn change(&self, limit: &str, key: &str, change: Change, done: &str) -> Result<Done, Refusal> {
        let (key, policies) = self.key(limit, key)?;
        let keys: Vec<(PolicyId, Key)> = policies.into_iter().map(|policy| (policy, key)).collect();
        let all = &self.gate().limits.policies;
        let changed = self.store.change(all, &keys, change).await;
        changed.map_err(|error| unavailable(&error))?;
        self.denials.clear();
        let key = names::tag(key);
        tracing::info!("{key} of limit {limit} was {done} by hand");
        Ok(Done { limit: limit.to_owned(), key, done: done.to_owned(), until: None })
    }

    /// Where a key stands with a policy: a free look.
    async fn stand(&self, id: PolicyId, key: Key) -> Result<Vec<Standing>, Refusal> {
        let policies = &self.gate().limits.policies;
        let look = [Charge::take(id, key, 0)];
        let decisions = self.store.take(policies, &look).await.map_err(|error| unavailable(&error))?;
        Ok(decisions
            .iter()
            .map(|decision| standing(&policies[id], key, decision, self.clock.now()))
            .collect())
    }

    /// The limit of this name.
    fn limit(&self, name: &str) -> Result<PolicyId, Refusal> {
        if let Some(limit) = self.gate().limit_named(name) {
            return Ok(limit);
        }
        let names: Vec<&str> = self.gate().limits().map(|(_, policy)| &*policy.name).collect();
        let refusal = Refusal::new(StatusCode::NOT_FOUND, format!("there is no limit `{name}`"));
        Err(match nearest(name, names.iter().copied()) {
            Some(near) => refusal.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => refusal.help("the file has no limits"),
            None => refusal.help(format!("the limits are {}", names.join(", "))),
        })
    }

    /// A key of a limit, and the policies that may count it: that of its override, or the limit's own and those
    /// of its tiers.
    fn key(&self, limit: &str, text: &str) -> Result<(Key, Vec<PolicyId>), Refusal> {
        let named = names::key(self.gate(), self.limit(limit)?, text).map_err(|error| {
            Refusal::wrong(error)
                .help("write all parts with a bar between them, or the tag that a list shows")
        })?;
        let tiers = named.tiers.iter().map(|(_, policy)| *policy);
        Ok((named.key, [named.policy].into_iter().chain(tiers).collect()))
    }

    /// The numbers by which a key is counted that stands in the store under this policy of a limit: if it has an
    /// override, they are that one's.
    fn numbers(&self, limit: PolicyId, stored: PolicyId, key: Key) -> PolicyId {
        let policies = &self.gate().limits.policies;
        let salt = |id: PolicyId| policies[id].salt();
        let own = self.gate().keys(limit).known(key).policy;
        if salt(own) == salt(stored) { own } else { stored }
    }
}

/// The parameters of a query by their names.
fn asked<const N: usize>(query: &str, names: [&str; N]) -> Result<[Option<String>; N], Refusal> {
    let mut found = [const { None }; N];
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let place = names.iter().position(|known| *known == name);
        let Some(place) = place else {
            let refusal = Refusal::wrong(format!("the parameter `{name}` is not known here"));
            return Err(refusal.help(format!("the parameters are {}", names.join(" and "))));
        };
        if found[place].replace(value.into_owned()).is_some() {
            return Err(Refusal::wrong(format!("the parameter `{name}` stands there twice")));
        }
    }
    Ok(found)
}

fn needed(value: Option<String>, name: &str) -> Result<String, Refusal> {
    value.ok_or_else(|| Refusal::wrong(format!("the parameter `{name}` is missing")))
}

fn number(text: &str) -> Result<usize, Refusal> {
    let number = text.parse().ok().filter(|number| (1..=MAX_LISTED).contains(number));
    number.ok_or_else(|| Refusal::wrong(format!("`max` must be from 1 to {MAX_LISTED}, not `{text}`")))
}

fn unavailable(error: &StoreError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store can't be asked: {error}"))
}

fn standing(policy: &Policy, key: Key, decision: &Decision, now: Timestamp) -> Standing {
    let held = decision.cause != DenyReason::Quota;
    // A look that costs nothing is refused only by a ban or a block.
    let cause = match (decision.allowed, decision.cause) {
        (true, _) if decision.remaining > 0 => None,
        (_, DenyReason::Quota) => Some("quota"),
        (_, DenyReason::Ban) => Some("ban"),
        (_, DenyReason::Block) => Some("block"),
    };
    Standing {
        limit: policy.name.to_string(),
        tier: limits::tier_of(policy).map(str::to_owned),
        key: names::tag(key),
        allowed: cause.is_none(),
        cause: cause.map(str::to_owned),
        of: decision.limit,
        remaining: decision.remaining,
        reset_after: seconds(decision.reset_after),
        until: decision.retry_after.filter(|_| held).map(|rest| written(now.after(rest))),
    }
}

fn seconds(span: Micros) -> f64 {
    Duration::from(span).as_secs_f64()
}

/// A time as people write it.
fn written(time: Timestamp) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from(Micros(time.0))).to_string()
}
