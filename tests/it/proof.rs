//! The proof that every limit does what it promises: each algorithm against a model of its own, written from
//! what it promises and not from the code; both stores against each other; and what must hold whatever comes.
//!
//! `PROOF_FACTOR=20` runs twenty times as many random cases.

mod bans;
mod bound;
mod changed;
mod clocks;
mod crowd;
mod edges;
mod garbage;
mod invariants;
mod kit;
mod late;
mod lifetime;
mod literature;
mod model;
mod models;
mod refunds;
mod rules;
mod twins;
