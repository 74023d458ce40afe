//! Grants that this process holds: units of limits with `ahead` that it may spend without a call to the store.
//!
//! The store reserves granted units, so that no other process can take them. Here a unit is held until a request takes it;
//! a taken unit is spent when its request passes, and otherwise put back. Spent and returned units are reported with the
//! next call for the key. Units that are not reported when their grant ends count as spent. So a lost report, a lost reply or
//! a crash can only make the store count too many units, for twice the span of a grant at most.
//!
//! A request takes units from the `GrantTable`, and only its other charges go to the store. A unit can be spent until its grant
//! ends; that time runs from when the call was sent, by a clock that also runs while the machine is suspended.

mod demand_rate;
mod grant_requests;
mod held_grant;
mod held_grants;
mod share_balance;
mod table;
mod taken_units;

pub use self::table::GrantTable;

pub(super) use self::grant_requests::{
    GrantRequests, MAX_RETURNED, count_returned, refill, refill_charge, request_grants, request_grants_at,
    return_all, return_charges, run_returns, take_lasting,
};
pub(super) use self::held_grant::HeldDecision;
pub(super) use self::held_grants::ReturnedGrant;
pub(super) use self::taken_units::{PutBack, SplitCharges, TakenUnits, take_units, update_shares};
