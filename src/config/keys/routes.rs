//! `[[routes]]`.

use super::cors::CORS;
use super::geo::{ASN_NOT, COUNTRY_NOT};
use super::key::{Default, Key, Keys, Kind};

/// The keys of a route.
pub static ROUTE: Keys = Keys {
    all: &[
        Key {
            name: "name",
            kind: Kind::Text,
            default: Default::Words("its number"),
            doc: "For the log, `explain` and the key part `route`; must be unique",
        },
        Key {
            name: "host",
            kind: Kind::Text,
            default: Default::Words("any"),
            doc: "`\"api.example.com\"`, or `\"*.example.com\"` for one or more labels before it",
        },
        Key {
            name: "path",
            kind: Kind::Text,
            default: Default::Required("path = \"/*\""),
            doc: "An exact path; `{name}` matches one segment, and `*` at the end matches the rest of the path",
        },
        Key {
            name: "methods",
            kind: Kind::List(&Kind::Text),
            default: Default::Words("any"),
            doc: "`GET` also matches HEAD",
        },
        Key {
            name: "headers",
            kind: Kind::Named(&VALUE_CONDITION),
            default: Default::Words("none"),
            doc: "Conditions on headers by their names, such as `{ user-agent = \"*bot*\", x-beta = true }`; see \
              [conditions](#conditions-on-headers-query-and-cookies)",
        },
        Key {
            name: "query",
            kind: Kind::Named(&VALUE_CONDITION),
            default: Default::Words("none"),
            doc: "The same for query parameters",
        },
        Key {
            name: "cookies",
            kind: Kind::Named(&VALUE_CONDITION),
            default: Default::Words("none"),
            doc: "The same for cookies",
        },
        Key {
            name: "country",
            kind: Kind::Either(&[Kind::List(&Kind::Text), Kind::Table(&COUNTRY_NOT)]),
            default: Default::Words("any"),
            doc: "Countries of the client by their ISO 3166 codes, such as `[\"DE\", \"FR\"]`, from the database of \
              [`[geo]`](#geo)",
        },
        Key {
            name: "asn",
            kind: Kind::Either(&[Kind::List(&Kind::Integer(0, 4_294_967_295)), Kind::Table(&ASN_NOT)]),
            default: Default::Words("any"),
            doc: "Autonomous systems of the client by their numbers, such as `[64496]`",
        },
        Key {
            name: "limits",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Names of limits, at most 1,000 together with the default ones",
        },
        Key {
            name: "inherit_limits",
            kind: Kind::Boolean,
            default: Default::Toml("true"),
            doc: "Whether `default_limits` apply here as well",
        },
        Key {
            name: "encoded_slash",
            kind: Kind::Choice(&["refuse", "keep"]),
            default: Default::Toml("\"refuse\""),
            doc: "`\"keep\"` accepts paths with `%2F`. `check` rejects that where it would bypass a limit, and \
              warns where it may bypass a route that denies with `respond`",
        },
        Key {
            name: "max_body",
            kind: Kind::Size(0, 1 << 50),
            default: Default::Words("none"),
            doc: "The size of a request body, such as `\"10MiB\"`; see below",
        },
        Key {
            name: "consumers",
            kind: Kind::Either(&[Kind::Choice(&["public"]), Kind::List(&Kind::Text)]),
            default: Default::Words("as `[consumers]` says"),
            doc: "The tiers of the consumers that may use the route, such as `[\"pro\"]`, or `\"public\"` where no \
              credential is needed",
        },
        Key {
            name: "cors",
            kind: Kind::Either(&[Kind::Choice(&["off"]), Kind::Table(&CORS)]),
            default: Default::Words("as `[cors]` says"),
            doc: "Replaces `[cors]` for this route; `\"off\"` leaves CORS to the upstream",
        },
        Key {
            name: "upstream",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "The name of an upstream, or a URL",
        },
        Key {
            name: "respond",
            kind: Kind::Either(&[Kind::Choice(&["limits", "decide"]), Kind::Table(&RESPOND)]),
            default: Default::Words("none"),
            doc: "A response of tidegate itself, such as `{ body = \"ok\" }`; limits apply as well. `\"limits\"` \
              responds with the limits of the client and charges nothing; see [own limits](#own-limits). `\"decide\"` \
              is for authorization requests of trusted proxies; see [forward auth](forward-auth.md)",
        },
        DENY_STATUS,
        Key {
            name: "block",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "`true` refuses the requests with 403 and a problem+json body, in place of `upstream` or `respond`; \
              limits apply as well",
        },
        Key {
            name: "rewrite",
            kind: Kind::Table(&REWRITE),
            default: Default::Words("none"),
            doc: "Changes to the request on its way upstream, such as `{ strip_prefix = \"/v1\", host = \
              \"upstream\" }`",
        },
        Key {
            name: "request_headers",
            kind: Kind::Table(&EDITS),
            default: Default::Words("none"),
            doc: "Changes to the headers of the request: `remove` is applied first, then `set`",
        },
        Key {
            name: "response_headers",
            kind: Kind::Table(&RESPONSE_EDITS),
            default: Default::Words("none"),
            doc: "Changes to the headers of the response, in the same order",
        },
    ],
    has_own_table: false,
};

/// The status of denials, for a route or a listener for authorization requests.
pub const DENY_STATUS: Key = Key {
    name: "deny_status",
    kind: Kind::Integer(400, 599),
    default: Default::Words("that of the denial"),
    doc: "With `respond = \"decide\"`: the status of every denial, for proxies that accept no other one; \
      `X-Tidegate-Status` has the status that the client should get",
};

/// A condition on the values of a header, a query parameter or a cookie.
static VALUE_CONDITION: Kind =
    Kind::Either(&[Kind::Boolean, Kind::Text, Kind::List(&Kind::Text), Kind::Table(&NOT)]);

/// The keys of a condition that is a table.
pub static NOT: Keys = Keys {
    all: &[Key {
        name: "not",
        kind: Kind::Either(&[Kind::Text, Kind::List(&Kind::Text)]),
        default: Default::Required("not = \"value\""),
        doc: "A pattern, or several, that no value may match; true also for a request without the name",
    }],
    has_own_table: false,
};

/// The keys of `respond`.
pub static RESPOND: Keys = Keys {
    all: &[
        Key {
            name: "status",
            kind: Kind::Integer(200, 599),
            default: Default::Toml("200"),
            doc: "The status of the response",
        },
        Key {
            name: "body",
            kind: Kind::Text,
            default: Default::Toml("\"\""),
            doc: "The body of the response",
        },
    ],
    has_own_table: false,
};

/// The keys of `rewrite`.
pub static REWRITE: Keys = Keys {
    all: &[
        Key {
            name: "strip_prefix",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "A prefix of the path to remove, in whole segments",
        },
        Key {
            name: "host",
            kind: Kind::Text,
            default: Default::Words("the client's"),
            doc: "The Host header: `\"upstream\"` for the host of the server, or a name",
        },
    ],
    has_own_table: false,
};

/// The keys of `request_headers`.
pub static EDITS: Keys = Keys { all: &[SET, REMOVE], has_own_table: false };

/// The keys of `response_headers`.
pub static RESPONSE_EDITS: Keys = Keys {
    all: &[
        SET,
        REMOVE,
        Key {
            name: "always",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Whether the changes also apply to the responses of tidegate itself to requests of this route that it \
              rejects, such as 401, 403, 429 and 502",
        },
    ],
    has_own_table: false,
};

const SET: Key = Key {
    name: "set",
    kind: Kind::Named(&Kind::Text),
    default: Default::Words("none"),
    doc: "Headers to set, as `{ name = \"value\" }`",
};

const REMOVE: Key = Key {
    name: "remove",
    kind: Kind::List(&Kind::Text),
    default: Default::Toml("[]"),
    doc: "Names of headers to remove",
};
