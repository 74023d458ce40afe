//! Bodies of requests and responses, which the command line shares. Times are in seconds.

mod process;

pub use process::{
    AcmeCertificateInfo, AcmeErrorInfo, AcmeInfo, ConfigError, ConfigInfo, LimitStatusInfo, ListenerInfo,
    ProblemInfo, ReloadError, ReloadInfo, ReloadRequest, ServerInfo, StatusInfo, StoreInfo, UpstreamInfo,
};

use serde::{Deserialize, Serialize};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: String,
    /// How to correct it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub help: Option<String>,
}

/// The response of `/v1/limits`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitList {
    /// Every limit, in the order of the file.
    pub limits: Vec<LimitInfo>,
}

/// A limit of the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// Its name.
    pub name: String,
    /// Its algorithm, by its name in the configuration.
    pub algorithm: String,
    /// The parts of its key, by their names in the configuration.
    pub key: Vec<String>,
    /// The cost of a request.
    pub cost: CostInfo,
    /// `enforce`, `shadow` or `mark`.
    pub mode: String,
    /// Its behaviour when the store is unavailable.
    pub on_store_failure: String,
    /// How units are granted ahead of requests; none if the store decides every request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ahead: Option<AheadInfo>,
    /// Its rate and what belongs to it, such as `600/minute, burst 100`.
    pub numbers: String,
    /// The most units that can be available at once.
    pub limit: u64,
    /// The quota that clients are sent: this many units …
    pub quota: u64,
    /// … in this many seconds.
    pub window: u64,
    /// Its tiers.
    pub tiers: Vec<TierInfo>,
    /// Its overrides for certain keys.
    #[serde(default)]
    pub overrides: Vec<TierInfo>,
}

/// How units are granted ahead of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AheadInfo {
    /// How long a grant lasts, or how long a freed slot is kept.
    pub span: f64,
    /// The largest part of the available units that a grant has: 8 means an eighth; none for a concurrency limit, which keeps
    /// freed slots.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<u64>,
}

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CostInfo {
    /// A constant number of units.
    Fixed(u64),
    /// The value of this header.
    Header(String),
    /// An estimate on arrival, which the response corrects.
    Settled(SettledCostInfo),
}

/// A cost that the response decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledCostInfo {
    /// What a request reserves, as the configuration has it; empty for the tokens of a language model.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reserve: Vec<String>,
    /// What it is charged in the end: the source of `settle`, or `llm_tokens`, `llm` or `prices`.
    pub settle: String,
    /// The most that it can be.
    pub max: u64,
}

/// A tier or an override of a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    /// The name of the tier, or the key of the override.
    pub name: String,
    /// Its rate and what belongs to it, such as `600/minute, burst 100`.
    pub numbers: String,
    /// The most units that can be available at once.
    pub limit: u64,
    /// The quota that clients are sent: this many units …
    pub quota: u64,
    /// … in this many seconds.
    pub window: u64,
}

/// The request body of `/v1/keys/reset`, `/v1/keys/unblock` and `/v1/keys/end-raise`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// The limit's name.
    pub limit: String,
    /// The key: the values of its parts, or its tag. With `consumer` the values of its other parts, if it has some.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The name of the consumer whose key it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub consumer: Option<String>,
}

/// The request body of `/v1/keys/block`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// The limit's name.
    pub limit: String,
    /// The key, as in [`KeyRequest`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The name of the consumer whose key it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub consumer: Option<String>,
    /// The duration, such as `10m`.
    #[serde(rename = "for")]
    pub length: String,
}

/// The request body of `/v1/keys/raise`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RaiseRequest {
    /// The limit's name.
    pub limit: String,
    /// The key, as in [`KeyRequest`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The name of the consumer whose key it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub consumer: Option<String>,
    /// How many times its numbers are raised, such as `2x`.
    pub by: String,
    /// The duration, such as `1h`.
    #[serde(rename = "for")]
    pub length: String,
}

/// The response of `/v1/keys/raises`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaisesList {
    /// The raises that have not ended.
    pub raises: Vec<RaiseInfo>,
}

/// The raise of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseInfo {
    /// The limit's name.
    pub limit: String,
    /// The key's tag.
    pub key: String,
    /// How many times its numbers are raised, such as `2x`.
    pub by: String,
    /// The end, in RFC 3339.
    pub until: String,
    /// Who has started it: the address or the user of the client of the interface.
    pub started_by: String,
}

/// The response to a change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The limit's name.
    pub limit: String,
    /// The key's tag: `tag:` and 22 characters.
    pub key: String,
    /// `reset`, `blocked`, `unblocked`, `raised by` a factor, or `no longer raised`.
    pub done: String,
    /// The end of a block or a raise, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<String>,
}

/// The status of a key in a limit, or in one of its tiers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// The limit's name.
    pub limit: String,
    /// The tier; none for the limit's own quota.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tier: Option<String>,
    /// The key's tag: `tag:` and 22 characters.
    pub key: String,
    /// Whether a request of cost 1 would pass now.
    pub allowed: bool,
    /// The reason of a denial: `quota`, `ban` or `block`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// How many of its requests the limit has denied in the last hour, or up to 1 % of all denials of the limit more; only in
    /// the response of `/v1/keys/denied`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub denials: Option<u64>,
    /// The consumer of all of its denied requests; only in the response of `/v1/keys/denied`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub consumer: Option<String>,
    /// The most units that can be available at once.
    pub of: u64,
    /// The units that remain.
    pub remaining: u64,
    /// Of the units that do not remain, those that requests in flight through this process have reserved; only of a limit that
    /// settles its cost by the response.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reserved: Option<u64>,
    /// How many times the numbers are raised, such as `2x`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raised: Option<String>,
    /// The time until all units are available again.
    pub reset_after: f64,
    /// The end of the ban or block, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<String>,
}

impl KeyStatus {
    /// Whether it differs from the status of an unused key.
    pub(super) fn is_notable(&self) -> bool {
        !self.allowed || self.reset_after > 0.0
    }
}

/// The response of `/v1/keys`, `/v1/keys/denied` and `/v1/keys/peek`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyList {
    /// The status of each key in each limit or tier.
    pub keys: Vec<KeyStatus>,
    /// Whether there may be more keys than the maximum of the request.
    pub more: bool,
}

/// The response of `/v1/top`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopList {
    /// `denials`, `traffic` or `refusals`.
    pub by: String,
    /// The window: `1m`, `10m` or `60m`.
    pub window: String,
    /// The seconds that it covers.
    pub seconds: u64,
    /// The limits, that with the most events first; none by `refusals`.
    pub limits: Vec<TopLimit>,
    /// By `refusals` the upstreams with `overload` that have refused requests, that with the most first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub upstreams: Vec<TopUpstream>,
}

/// The requests that an upstream with `overload` has refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUpstream {
    /// Its name, as in metrics.
    pub upstream: String,
    /// Those of all classes.
    pub total: u64,
    /// The classes of which it has refused requests, the highest one first.
    pub classes: Vec<TopClass>,
}

/// The requests of a class that an upstream has refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopClass {
    /// `critical`, `high`, `normal` or `low`.
    pub class: String,
    /// How many.
    pub count: u64,
}

/// The most frequent keys of a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopLimit {
    /// The limit's name.
    pub limit: String,
    /// `enforce`, `shadow` or `mark`; in the last two denials are those that the limit would have made.
    pub mode: String,
    /// The events of all keys: denials, or all requests that the limit decided.
    pub total: u64,
    /// By how many events a count may be too high at most. A key that is not listed for lack of room has no more.
    pub max_error: u64,
    /// The most frequent keys, in descending order.
    pub keys: Vec<TopKey>,
}

/// A frequent key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopKey {
    /// The consumer of all of its requests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub consumer: Option<String>,
    /// Whether its requests differ in their consumers.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub several_consumers: bool,
    /// The key's tag: `tag:` and 22 characters.
    pub key: String,
    /// The values of the key's parts, if `[log] keys` is `plain`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Its events, or up to `error` more.
    pub count: u64,
    /// By how many events `count` may be too high.
    pub error: u64,
}

/// The first event of `/v1/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of tidegate.
    pub version: String,
    /// The start of the process, in Unix time.
    pub started: f64,
    /// The seconds between frames.
    pub interval: u64,
    /// The number of routes of the configuration.
    pub routes: usize,
    /// The limits in the order of the file, up to a maximum.
    pub limits: Vec<LimitSummary>,
    /// How many limits are not listed.
    pub limits_left_out: usize,
    /// Whether the client may also change keys.
    pub can_change: bool,
}

/// A limit without its tiers and overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSummary {
    /// Its name.
    pub name: String,
    /// Its algorithm, by its name in the configuration.
    pub algorithm: String,
    /// `enforce`, `shadow` or `mark`.
    pub mode: String,
    /// Its rate and what belongs to it, such as `600/minute, burst 100`.
    pub numbers: String,
    /// The most units that can be available at once.
    pub limit: u64,
    /// The quota that clients are sent: this many units …
    pub quota: u64,
    /// … in this many seconds.
    pub window: u64,
}

/// The response of `/v1/keys/history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyHistoryResponse {
    /// The limit's name.
    pub limit: String,
    /// The key's tag: `tag:` and 22 characters.
    pub key: String,
    /// `enforce`, `shadow` or `mark`; in the last two denials are those that the limit would have made.
    pub mode: String,
    /// By how many a number of a slot may be too high, or too low for a key that is not among the most frequent ones.
    pub max_error: u64,
    /// Slots without gaps, the oldest first.
    pub slots: Vec<KeySlotInfo>,
}

/// The requests and denials of a key in a span of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeySlotInfo {
    /// The start of the span, in Unix time.
    pub from: f64,
    /// The length of the span.
    pub seconds: f64,
    /// Requests that the limit decided.
    pub requests: u64,
    /// Requests that the limit denied.
    pub denials: u64,
}
