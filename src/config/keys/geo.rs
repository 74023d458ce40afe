//! `[geo]`, and the conditions of routes that use it.

use super::key::{Default, Key, Keys, Kind};

/// The keys of `[geo]`.
pub static GEO: Keys = Keys {
    all: &[
        Key {
            name: "country",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "An MMDB file with `country.iso_code`, such as `\"GeoLite2-Country.mmdb\"`",
        },
        Key {
            name: "asn",
            kind: Kind::Text,
            default: Default::Words("none"),
            doc: "An MMDB file with `autonomous_system_number`, such as `\"GeoLite2-ASN.mmdb\"`",
        },
    ],
    has_own_table: false,
};

/// The keys of `country` as a table.
pub static COUNTRY_NOT: Keys = Keys {
    all: &[Key {
        name: "not",
        kind: Kind::List(&Kind::Text),
        default: Default::Required("not = [\"DE\"]"),
        doc: "Countries that the client is not in; true also if its country is unknown",
    }],
    has_own_table: false,
};

/// The keys of `asn` as a table.
pub static ASN_NOT: Keys = Keys {
    all: &[Key {
        name: "not",
        kind: Kind::List(&Kind::Integer(0, 4_294_967_295)),
        default: Default::Required("not = [64496]"),
        doc: "Autonomous systems that the client is not in; true also if it is unknown",
    }],
    has_own_table: false,
};
