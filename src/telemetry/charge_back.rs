//! What becomes of what was admitted while the store was away.

/// What becomes of units that were admitted while the store was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeBack {
    /// They are to be charged when it is back.
    Owed,
    /// They were charged.
    Paid,
    /// The answer was lost; they may have been charged.
    Lost,
    /// They never will be: too many keys were owed.
    Dropped,
}

impl ChargeBack {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Everything that can become of them, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 4] =
        [(Self::Owed, "owed"), (Self::Paid, "paid"), (Self::Lost, "lost"), (Self::Dropped, "dropped")];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_the_type() {
        assert!(ChargeBack::ALL.iter().enumerate().all(|(place, (end, _))| *end as usize == place));
    }
}
