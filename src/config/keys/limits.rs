//! `[limits.NAME]`.

use std::time::Duration;

use super::key::{Default, Key, Keys, Kind};
use super::units::{DAY, MILLISECOND, YEAR};
use crate::limit;

/// Expired leases are removed once a second, and leases are renewed after a third of their time.
const LEASE_LOW: Duration = Duration::from_secs(3);
const MONTH: Duration = Duration::from_hours(30 * 24);

/// The largest number of units.
const MAX_UNITS: u64 = 1 << 53;

const RATE: Key = Key {
    name: "rate",
    kind: Kind::Either(&[Kind::Text, Kind::List(&Kind::Text)]),
    default: Default::Words("required, but not for `concurrency`"),
    doc: "Units per period: `\"100/minute\"`, `\"5/s\"`, `\"5/10m\"`, `\"5/10 minutes\"`; for a \
      `sliding_log` also an array of several",
};

const BURST: Key = Key {
    name: "burst",
    kind: Kind::Integer(0, MAX_UNITS),
    default: Default::Words("see below"),
    doc: "`token_bucket`, `gcra`: how many units may be spent at once",
};

const REFILL: Key = Key {
    name: "refill",
    kind: Kind::Choice(&["smooth", "interval"]),
    default: Default::Toml("\"smooth\""),
    doc: "`token_bucket`: `\"interval\"` adds the units of `rate` at once at the end of each period",
};

const ALIGN: Key = Key {
    name: "align",
    kind: Kind::Choice(&["clock", "first_request"]),
    default: Default::Toml("\"clock\""),
    doc: "`fixed_window`: where windows start; `\"first_request\"`: with the first request that is \
      charged",
};

const TIMEZONE: Key = Key {
    name: "timezone",
    kind: Kind::Text,
    default: Default::Toml("\"UTC\""),
    doc: "`fixed_window` per day, week, month or year: the IANA name of the time zone of the calendar",
};

const BUCKETS: Key = Key {
    name: "buckets",
    kind: Kind::Integer(1, 10_000),
    default: Default::Toml("1"),
    doc: "`sliding_window`: the number of counters that divide the period",
};

const QUEUE: Key = Key {
    name: "queue",
    kind: Kind::Integer(0, MAX_UNITS),
    default: Default::Toml("0"),
    doc: "`leaky_bucket`: how many requests may wait",
};

const MAX_IN_FLIGHT: Key = Key {
    name: "max_in_flight",
    kind: Kind::Integer(1, limit::MAX_IN_FLIGHT),
    default: Default::Words("required for `concurrency`"),
    doc: "`concurrency`: how many requests may be in flight at once",
};

const LEASE: Key = Key {
    name: "lease",
    kind: Kind::Duration(LEASE_LOW, DAY),
    default: Default::Toml("\"30s\""),
    doc: "`concurrency`: how long the slots of a proxy that has died stay in use",
};

/// The bounds of a written `ahead`.
const SHORTEST_AHEAD: Duration = Duration::from_micros(limit::Ahead::MIN_SPAN.0);
const LONGEST_AHEAD: Duration = Duration::from_micros(limit::Ahead::MAX_SPAN.0);

/// The keys of a limit.
pub static LIMIT: Keys = Keys {
    all: &[
        Key {
            name: "algorithm",
            kind: Kind::Choice(&[
                "token_bucket",
                "gcra",
                "fixed_window",
                "sliding_log",
                "sliding_window",
                "leaky_bucket",
                "concurrency",
            ]),
            default: Default::Toml("\"token_bucket\""),
            doc: "One of the seven [below](#algorithms)",
        },
        RATE,
        BURST,
        REFILL,
        ALIGN,
        TIMEZONE,
        BUCKETS,
        QUEUE,
        MAX_IN_FLIGHT,
        LEASE,
        Key {
            name: "key",
            kind: Kind::Either(&[Kind::Text, Kind::List(&Kind::Text)]),
            default: Default::Toml("\"client_ip\""),
            doc: "A [key part](#key-parts), or an array of parts that make one key together",
        },
        Key {
            name: "on_missing",
            kind: Kind::Choice(&["client_ip", "skip", "deny"]),
            default: Default::Toml("\"client_ip\""),
            doc: "What happens to a request that lacks a key part. `\"client_ip\"`: the address of the client \
              replaces the part; `\"skip\"`: the limit does not apply; `\"deny\"`: the request is \
              denied",
        },
        Key {
            name: "missing_status",
            kind: Kind::Integer(400, 499),
            default: Default::Toml("403"),
            doc: "The status of `on_missing = \"deny\"`; 401 adds a `WWW-Authenticate` challenge and is \
              meant for credentials",
        },
        Key {
            name: "on_store_failure",
            kind: Kind::Choice(&["local", "allow", "deny"]),
            default: Default::Toml("\"local\""),
            doc: "What happens while Redis is unavailable. `\"local\"`: this process enforces its \
              [share](redis.md#when-redis-is-unavailable) of the remaining units, and charges Redis later; \
              `\"allow\"`: the limit allows every request; `\"deny\"`: requests get 503",
        },
        Key {
            name: "ahead",
            kind: Kind::Either(&[
                Kind::Choice(&["off", "auto"]),
                Kind::Duration(SHORTEST_AHEAD, LONGEST_AHEAD),
            ]),
            default: Default::Toml("\"off\""),
            doc: "`\"auto\"`: Redis [grants units ahead](redis.md#units-granted-ahead) of requests, so that a proxy \
              needs one call for many requests of a busy key; a duration is the length of a grant. With \
              `concurrency`, `\"auto\"` keeps freed slots for the next request. Not for `leaky_bucket`",
        },
        Key {
            name: "ahead_share",
            kind: Kind::Integer(1, 100),
            default: Default::Toml("8"),
            doc: "The largest part of the available units that a grant has: 8 means an eighth",
        },
        Key {
            name: "mode",
            kind: Kind::Choice(&["enforce", "shadow"]),
            default: Default::Toml("\"enforce\""),
            doc: "`\"shadow\"`: decides and counts, but never denies, delays or sets headers",
        },
        Key {
            name: "ban",
            kind: Kind::Table(&BAN),
            default: Default::Words("none"),
            doc: "Denies a key for longer after repeated denials, such as `{ after = 20, within = \"1m\", for \
              = \"10m\" }`",
        },
        Key {
            name: "block",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Networks, addresses and `\"key:NAME\"`: these requests get 403",
        },
        Key {
            name: "allow",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Networks, addresses and `\"key:NAME\"`: the limit never applies to these requests",
        },
        Key {
            name: "tiers",
            kind: Kind::Mixed(&TIERS, &Kind::Table(&NUMBERS)),
            default: Default::Words("none"),
            doc: "Other numbers by a value of the request",
        },
        Key {
            name: "overrides",
            kind: Kind::Named(&Kind::Table(&NUMBERS)),
            default: Default::Words("none"),
            doc: "Other numbers for single keys",
        },
        Key {
            name: "cost",
            kind: Kind::Either(&[Kind::Integer(0, MAX_UNITS), Kind::Text]),
            default: Default::Toml("1"),
            doc: "Units that a request spends: a whole number (with 0 the limit never denies), or \
              `\"header:NAME\"`",
        },
        Key {
            name: "cost_max",
            kind: Kind::Integer(1, MAX_UNITS),
            default: Default::AtMost("100", "or the capacity if that is less"),
            doc: "The highest value that counts of the header in `cost`",
        },
        Key {
            name: "trust",
            kind: Kind::Choice(&["proxies", "any"]),
            default: Default::Toml("\"proxies\""),
            doc: "Whose headers may set the cost and the tier; `\"any\"`: those of every client",
        },
        Key {
            name: "charge_on",
            kind: Kind::List(&Kind::Integer(101, 599)),
            default: Default::Words("none"),
            doc: "Final statuses, such as `[401, 403]`: requests that end with another status get their units \
              back",
        },
    ],
    has_own_table: false,
};

/// The keys of a tier or an override.
pub static NUMBERS: Keys = Keys {
    all: &[
        of_limit(RATE),
        of_limit(BURST),
        of_limit(REFILL),
        of_limit(ALIGN),
        of_limit(TIMEZONE),
        of_limit(BUCKETS),
        of_limit(QUEUE),
        of_limit(MAX_IN_FLIGHT),
        of_limit(LEASE),
    ],
    has_own_table: false,
};

/// The same key in a tier or an override, where the default is the value of the limit.
const fn of_limit(key: Key) -> Key {
    Key { default: Default::Words("of the limit"), ..key }
}

/// The keys of `tiers` besides the names of tiers.
pub static TIERS: Keys = Keys {
    all: &[Key {
        name: "by",
        kind: Kind::Text,
        default: Default::Required("by = \"header:x-plan\""),
        doc: "The [key part](#key-parts) whose value is the name of the tier",
    }],
    has_own_table: false,
};

/// The keys of `ban`.
pub static BAN: Keys = Keys {
    all: &[
        Key {
            name: "after",
            kind: Kind::Integer(1, 1_000_000),
            default: Default::Required("after = 20"),
            doc: "The number of denials after which a key is banned",
        },
        Key {
            name: "within",
            kind: Kind::Duration(MILLISECOND, MONTH),
            default: Default::Required("within = \"1m\""),
            doc: "The time in which these denials are counted",
        },
        Key {
            name: "for",
            kind: Kind::Duration(MILLISECOND, YEAR),
            default: Default::Required("for = \"10m\""),
            doc: "How long the ban lasts",
        },
    ],
    has_own_table: false,
};
