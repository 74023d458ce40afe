//! Names of tiers.

const MAX_NAME: usize = 64;

/// Whether a text can be the name of a tier.
pub(super) fn is_tier_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed)
}
