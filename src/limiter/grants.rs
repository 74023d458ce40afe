//! Grants that this process holds: units of limits with `ahead` that it may spend without a call to the store.
//!
//! The store reserves granted units, so that no other process can take them. Here a unit is held until a request takes it;
//! a taken unit is spent when its request passes, and otherwise put back. Spent and returned units are reported with the
//! next call for the key. What is not reported when its grant ends counts as spent, so that nothing is ever owed: a lost
//! report, a lost reply or a crash can only make the store count too much, for twice the span of a grant at most.

mod demand_rate;
mod held_grant;
mod held_grants;
mod questions;
mod refill;
mod returns;
mod table;
mod taken;
mod unit_counts;

pub use self::table::GrantTable;

pub(super) use self::questions::ask_if_granted;
pub(super) use self::refill::refill;
pub(super) use self::returns::{return_all, run_returns};
pub(super) use self::taken::{PutBack, Spending, Taken, spend};

#[cfg(test)]
mod tests;
