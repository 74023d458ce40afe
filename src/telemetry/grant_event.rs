//! What becomes of units that the store grants ahead of requests.

/// What has happened to units of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantEvent {
    /// The store has granted them to this process.
    Granted,
    /// Requests have spent them.
    Spent,
    /// This process has returned them unspent.
    Returned,
    /// Their grant has ended before they were spent or returned, so they count as spent.
    Lapsed,
}

/// The units of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantValues {
    /// Since the start, by [`GrantEvent`].
    pub events: [u64; GrantEvent::COUNT],
    /// Units that this process holds.
    pub held: u64,
}

impl GrantEvent {
    /// The number of variants.
    pub const COUNT: usize = 4;
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::Granted, "granted"),
        (Self::Spent, "spent"),
        (Self::Returned, "returned"),
        (Self::Lapsed, "lapsed"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_the_order_of_the_type() {
        assert!(GrantEvent::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
    }
}
