//! Token usage of language models.
//!
//! [`UsageReader`] reads a response while it passes, [`RequestFacts`] describes a request, [`Weights`] and [`Prices`] make units of
//! a limit from [`Tokens`], and [`stop_event`] is the event that ends a stream at its budget.

mod prices;
mod reader;
mod request;
mod stop;
mod tokens;

pub use prices::{InvalidPattern, InvalidWeight, ModelPattern, Prices, Weight, Weights};
pub use reader::{Framing, Observed, Unknown, UsageReader, Value};
pub use request::{EstimateRules, Media, RequestFacts, with_stream_usage};
pub use stop::stop_event;
pub use tokens::{Dialect, Tokens};
