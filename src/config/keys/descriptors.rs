//! `[[descriptors]]`.

use super::key::{Default, Key, Keys, Kind};

/// The keys of a rule for descriptors.
pub static DESCRIPTOR: Keys = Keys {
    all: &[
        Key {
            name: "domain",
            kind: Kind::Text,
            default: Default::Required("domain = \"edge\""),
            doc: "The domain, which clients of the service send with their descriptors",
        },
        Key {
            name: "match",
            kind: Kind::List(&Kind::Text),
            default: Default::Required("match = [\"remote_address\"]"),
            doc: "The entries of a descriptor in their order: `\"key\"` for any value, `\"key=value\"` for one value, and \
              `\"key=begin*\"` for a pattern, in which `\\*` is an asterisk",
        },
        Key {
            name: "limits",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Names of limits; without any, such descriptors are unlimited",
        },
        Key {
            name: "block",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Whether such descriptors are always over the limit",
        },
        Key {
            name: "name",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "For the `replaces` of other rules",
        },
        Key {
            name: "replaces",
            kind: Kind::List(&Kind::Text),
            default: Default::Toml("[]"),
            doc: "Names of rules which do not apply to a request with a descriptor of this rule",
        },
        Key {
            name: "charge_late",
            kind: Kind::Boolean,
            default: Default::Toml("false"),
            doc: "Whether hits are charged as far as the limits allow, if they do not all fit: for hits that Envoy reports at \
              the end of a stream",
        },
    ],
    has_own_table: false,
};
