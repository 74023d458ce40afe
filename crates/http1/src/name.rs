//! Names of header fields.

use http::HeaderName;

/// The name of a header field, in lower case. Names that the proxy knows have an id, so that they are compared without
/// their text.
#[derive(Clone, Copy, Debug)]
pub struct FieldName<'a> {
    /// The index in [`KNOWN`]; 0 for other names.
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

        /// The known names by their ids.
        pub(super) const KNOWN: &[&[u8]] = &[b"", $($text,)+];

        /// The known names.
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
    TRACEPARENT = b"traceparent",
    TRACESTATE = b"tracestate",
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

/// The bit of lower-case letters; `-`, the only other byte of known names, has it as well.
const LOWER: u8 = 0x20;

/// Size of the hash table of known names.
const SLOTS: usize = 256;

/// The ids of the known names by their [`slot`]; 0 in empty slots.
const TABLE: [u8; SLOTS] = {
    assert!(KNOWN.len() <= 64, "a set of names has 64 bits");
    let mut table = [0; SLOTS];
    let mut id = 1;
    while id < KNOWN.len() {
        let slot = slot(KNOWN[id]);
        assert!(table[slot] == 0, "two known names have the same slot: change the hash function");
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 names")]
        let small_id = id as u8;
        table[slot] = small_id;
        id += 1;
    }
    table
};

/// The slot of a non-empty name, ignoring case: a perfect hash of the known names.
const fn slot(name: &[u8]) -> usize {
    let (length, first, last) = (name.len(), name[0] | LOWER, name[name.len() - 1] | LOWER);
    let fourth_last = (name[length.saturating_sub(4)] | LOWER) as usize;
    let (first, last) = (first as usize, last as usize);
    (length + first + 3 * last + 61 * fourth_last) % SLOTS
}

/// Whether a known name is this token in lower case. Both have the same length.
#[inline]
fn is_lower_case_of(known: &[u8], token: &[u8]) -> bool {
    // With the bit of lower-case letters, no byte of a token equals another byte of a known name.
    let is_same_word = |known: &[u8; 8], token: &[u8; 8]| {
        u64::from_ne_bytes(*known) == u64::from_ne_bytes(*token) | u64::from_ne_bytes([LOWER; 8])
    };
    // The last word may overlap the one before.
    match (known.last_chunk(), token.last_chunk()) {
        (Some(known_last), Some(token_last)) => {
            let mut words = known.as_chunks().0.iter().zip(token.as_chunks().0);
            is_same_word(known_last, token_last) && words.all(|(known, token)| is_same_word(known, token))
        }
        _ => known.iter().zip(token).all(|(known, byte)| *known == byte | LOWER),
    }
}

impl<'a> FieldName<'a> {
    /// The name with this text, which must be in lower case.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        let id = if text.is_empty() { 0 } else { TABLE[slot(text)] };
        Self { id: if KNOWN[id as usize] == text { id } else { 0 }, text }
    }

    /// The name with this text, whose id is known.
    pub(super) fn with_id(id: u8, text: &'a [u8]) -> Self {
        Self { id, text }
    }

    /// The id of this token, ignoring case; 0 for a name that is not known.
    pub(super) fn id_of_token(text: &[u8]) -> u8 {
        let id = if text.is_empty() { 0 } else { TABLE[slot(text)] };
        let known = KNOWN[usize::from(id)];
        if known.len() == text.len() && is_lower_case_of(known, text) { id } else { 0 }
    }

    /// The names that have an id.
    pub fn known() -> impl Iterator<Item = FieldName<'static>> {
        KNOWN.iter().skip(1).map(|text| FieldName::new(text))
    }

    /// Whether the name has an id, so that sets of names can have it.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.id != 0
    }

    pub(super) fn id(self) -> u8 {
        self.id
    }

    /// The text of the name.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.text
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        // A token is ASCII (RFC 9110 §5.6.2).
        std::str::from_utf8(self.text).unwrap_or_default()
    }

    /// Whether the name has an underscore, which some servers read as a hyphen.
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
        let (mut bits, mut index) = (0, 0);
        while index < names.len() {
            bits |= Self::bit(names[index].id);
            index += 1;
        }
        Self(bits)
    }

    /// Whether a name is in the set.
    #[must_use]
    pub const fn contains(self, name: FieldName<'_>) -> bool {
        self.contains_id(name.id)
    }

    /// Whether the two sets have a name in common.
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

    /// The bit of an id; none for names that are not known.
    const fn bit(id: u8) -> u64 {
        if id == 0 { 0 } else { 1 << id }
    }
}

impl<'a> FromIterator<FieldName<'a>> for NameSet {
    /// A set of these names; those that are not known are left out.
    fn from_iter<I: IntoIterator<Item = FieldName<'a>>>(names: I) -> Self {
        let mut set = Self::EMPTY;
        for name in names {
            set.insert(name.id);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_have_the_id_of_their_text() {
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
    fn sets_contain_only_known_names() {
        let set = NameSet::of(&[names::HOST, names::X_REQUEST_ID, FieldName::new(b"x-a")]);
        assert!(set.contains(names::HOST) && set.contains(names::X_REQUEST_ID));
        assert!(!set.contains(names::TE) && !set.contains(FieldName::new(b"x-a")));
        assert_eq!(
            [names::X_REQUEST_ID, FieldName::new(b"x-a"), names::HOST].into_iter().collect::<NameSet>(),
            set
        );
        assert!(FieldName::known().all(FieldName::is_known) && !FieldName::new(b"x-a").is_known());
        assert!(set.intersects(NameSet::of(&[names::HOST])) && !set.intersects(NameSet::of(&[names::VIA])));
    }
}
