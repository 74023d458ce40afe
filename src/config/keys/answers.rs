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
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The response to a request that a limit denies with 429, such as `{ body = \"wait {retry_after} seconds\" }`",
        },
        Key {
            name: "unauthorized",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 401: a credential or a key part is missing or not known",
        },
        Key {
            name: "forbidden",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 403: the client is blocked, or its tier may not use the route",
        },
        Key {
            name: "not_found",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 404: no route matches",
        },
        Key {
            name: "bad_request",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 400, 405, 408, 431 and 501: the request is not accepted as it is",
        },
        Key {
            name: "payload_too_large",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 413: the body is larger than `max_body`",
        },
        Key {
            name: "unavailable",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 503: limits can't be checked, or no connection to the upstream is free",
        },
        Key {
            name: "bad_gateway",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 502 and 508: the upstream gave no valid response, or the request loops",
        },
        Key {
            name: "timeout",
            kind: Kind::Table(&ANSWER),
            default: Default::Words("problem+json"),
            doc: "The same for 504: the upstream did not respond in time",
        },
    ],
    has_own_table: false,
};

/// The keys of `denied` and of the other responses.
pub static ANSWER: Keys = Keys {
    all: &[
        Key {
            name: "status",
            kind: Kind::Integer(400, 599),
            default: Default::Words("the same"),
            doc: "Another status",
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
        Key {
            name: "keys",
            kind: Kind::Choice(&["hash", "plain", "off"]),
            default: Default::Toml("\"hash\""),
            doc: "How `key`, the key under which a limit denied the request, is logged: as a tag (`\"hash\"`), as the values \
              of its parts (`\"plain\"`), or not at all (`\"off\"`)",
        },
        Key {
            name: "headers",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Request headers in the access log, such as `[\"user-agent\"]`: at most 16, and none that holds \
              credentials",
        },
    ],
    has_own_table: false,
};
