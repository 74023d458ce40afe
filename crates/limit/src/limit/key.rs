//! Keys: what limits count separately.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip::SipHasher13;

/// 128 bits that identify the key parts of one request: a BLAKE3 hash over the kind, the length and the
/// value of each part. No two lists of parts share one by accident, all have one length, and no API key
/// can be read back from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// What a tag, the readable form of a key whose parts are unknown, has before [`Key::text`].
    pub const TAG: &'static str = "tag:";
    /// The characters of [`Key::text`].
    pub const TEXT_LEN: usize = 22;

    /// The key as text, as in stored keys: 22 characters of URL-safe base64.
    #[must_use]
    pub fn text(&self) -> [u8; Self::TEXT_LEN] {
        let mut text = [0; Self::TEXT_LEN];
        let written = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text);
        debug_assert_eq!(written, Ok(Self::TEXT_LEN));
        text
    }

    /// Parses the output of [`Key::text`].
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut key = [0; 16];
        let read = URL_SAFE_NO_PAD.decode_slice(text, &mut key).ok()?;
        (read == key.len()).then_some(Self(key))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

/// The source of a key part. The kind is hashed with the value, so that a header with the text of an
/// address never shares the key of that address. The numbers are part of every stored key: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PartKind {
    /// A key that is the same for every request.
    Global = 0,
    /// The client's address, cut to its prefix.
    ClientIp = 1,
    /// A request header.
    Header = 2,
    /// A cookie.
    Cookie = 3,
    /// A query parameter.
    Query = 4,
    /// The normalized path.
    Path = 5,
    /// A segment that a route's path names.
    PathParam = 6,
    /// The requested host.
    Host = 7,
    /// The request's method.
    Method = 8,
    /// The route's name.
    Route = 9,
    /// A claim of a verified token.
    Jwt = 10,
    /// The subject of the client's certificate.
    TlsSubject = 11,
    /// The name of the consumer.
    Consumer = 12,
    /// The country of the client's address.
    Country = 13,
    /// The autonomous system of the client's address.
    Asn = 14,
    /// A value in a JSON body.
    Json = 15,
    /// A field of a form.
    Form = 16,
    /// A value in a descriptor of the rate-limit service.
    Descriptor = 17,
    /// The subject alternative name that identifies the client.
    TlsSan = 18,
}

/// Turns key parts into [`Key`]s.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    secret: Option<[u8; 32]>,
    /// The key of [`KeyHasher::short`].
    short_secret: [u8; 16],
}

/// The parts of one key, as they are hashed. Few are longer than the inline bytes.
#[derive(Clone, Debug)]
pub struct Parts {
    inline: [u8; INLINE_BYTES],
    length: usize,
    /// All bytes, if they are more.
    spilled: Vec<u8>,
}

/// How many bytes of parts need no allocation.
const INLINE_BYTES: usize = 96;

impl Default for Parts {
    fn default() -> Self {
        Self { inline: [0; INLINE_BYTES], length: 0, spilled: Vec::new() }
    }
}

impl Parts {
    /// Adds one part.
    ///
    /// # Panics
    /// If the value has 4 GiB or more.
    pub fn push(&mut self, kind: PartKind, value: &[u8]) {
        #[expect(
            clippy::expect_used,
            reason = "a part comes from a bounded head, file or request to the admin API"
        )]
        let length = u32::try_from(value.len()).expect("a part of a key is shorter than 4 GiB");
        let mut start = [kind as u8; 5];
        start[1..].copy_from_slice(&length.to_le_bytes());
        self.extend(&start);
        self.extend(value);
    }

    /// These parts, and then others.
    #[must_use]
    pub fn followed_by(&self, others: &Self) -> Self {
        let mut all = self.clone();
        all.extend(others.bytes());
        all
    }

    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        match self.inline.get_mut(self.length..end) {
            Some(free) if self.spilled.is_empty() => {
                free.copy_from_slice(bytes);
                self.length = end;
            }
            _ => self.spill(bytes),
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline[..self.length]);
        }
        self.spilled.extend_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { &self.inline[..self.length] } else { &self.spilled }
    }
}

impl KeyHasher {
    /// A hasher; with `secret`, stored keys can't be guessed without it. Proxies that share a store must share the
    /// secret.
    #[must_use]
    pub fn new(secret: Option<&[u8]>) -> Self {
        let secret = secret.map(|secret| blake3::derive_key("tidegate 2026 stored keys", secret));
        let mut short_secret = [0; 16];
        if let Some(secret) = &secret {
            short_secret.copy_from_slice(&blake3::derive_key("tidegate 2026 short hashes", secret)[..16]);
        }
        Self { secret, short_secret }
    }

    /// The key that these parts make.
    #[must_use]
    pub fn key(&self, parts: &Parts) -> Key {
        let hash = match &self.secret {
            Some(secret) => blake3::keyed_hash(secret, parts.bytes()),
            None => blake3::hash(parts.bytes()),
        };
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        Key(key)
    }

    /// A hash of these parts that may collide, for a choice that needs no more than 64 bits: SipHash-1-3, the same in every
    /// process with this secret.
    #[must_use]
    pub fn short(&self, parts: &Parts) -> u64 {
        SipHasher13::new_with_key(&self.short_secret).hash(parts.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[(PartKind, &str)]) -> Key {
        let mut gathered = Parts::default();
        for (kind, value) in parts {
            gathered.push(*kind, value.as_bytes());
        }
        KeyHasher::new(None).key(&gathered)
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        use PartKind::Header;
        assert_ne!(key(&[(Header, "a|b"), (Header, "c")]), key(&[(Header, "a"), (Header, "b|c")]));
        assert_ne!(key(&[(Header, "ab"), (Header, "")]), key(&[(Header, "a"), (Header, "b")]));
        assert_ne!(key(&[(Header, "a")]), key(&[(Header, "a"), (Header, "")]));
    }

    #[test]
    fn long_parts_are_hashed_like_short_ones() {
        for length in 80..100 {
            let value = "x".repeat(length);
            let mut bytes = vec![PartKind::Header as u8];
            bytes.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            bytes.extend_from_slice(value.as_bytes());
            let twice = [bytes.clone(), bytes.clone()].concat();
            for (parts, hashed) in [(1, bytes), (2, twice)] {
                let parts = vec![(PartKind::Header, &*value); parts];
                assert_eq!(key(&parts).0, blake3::hash(&hashed).as_bytes()[..16]);
            }
        }
    }

    #[test]
    fn a_header_that_spells_an_address_is_not_that_address() {
        assert_ne!(key(&[(PartKind::Header, "10.0.0.1")]), key(&[(PartKind::ClientIp, "10.0.0.1")]));
    }

    #[test]
    fn a_secret_changes_every_key() {
        let mut parts = Parts::default();
        parts.push(PartKind::Global, b"");
        let plain = KeyHasher::new(None).key(&parts);
        let keyed = KeyHasher::new(Some(b"0123456789abcdef")).key(&parts);
        assert_ne!(plain, keyed);
    }

    #[test]
    fn short_hashes_are_the_same_in_every_version() {
        let mut parts = Parts::default();
        parts.push(PartKind::Header, b"alice");
        // Endpoints of keys move if these change.
        assert_eq!(KeyHasher::new(None).short(&parts), 5_757_440_818_732_025_054);
        let keyed = KeyHasher::new(Some(b"0123456789abcdef"));
        assert_eq!(keyed.short(&parts), 14_245_084_410_558_471_309);
    }

    #[test]
    fn the_text_is_url_safe_and_of_one_length() {
        assert_eq!(Key([0xff; 16]).to_string(), "_____________________w");
        assert_eq!(Key([0; 16]).to_string().len(), Key::TEXT_LEN);
        assert_eq!(Key::parse(&Key([0xa5; 16]).text()), Some(Key([0xa5; 16])));
        assert!(Key::parse(b"").is_none() && Key::parse(b"_____________________/").is_none());
    }
}
