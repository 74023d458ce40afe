//! Properties of limits: each algorithm against a model that is written from its definition and not from the code, both stores
//! against each other, and invariants under random arrivals.
//!
//! `PROOF_FACTOR=20` runs twenty times as many random cases.

mod bans;
mod bound;
mod changed;
mod clocks;
mod crowd;
mod edges;
mod fast_path;
mod garbage;
mod grant_twins;
mod grants;
mod invariants;
mod kit;
mod late;
mod lifetime;
mod literature;
mod model;
mod models;
mod refunds;
mod rules;
mod settled;
mod settled_budget;
mod twins;
