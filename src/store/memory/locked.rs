//! The charges of one request, and the shards of their entries, locked.

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::shard::{Address, EntryHasher, Shard};
use crate::limit::{Charge, EntryId, Policy};

/// One charge of a request, with its policy and the address of its entry.
#[derive(Clone, Copy)]
pub(super) struct LocatedCharge<'a> {
    pub policy: &'a Policy,
    pub charge: &'a Charge,
    pub at: Address,
    /// The index of its shard among the locked ones.
    shard: usize,
}

/// The charges of one request.
pub(super) type LocatedCharges<'a> = SmallVec<[LocatedCharge<'a>; 4]>;

/// The shards of one request, locked.
pub(super) struct LockedShards<'a>(SmallVec<[MutexGuard<'a, Shard>; 4]>);

/// Locates the entries of charges, and locks their shards: always in the order of their numbers, so that two requests never
/// deadlock.
#[inline]
pub(super) fn lock<'a>(
    shards: &'a [Mutex<Shard>],
    hasher: &EntryHasher,
    policies: &'a [Policy],
    charges: &'a [Charge],
) -> (LocatedCharges<'a>, LockedShards<'a>) {
    let locate = |charge: &'a Charge| {
        let policy = &policies[charge.policy];
        let at = hasher.address(EntryId::new(policy, charge.key));
        LocatedCharge { policy, charge, at, shard: at.shard(shards.len()) }
    };
    let mut charges: LocatedCharges<'a> = charges.iter().map(locate).collect();
    let mut numbers: SmallVec<[usize; 4]> = charges.iter().map(|charge| charge.shard).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for charge in &mut charges {
        // Each of them is among the numbers.
        charge.shard = numbers.iter().position(|number| *number == charge.shard).unwrap_or_default();
    }
    (charges, LockedShards(numbers.into_iter().map(|number| shards[number].lock()).collect()))
}

impl LockedShards<'_> {
    pub fn shard(&self, charge: &LocatedCharge<'_>) -> &Shard {
        &self.0[charge.shard]
    }

    pub fn shard_mut(&mut self, charge: &LocatedCharge<'_>) -> &mut Shard {
        &mut self.0[charge.shard]
    }
}
