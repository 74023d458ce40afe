//! Names of header fields.

use http::HeaderName;

/// The name of a header field, in lower case. Names that the proxy knows have a number, so that they are compared and
/// found without a look at their text.
#[derive(Clone, Copy, Debug)]
pub struct FieldName<'a> {
    /// The place in [`KNOWN`]; 0 for a name that is not there.
    id: u8,
    text: &'a [u8],
}

/// A set of known names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSet(u64);

macro_rules! known_names {
    ($($constant:ident = $text:literal,)+) => {
        #[allow(dead_code, non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Id { UNKNOWN, $($constant,)+ }

        /// The known names by their numbers.
        pub(super) const KNOWN: &[&[u8]] = &[b"", $($text,)+];

        /// Names that have a number.
        pub mod names {
            use super::{FieldName, Id};
            $(
                #[doc = concat!("The field `", stringify!($constant), "`.")]
                pub const $constant: FieldName<'static> = FieldName { id: Id::$constant as u8, text: $text };
            )+
        }
    };
}

known_names! {
    ACCEPT = b"accept",
    ACCEPT_ENCODING = b"accept-encoding",
    ACCEPT_LANGUAGE = b"accept-language",
    ALLOW = b"allow",
    AUTHORIZATION = b"authorization",
    CACHE_CONTROL = b"cache-control",
    CONNECTION = b"connection",
    CONTENT_ENCODING = b"content-encoding",
    CONTENT_LENGTH = b"content-length",
    CONTENT_TYPE = b"content-type",
    COOKIE = b"cookie",
    DATE = b"date",
    ETAG = b"etag",
    EXPECT = b"expect",
    FORWARDED = b"forwarded",
    GRPC_MESSAGE = b"grpc-message",
    GRPC_RETRY_PUSHBACK_MS = b"grpc-retry-pushback-ms",
    GRPC_STATUS = b"grpc-status",
    GRPC_STATUS_DETAILS_BIN = b"grpc-status-details-bin",
    HOST = b"host",
    KEEP_ALIVE = b"keep-alive",
    LAST_MODIFIED = b"last-modified",
    LOCATION = b"location",
    MAX_FORWARDS = b"max-forwards",
    ORIGIN = b"origin",
    PROXY_AUTHENTICATE = b"proxy-authenticate",
    PROXY_AUTHORIZATION = b"proxy-authorization",
    PROXY_CONNECTION = b"proxy-connection",
    RATELIMIT = b"ratelimit",
    RATELIMIT_POLICY = b"ratelimit-policy",
    REFERER = b"referer",
    RETRY_AFTER = b"retry-after",
    SEC_WEBSOCKET_ACCEPT = b"sec-websocket-accept",
    SEC_WEBSOCKET_KEY = b"sec-websocket-key",
    SEC_WEBSOCKET_VERSION = b"sec-websocket-version",
    SERVER = b"server",
    SET_COOKIE = b"set-cookie",
    TE = b"te",
    TRAILER = b"trailer",
    TRANSFER_ENCODING = b"transfer-encoding",
    UPGRADE = b"upgrade",
    USER_AGENT = b"user-agent",
    VARY = b"vary",
    VIA = b"via",
    WWW_AUTHENTICATE = b"www-authenticate",
    X_API_KEY = b"x-api-key",
    X_FORWARDED_FOR = b"x-forwarded-for",
    X_FORWARDED_HOST = b"x-forwarded-host",
    X_FORWARDED_PROTO = b"x-forwarded-proto",
    X_RATELIMIT_LIMIT = b"x-ratelimit-limit",
    X_RATELIMIT_REMAINING = b"x-ratelimit-remaining",
    X_RATELIMIT_RESET = b"x-ratelimit-reset",
    X_REAL_IP = b"x-real-ip",
    X_REQUEST_ID = b"x-request-id",
}

/// The bit that letters in lower case have; of known names, `-` has it as well.
const LOWER: u8 = 0x20;

/// Places of the table in which names are looked up.
const SLOTS: usize = 256;

/// Where each known name is found by its [`slot`]; 0 where none is.
const TABLE: [u8; SLOTS] = {
    assert!(KNOWN.len() <= 64, "a set of names has 64 bits");
    let mut table = [0; SLOTS];
    let mut id = 1;
    while id < KNOWN.len() {
        let slot = slot(KNOWN[id]);
        assert!(table[slot] == 0, "two names have the same place: another hash is needed");
        // Less than 64.
        #[allow(clippy::cast_possible_truncation)]
        let number = id as u8;
        table[slot] = number;
        id += 1;
    }
    table
};

/// The place of a name that is not empty, in any case. No two known names have the same.
const fn slot(name: &[u8]) -> usize {
    let (length, first, last) = (name.len(), name[0] | LOWER, name[name.len() - 1] | LOWER);
    let fourth_last = (name[length.saturating_sub(4)] | LOWER) as usize;
    let (first, last) = (first as usize, last as usize);
    (length + first + 3 * last + 61 * fourth_last) % SLOTS
}

impl<'a> FieldName<'a> {
    /// The name with this text, which must be in lower case.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        let id = if text.is_empty() { 0 } else { TABLE[slot(text)] };
        Self { id: if KNOWN[id as usize] == text { id } else { 0 }, text }
    }

    /// A known name by its number, or the name with this text.
    pub(super) fn of(id: u8, text: &'a [u8]) -> Self {
        Self { id, text }
    }

    /// The number of the name that this token is in any case; 0 for a name that is not known.
    pub(super) fn id_of_token(text: &[u8]) -> u8 {
        let id = if text.is_empty() { 0 } else { TABLE[slot(text)] };
        let known = KNOWN[usize::from(id)];
        // No other byte of a token becomes one of a known name with this bit. Without an early end the loop is vectorised.
        let differing = known.iter().zip(text).fold(0, |bits, (known, byte)| bits | (known ^ (byte | LOWER)));
        if known.len() == text.len() && differing == 0 { id } else { 0 }
    }

    pub(super) fn id(self) -> u8 {
        self.id
    }

    /// Its text.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.text
    }

    /// Its text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        // A token has ASCII characters only (RFC 9110 §5.6.2).
        std::str::from_utf8(self.text).unwrap_or_default()
    }

    /// Whether it has an underscore, so that some servers take it for another name.
    #[must_use]
    pub fn has_underscore(self) -> bool {
        // No known name has one.
        self.id == 0 && memchr::memchr(b'_', self.text).is_some()
    }
}

impl PartialEq for FieldName<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && (self.id != 0 || self.text == other.text)
    }
}

impl Eq for FieldName<'_> {}

impl<'a> From<&'a HeaderName> for FieldName<'a> {
    fn from(name: &'a HeaderName) -> Self {
        Self::new(name.as_str().as_bytes())
    }
}

impl NameSet {
    /// No names.
    pub const EMPTY: Self = Self(0);

    /// A set of these names; those that are not known are left out.
    #[must_use]
    pub const fn of(names: &[FieldName<'_>]) -> Self {
        let (mut bits, mut place) = (0, 0);
        while place < names.len() {
            bits |= Self::bit(names[place].id);
            place += 1;
        }
        Self(bits)
    }

    /// Whether a name is in it.
    #[must_use]
    pub const fn contains(self, name: FieldName<'_>) -> bool {
        self.contains_id(name.id)
    }

    /// Whether the two have a name in common.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn contains_id(self, id: u8) -> bool {
        self.0 & Self::bit(id) != 0
    }

    pub(super) fn insert(&mut self, id: u8) {
        self.0 |= Self::bit(id);
    }

    pub(super) fn insert_all(&mut self, names: Self) {
        self.0 |= names.0;
    }

    pub(super) fn remove_all(&mut self, names: Self) {
        self.0 &= !names.0;
    }

    pub(super) fn remove(&mut self, id: u8) {
        self.0 &= !Self::bit(id);
    }

    /// Names without a number are in no set.
    const fn bit(id: u8) -> u64 {
        if id == 0 { 0 } else { 1 << id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_found_by_their_text() {
        for (id, text) in KNOWN.iter().enumerate().skip(1) {
            assert_eq!(usize::from(FieldName::new(text).id), id);
            assert!(text.iter().all(|byte| byte.is_ascii_lowercase() || b"-".contains(byte)));
        }
        for text in [&b""[..], b"x", b"hosts", b"hxst", b"content_length", b"Host"] {
            assert_eq!(FieldName::new(text).id, 0, "{text:?}");
        }
        for (text, id) in
            [(&b""[..], 0), (b"Host", names::HOST.id), (b"vIA", names::VIA.id), (b"Content_Length", 0)]
        {
            assert_eq!(FieldName::id_of_token(text), id, "{text:?}");
        }
        assert_eq!(FieldName::new(b"x-a"), FieldName::new(b"x-a"));
        assert_ne!(FieldName::new(b"x-a"), FieldName::new(b"x-b"));
        assert_ne!(FieldName::new(b"x-a"), names::HOST);
    }

    #[test]
    fn sets_have_known_names_only() {
        let set = NameSet::of(&[names::HOST, names::X_REQUEST_ID, FieldName::new(b"x-a")]);
        assert!(set.contains(names::HOST) && set.contains(names::X_REQUEST_ID));
        assert!(!set.contains(names::TE) && !set.contains(FieldName::new(b"x-a")));
        assert!(set.intersects(NameSet::of(&[names::HOST])) && !set.intersects(NameSet::of(&[names::VIA])));
    }
}
