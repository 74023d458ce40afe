//! Names of consumers and tiers.

/// The most characters of a consumer's name: it is logged, and sent to upstreams.
const MAX_CONSUMER: usize = 128;
const MAX_TIER: usize = 64;

/// Whether a text can be the name of a consumer: 1 to 128 characters, no control characters, spaces only inside.
#[must_use]
pub fn is_consumer_name(name: &str) -> bool {
    (1..=MAX_CONSUMER).contains(&name.chars().count())
        && !name.contains(char::is_control)
        && name.trim() == name
}

/// Whether a text can be the name of a tier: 1 to 64 characters from A-Z, a-z, 0-9, _, - and `.`.
#[must_use]
pub fn is_tier_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_TIER).contains(&name.len()) && name.bytes().all(is_allowed)
}
