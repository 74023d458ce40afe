//! What is asked of the interface and what it answers, as both ends have it. Times are seconds.

use serde::{Deserialize, Serialize};

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What is wrong.
    pub error: String,
    /// What would be right.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub help: Option<String>,
}

/// What `/limits` tells of one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// Its name.
    pub name: String,
    /// Its algorithm, as the file names it.
    pub algorithm: String,
    /// The parts of its key, as the file names them.
    pub key: Vec<String>,
    /// What a request spends.
    pub cost: CostInfo,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// What it does when the store can't be asked.
    pub on_store_failure: String,
    /// The most that could be there at once.
    pub limit: u64,
    /// What clients are told: so many units …
    pub quota: u64,
    /// … in so many seconds.
    pub window: u64,
    /// The other numbers that it has for some requests.
    pub tiers: Vec<TierInfo>,
    /// The other numbers that it has for some keys.
    #[serde(default)]
    pub overrides: Vec<TierInfo>,
}

/// What a request spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CostInfo {
    /// Always so many units.
    Fixed(u64),
    /// As many as this header says.
    Header(String),
}

/// Other numbers of a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    /// The tier's name, or the key that an override is for.
    pub name: String,
    /// The most that could be there at once.
    pub limit: u64,
    /// What clients are told: so many units …
    pub quota: u64,
    /// … in so many seconds.
    pub window: u64,
}

/// What `/keys/reset` and `/keys/unblock` are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneKey {
    /// The limit's name.
    pub limit: String,
    /// The key, as [`super`] reads it.
    pub key: String,
}

/// What `/keys/block` is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The limit's name.
    pub limit: String,
    /// The key.
    pub key: String,
    /// How long, such as `10m`.
    #[serde(rename = "for")]
    pub length: String,
}

/// What was done to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The limit's name.
    pub limit: String,
    /// The key's tag: `tag:` and 22 characters.
    pub key: String,
    /// `reset`, `blocked` or `unblocked`.
    pub done: String,
    /// The end of a block, as RFC 3339 has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<String>,
}

/// Where one key stands with one limit, or with one tier of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// The limit's name.
    pub limit: String,
    /// The tier, unless it is the limit's own numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tier: Option<String>,
    /// The key's tag: `tag:` and 22 characters.
    pub key: String,
    /// Whether a request of cost 1 would pass now.
    pub allowed: bool,
    /// What refuses: `quota`, `ban` or `block`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// The most that could be there at once.
    pub of: u64,
    /// What is there.
    pub remaining: u64,
    /// Until all of it is there.
    pub reset_after: f64,
    /// The end of the ban or block, as RFC 3339 has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<String>,
}

impl Standing {
    /// Whether it differs from that of a key that has never been seen.
    pub(super) fn says_something(&self) -> bool {
        !self.allowed || self.reset_after > 0.0
    }
}

/// What `/keys` and `/keys/peek` answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standings {
    /// Each key with each limit or tier.
    pub keys: Vec<Standing>,
    /// Whether there may be more than were asked for.
    pub more: bool,
}
