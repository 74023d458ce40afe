//! `[answers]` and `[log]`.

use super::key::{Default, Key, Keys, Kind};
use super::units::{SECOND, YEAR};

/// The keys of `[answers]`.
pub static ANSWERS: Keys = Keys {
    all: &[
        Key {
            name: "rate_headers",
            kind: Kind::Choice(&["x-ratelimit", "draft-11", "both", "none"]),
            default: Default::Toml("\"x-ratelimit\""),
            doc: "Rate-limit headers: `X-RateLimit-*`, or `\"draft-11\"` for `RateLimit-Policy` and \
              `RateLimit`, `\"both\"`, `\"none\"`",
        },
        Key {
            name: "reset",
            kind: Kind::Choice(&["delta", "epoch"]),
            default: Default::Toml("\"delta\""),
            doc: "`X-RateLimit-Reset` in seconds from now, or `\"epoch\"` as Unix time",
        },
        Key {
            name: "retry_after_max",
            kind: Kind::DurationOrOff(SECOND, YEAR),
            default: Default::Toml("\"off\""),
            doc: "The highest value of `Retry-After`; the body has the whole wait nevertheless",
        },
        Key {
            name: "retry_after_jitter",
            kind: Kind::Decimal(0.0, 1.0),
            default: Default::Toml("0.0"),
            doc: "Up to this share is added to `Retry-After` at random",
        },
        Key {
            name: "denied",
            kind: Kind::Table(&DENIED),
            default: Default::Words("problem+json"),
            doc: "The response to a denied request, such as `{ body = \"wait {retry_after} seconds\" }`",
        },
    ],
    has_own_table: false,
};

/// The keys of `denied`.
pub static DENIED: Keys = Keys {
    all: &[
        Key {
            name: "status",
            kind: Kind::Integer(400, 599),
            default: Default::Toml("429"),
            doc: "The status of the response",
        },
        Key {
            name: "content_type",
            kind: Kind::Text,
            default: Default::Toml("\"text/plain; charset=utf-8\""),
            doc: "The media type of the body",
        },
        Key {
            name: "body",
            kind: Kind::Text,
            default: Default::Required("body = \"wait {retry_after} seconds\""),
            doc: "The body; see below for its placeholders",
        },
    ],
    has_own_table: false,
};

/// The keys of `[log]`.
pub static LOG: Keys = Keys {
    all: &[
        Key {
            name: "level",
            kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
            default: Default::Toml("\"info\""),
            doc: "The lowest level of the log on standard error: `error`, `warn`, `info`, `debug` or `trace`",
        },
        Key {
            name: "access",
            kind: Kind::Choice(&["json", "text", "off"]),
            default: Default::Toml("\"json\""),
            doc: "The access log, one line per request on standard output: `json`, `text` or `off`",
        },
        Key {
            name: "access_only",
            kind: Kind::Choice(&["all", "denied"]),
            default: Default::Toml("\"all\""),
            doc: "`\"denied\"`: only requests that a limit has denied, with 403, 429 or 503",
        },
        Key {
            name: "access_sample",
            kind: Kind::Decimal(0.0, 1.0),
            default: Default::Toml("1.0"),
            doc: "The share of requests that are logged, chosen at random",
        },
    ],
    has_own_table: false,
};
