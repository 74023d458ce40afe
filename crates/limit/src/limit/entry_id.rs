//! The identity of a count: one policy's key.

use super::key::Key;
use super::policy::Policy;

/// Names the count of a key under a policy: the key XOR the policy's salt, so that the key can be read back. Two policies
/// of the same stored name and algorithm share their counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryId(u128);

impl EntryId {
    /// The count of `key` under `policy`.
    #[must_use]
    pub fn new(policy: &Policy, key: Key) -> Self {
        Self::salted(policy.salt(), key)
    }

    /// The count of `key` under the policy with this salt.
    #[must_use]
    pub fn salted(salt: u128, key: Key) -> Self {
        Self(u128::from_le_bytes(key.0) ^ salt)
    }

    /// The key of a count under the policy with this salt.
    #[must_use]
    pub fn key(self, salt: u128) -> Key {
        Key((self.0 ^ salt).to_le_bytes())
    }

    /// The 128 bits, for hashing.
    #[must_use]
    pub fn bits(self) -> u128 {
        self.0
    }
}

/// The salt of the states of a limit: its name in stored keys, and the letter of its states.
pub(super) fn salt(stored: &str, letter: u8) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[letter]).update(stored.as_bytes());
    let mut salt = [0; 16];
    hasher.finalize_xof().fill(&mut salt);
    u128::from_le_bytes(salt)
}
