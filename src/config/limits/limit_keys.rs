//! The keys of `[limits.NAME]`, and of the tables in it.

use std::num::NonZeroU64;

use http::StatusCode;

use super::cost_keys::CostKeys;
use crate::config::deny_status::DenyStatusKind;
use crate::config::keys::kinds::{Integer, words};
use crate::config::keys::mistaken::IN_NUMBERS;
use crate::config::keys::{ConfigKey, DeclaredKeys, Default, TableKeys, keys};
use crate::gate::{OnMissing, StreamUsage, Trust};
use crate::limit::{Ahead, Algorithm, MAX_IN_FLIGHT};
use crate::limiter::OnStoreFailure;

/// The largest number of units.
pub(super) const MAX_UNITS: u64 = 1 << 53;
/// The largest number of tokens of a setting.
const MAX_TOKENS: u64 = 1_000_000_000;
/// Bytes.
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// A status of `charge_on`.
pub(super) type Status = Integer<101, 599, u16>;
/// The bounds of a written `ahead`.
const SHORTEST_AHEAD: u64 = Ahead::MIN_SPAN.0;
const LONGEST_AHEAD: u64 = Ahead::MAX_SPAN.0;

words!(AlgorithmWords: Algorithm = [
    ("token_bucket", Algorithm::TokenBucket),
    ("gcra", Algorithm::Gcra),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_log", Algorithm::SlidingLog),
    ("sliding_window", Algorithm::SlidingWindow),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("concurrency", Algorithm::Concurrency),
]);
// Whether units are added at intervals.
words!(RefillWords: bool = [("smooth", false), ("interval", true)]);
// Whether windows start with the first request.
words!(AlignWords: bool = [("clock", false), ("first_request", true)]);
words!(OnMissingWords: OnMissing =
    [("client_ip", OnMissing::ClientIp), ("skip", OnMissing::Skip), ("deny", OnMissing::Deny)]);
words!(OnFailureWords: OnStoreFailure = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
]);
words!(AheadWords: () = [("off", ()), ("auto", ())]);
words!(ModeWords: Mode = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("mark", Mode::Mark)]);
words!(StreamUsageWords: StreamUsage = [
    ("count", StreamUsage::Count),
    ("require", StreamUsage::Require),
    ("add", StreamUsage::Add),
]);
words!(TrustWords: Trust = [("proxies", Trust::Proxies), ("any", Trust::Any)]);

/// What a limit does with the requests that it does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It denies them.
    Enforce,
    /// It only counts them.
    Shadow,
    /// It counts and forwards them with the header `X-RateLimit-Denied`.
    Mark,
}

keys! {
    /// The keys of a limit.
    LimitKeys {
        /// One of the seven [below](#algorithms)
        algorithm: Choice<AlgorithmWords> = "token_bucket";
        /// Units per period: `"100/minute"`, `"5/s"`, `"5/10m"`, `"5/10 minutes"`; for a `sliding_log` also an
        /// array of several
        rate: Either<Text, List<Text>>, or "required, but not for `concurrency`";
        /// `token_bucket`, `gcra`: how many units may be spent at once
        burst: Integer<0, MAX_UNITS>, or "see below";
        /// `token_bucket`: `"interval"` adds the units of `rate` at once at the end of each period
        refill: Choice<RefillWords> = "smooth";
        /// `fixed_window`: where windows start; `"first_request"`: with the first request that is charged
        align: Choice<AlignWords> = "clock";
        /// `fixed_window` per day, week, month or year: the IANA name of the time zone of the calendar
        timezone: Text = "UTC";
        /// `sliding_window`: the number of counters that divide the period
        buckets: Integer<1, 10_000> = 1;
        /// `leaky_bucket`: how many requests may wait
        queue: Integer<0, MAX_UNITS> = 0;
        /// `concurrency`: how many requests may be in flight at once
        max_in_flight: Integer<1, MAX_IN_FLIGHT>, or "required for `concurrency`";
        /// `concurrency`: how long the slots of a proxy that has died stay in use
        lease: Duration<{ 3 * SECOND }, DAY> = "30s";
        /// `concurrency`: the shares of the slots that only requests of a class and of higher ones may take, together at most 0.9; see
        /// [reserved slots](#reserved-slots)
        reserved_share: KeyTable<ReservedShareKeys>;
        /// A [key part](key-parts.md), or an array of parts that make one key together
        key: Either<Text, List<Text>> = "client_ip";
        /// What happens to a request that lacks a key part. `"client_ip"`: the address of the client replaces the
        /// part; `"skip"`: the limit does not apply; `"deny"`: the request is denied
        on_missing: Choice<OnMissingWords> = "client_ip";
        /// The status of `on_missing = "deny"`; 401 adds a `WWW-Authenticate` challenge and is meant for
        /// credentials
        missing_status: Integer<400, 499, StatusCode> = 403;
        /// The status of a denial by this limit; `"close"` closes the connection without a response; see [the status of
        /// a denial](#the-status-of-a-denial)
        deny_status: DenyStatusKind, or "that of `[answers]`";
        /// What happens while Redis is unavailable. `"local"`: this process enforces its
        /// [share](../redis.md#when-redis-is-unavailable) of the remaining units, and charges Redis later; `"allow"`:
        /// the limit allows every request; `"deny"`: requests get 503
        on_store_failure: Choice<OnFailureWords> = "local";
        /// `"auto"`: Redis [grants units ahead](../redis.md#units-granted-ahead) of requests, so that a proxy needs
        /// one call for many requests of a busy key; a duration is the length of a grant. With `concurrency`,
        /// `"auto"` keeps freed slots for the next request. Not for `leaky_bucket`
        ahead: Either<Choice<AheadWords>, Duration<SHORTEST_AHEAD, LONGEST_AHEAD>> = "off";
        /// The largest part of the available units that a grant has: 8 means an eighth
        ahead_share: Integer<1, 100, NonZeroU64> = 8;
        /// `"shadow"`: decides and counts, but never denies, delays or sets headers; `"mark"`: as `"shadow"`, and tells the
        /// server what would be denied; see [soft limits](#soft-limits)
        mode: Choice<ModeWords> = "enforce";
        /// The share of the limit from which on the server and the client are warned, such as `0.8`; see
        /// [soft limits](#soft-limits)
        warn_at: Decimal<0, 1>;
        /// Denies a key for longer after repeated denials, such as `{ after = 20, within = "1m", for = "10m" }`
        ban: KeyTable<BanKeys>;
        /// Networks, addresses and `"key:NAME"`: these requests get 403
        block: List<Text> = [];
        /// Networks, addresses and `"key:NAME"`: the limit never applies to these requests
        allow: List<Text> = [];
        /// Other numbers by a value of the request
        tiers: Mixed<TiersKeys, KeyTable<NumbersKeys>>;
        /// Other numbers for single keys
        overrides: NamedTable<KeyTable<NumbersKeys>>;
        /// Units that a request spends: a whole number (with 0 the limit never denies), or `"header:NAME"`. Or units that
        /// [the response decides](../settle.md): `"llm_tokens"`, or a table
        cost: Either<Integer<0, MAX_UNITS>, Either<Text, KeyTable<CostKeys>>> = 1;
        /// The highest value that counts of the header in `cost`; where the response decides the cost, the most that it can
        /// be
        cost_max: Integer<1, MAX_UNITS>, or "of a header 100, or the capacity if that is less; of a response 100 times the capacity";
        /// Whose headers may set the cost and the tier; `"any"`: those of every client
        trust: Choice<TrustWords> = "proxies";
        /// Final statuses, such as `[401, 403]`, and classes of them, such as `"2xx"`: requests that end with another status get
        /// their units back
        charge_on: List<Either<Status, Text>>, or "every status; where the response decides the cost, `[\"1xx\", \"2xx\", \"3xx\"]`";
        /// A [file of prices](../settle.md#money): the cost is that of the tokens of a language model, by its name
        prices: Text;
        /// The longest body of a request that is read for `cost`; a longer one is estimated by its length
        read_body: Size<{ 64 * KIB }, { 8 * MIB }> = "1MiB";
        /// Whether the header or trailer that `settle` names goes to the client
        keep_cost_header: Boolean = false;
        /// Whether a response ends when its key has no units left; see [stopping](../settle.md#stopping-at-the-budget)
        stop_streams: Boolean = false;
        /// How long a response is read on whose client has gone, to learn its cost
        finish_abandoned: Duration<ZERO, { 60 * MINUTE }> = "0s";
        /// Language models: a stream without usage is counted (`"count"`); a request that does not ask for its usage gets 400
        /// (`"require"`), or the proxy asks for it (`"add"`)
        stream_usage: Choice<StreamUsageWords> = "count";
        /// Language models: the share of the largest output of a request that is reserved
        estimate: Decimal<0, 1> = 1.0;
        /// Language models: tokens of output that are reserved for a request which names no maximum
        default_output: Integer<0, MAX_TOKENS> = 1024;
        /// Language models: bytes of text that are estimated as a token
        bytes_per_token: Integer<1, 16> = 4;
        /// Language models: tokens that are reserved for each image or other medium
        default_media: Integer<0, MAX_TOKENS> = 1000;
    }
    mistaken IN_LIMIT
}

/// The keys of a tier or an override: those of the numbers in `LimitKeys`.
pub enum NumbersKeys {}

static NUMBERS: TableKeys = TableKeys { all: &NUMBER_KEYS, has_own_table: false, mistaken: IN_NUMBERS };
/// The default of a number in a tier or an override is the value of the limit.
static NUMBER_KEYS: [ConfigKey; 9] = {
    let mut keys = [LimitKeys::KEYS.all[1]; 9];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = ConfigKey { default: Default::Words("of the limit"), ..LimitKeys::KEYS.all[1 + at] };
        at += 1;
    }
    keys
};

impl DeclaredKeys for NumbersKeys {
    const KEYS: &'static TableKeys = &NUMBERS;
}

keys! {
    /// The keys of `tiers` besides the names of tiers.
    TiersKeys {
        /// The [key part](key-parts.md) whose value is the name of the tier
        by: Text, required "header:x-plan";
    }
}

keys! {
    /// The keys of `reserved_share`.
    ReservedShareKeys {
        /// The share that is left to `critical`
        critical: Decimal<0, 1> = 0;
        /// The share that is left to `high` and `critical`
        high: Decimal<0, 1> = 0;
        /// The share that `low` leaves to higher classes
        normal: Decimal<0, 1> = 0;
    }
    mistaken IN_RESERVED_SHARE
}

keys! {
    /// The keys of `ban`.
    BanKeys {
        /// The number of denials after which a key is banned
        after: Integer<1, 1_000_000>, required 20;
        /// The time in which these denials are counted
        within: Duration<MILLISECOND, { 30 * DAY }>, required "1m";
        /// How long the ban lasts
        length("for"): Duration<MILLISECOND, YEAR>, required "10m";
    }
}
