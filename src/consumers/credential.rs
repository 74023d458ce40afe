//! Credentials, which are kept as hashes only, and a cache of those that were seen lately.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use hashbrown::DefaultHashBuilder;

use crate::generations::Generations;
use crate::sharded::Sharded;

/// The SHA-256 hash of a credential. The table of consumers has hashes only, so a lookup reveals by its timing nothing about
/// the credentials in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialHash([u8; Self::LEN]);

/// A text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 hash has 64 hexadecimal digits")]
pub struct HashError;

impl CredentialHash {
    const LEN: usize = 32;

    /// The hash of a credential.
    #[must_use]
    pub fn of(credential: &[u8]) -> Self {
        let hash = digest(&SHA256, credential);
        // A SHA-256 hash has 32 bytes.
        Self(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// Parses a hash in hexadecimal digits.
    ///
    /// # Errors
    /// The text is something else.
    pub fn parse(digits: &str) -> Result<Self, HashError> {
        if digits.len() != 2 * Self::LEN {
            return Err(HashError);
        }
        let mut hash = [0; Self::LEN];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0]).ok_or(HashError)? << 4 | digit(pair[1]).ok_or(HashError)?;
        }
        Ok(Self(hash))
    }
}

impl std::fmt::Display for CredentialHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CredentialHash({self})")
    }
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Locks; so many that workers hardly ever contend for one.
const SHARDS: usize = 64;
/// Entries of each generation in a shard: 32,768 credentials in all.
const GENERATION: usize = 256;

/// The values of credentials, bounded in number.
pub(super) struct CredentialCache<V> {
    shards: Sharded<Generations<u64, Arc<Entry<V>>, GENERATION>, SHARDS>,
    /// The hash by which entries are found. It is randomly seeded; credentials with equal hashes only evict each other.
    hasher: DefaultHashBuilder,
}

/// A credential and its value.
struct Entry<V> {
    credential: Box<[u8]>,
    value: V,
}

impl<V: Clone> CredentialCache<V> {
    /// The value of a credential.
    pub fn get(&self, credential: &[u8]) -> Option<V> {
        let hash = self.hash(credential);
        let entry = self.shards.lock(&hash).get(&hash)?;
        // In constant time, so that the time of a lookup reveals nothing about another credential.
        verify_slices_are_equal(&entry.credential, credential).is_ok().then(|| entry.value.clone())
    }

    /// Adds the value of a credential, or replaces it.
    pub fn put(&self, credential: &[u8], value: V) {
        let hash = self.hash(credential);
        self.shards.lock(&hash).put(hash, Arc::new(Entry { credential: credential.into(), value }));
    }

    fn hash(&self, credential: &[u8]) -> u64 {
        self.hasher.hash_one(credential)
    }
}

impl<V> Default for CredentialCache<V> {
    fn default() -> Self {
        Self { shards: Sharded::default(), hasher: DefaultHashBuilder::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_sha256sum() {
        let hash = CredentialHash::of(b"k-4711");
        let digits = "23acf55272b297aad718dd6b606d6495f539f1df33a0cc34ca103c807f33fe44";
        assert_eq!(CredentialHash::parse(digits), Ok(hash));
        assert_eq!(hash.to_string(), digits);
        assert_eq!(CredentialHash::parse(&hash.to_string().to_uppercase()), Ok(hash));
        assert_eq!(
            CredentialHash::of(b"").to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for wrong in ["", "ab", &digits[1..], &format!("{}g", &digits[1..]), &"é".repeat(32)] {
            assert_eq!(CredentialHash::parse(wrong), Err(HashError), "{wrong}");
        }
    }
}
