//! A policy: a quota with its name, and a charge on it.

use super::key::Key;
use super::quota::Quota;

/// The place of a policy in the list of all policies of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

/// A named quota: what the configuration calls a limit.
#[derive(Clone, Debug)]
pub struct Policy {
    /// `[a-z0-9_-]{1,64}`; part of every stored key.
    pub name: Box<str>,
    /// The algorithm and its numbers.
    pub quota: Quota,
    salt: u128,
}

impl Policy {
    /// A policy of this name.
    #[must_use]
    pub fn new(name: &str, quota: Quota) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[quota.algorithm().letter()]).update(name.as_bytes());
        let mut salt = [0; 16];
        hasher.finalize_xof().fill(&mut salt);
        Self { name: name.into(), quota, salt: u128::from_le_bytes(salt) }
    }

    /// 128 bits that tell this name and algorithm from all others, whatever the numbers are: two policies
    /// that agree in both share their counts.
    #[must_use]
    pub fn salt(&self) -> u128 {
        self.salt
    }
}

/// One limit's part of a request: `cost` units from the quota of `policy`, counted under `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Which policy.
    pub policy: PolicyId,
    /// Whose count.
    pub key: Key,
    /// How many units.
    pub cost: u64,
}
