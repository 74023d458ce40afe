//! Suggests limits from what clients do: how much in any second, minute, hour and day, and with which rate and burst no request,
//! or only a stated share, would have been denied.
//!
//! [`Histories`] keep the arrivals of each key, compressed, since the split into a part to choose from and a part to check on
//! is known only at the end. [`suggest`] measures each key by itself: `peaks` and `burst` are exact to the microsecond. Numbers
//! come from quantiles over clients, so a crawler does not raise them; `check` plays them through the limiter's own code.

mod arrival_log;
mod burst;
mod check;
mod distribution;
mod history;
mod in_flight_peaks;
mod limits;
mod needs;
mod peaks;
mod settings;
mod shape;
mod suggestion;
mod warning;

pub use self::arrival_log::{Arrival, Histories};
pub use self::check::Check;
pub use self::distribution::Quantiles;
pub use self::history::{History, HistoryPart, KeyCount};
pub use self::in_flight_peaks::{InFlightPeaks, SlotsSuggestion};
pub use self::limits::{LimitNumbers, Role};
pub use self::needs::Outliers;
pub use self::settings::{ShareOf, SuggestSettings, SuggestionSubject};
pub use self::shape::{DeniedClient, Shape, ShapeKind};
pub use self::suggestion::{CurvePoint, SuggestedLimit, Suggestion, WindowPeaks, suggest, toml};
pub use self::warning::{Warning, percent};
