//! Overload in virtual time: clients, proxies with an [`Admission`](super::admission::Admission) each, and servers.
//!
//! ```
//! use tidegate_overload::overload::simulation::{Scenario, run};
//!
//! let run = run(&Scenario { seconds: 20.0, ..Scenario::step(3.0) }, 1);
//! assert!(run.measure(12.0, 20.0).goodput > 0.9);
//! ```

mod events;
mod measure;
mod random;
mod request;
mod scenario;
mod server;
mod world;

pub use measure::{Measured, Run, Trace};
pub use request::{Ending, Request};
pub use scenario::{Change, Discipline, Group, Load, Retry, Route, Scenario, Service};
pub use world::run;

#[cfg(test)]
mod tests;
