//! `[jwt]`.

use super::key::{Default, Key, Keys, Kind};

/// The keys of `[jwt]`.
pub static JWT: Keys = Keys {
    all: &[
        Key {
            name: "jwks",
            kind: Kind::Text,
            default: Default::Required("jwks = \"https://id.example.com/.well-known/jwks.json\""),
            doc: "The public keys of the issuer as a JWKS: a file, relative to the directory of the \
              configuration file, or an `https://` or `http://` URL",
        },
        Key {
            name: "algorithms",
            kind: Kind::List(&Kind::Choice(&[
                "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA",
            ])),
            default: Default::Toml("[\"RS256\", \"ES256\", \"EdDSA\"]"),
            doc: "Accepted signature algorithms: also `RS384`, `RS512`, `PS256`, `PS384`, `PS512` and `ES384`",
        },
        Key {
            name: "issuer",
            kind: Kind::Text,
            default: Default::Words("any"),
            doc: "The required value of the claim `iss`",
        },
        Key {
            name: "audience",
            kind: Kind::Text,
            default: Default::Words("any"),
            doc: "A required value of the claim `aud`, which may have others as well",
        },
        Key {
            name: "header",
            kind: Kind::Text,
            default: Default::Toml("\"authorization\""),
            doc: "The header that holds the token; in other headers the prefix `Bearer` is optional",
        },
    ],
    has_own_table: false,
};
