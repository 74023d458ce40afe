//! Units that were admitted while the store was unavailable, by outcome.

/// The outcome of units that were admitted while the store was unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeBack {
    /// They will be charged when the store is available again.
    Owed,
    /// They were charged.
    Paid,
    /// The reply to the charge was lost: they may have been charged.
    Lost,
    /// They will not be charged: the ledger had no room for their key.
    Dropped,
}

impl ChargeBack {
    /// The number of variants.
    pub const COUNT: usize = Self::ALL.len();

    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 4] =
        [(Self::Owed, "owed"), (Self::Paid, "paid"), (Self::Lost, "lost"), (Self::Dropped, "dropped")];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_the_order_of_the_type() {
        assert!(ChargeBack::ALL.iter().enumerate().all(|(index, (variant, _))| *variant as usize == index));
    }
}
