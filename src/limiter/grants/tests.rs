//! Several processes that hold grants of one store, in virtual time: they admit no more than the limit, and seldom call.

mod adversarial;
mod load;
mod measured;
mod process;
mod simulation;
mod truth;
