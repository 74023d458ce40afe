//! Several processes that hold grants of one store, in virtual time: they admit no more than the limit, with few calls.

mod adversarial;
mod load;
mod measured;
mod process;
mod reference;
mod simulation;
