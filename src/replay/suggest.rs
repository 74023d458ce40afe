//! Suggests limits from what clients do: how much in any second, minute, hour and day, and with which rate and burst no request,
//! or only a stated share, would have been denied.
//!
//! [`Histories`] keep the arrivals of each key, compressed, since the split into a part to choose from and a part to check on
//! is known only at the end. [`suggest`] measures each key by itself: `peaks` and `burst` are exact to the microsecond. Clients
//! that need far more than others are left out, as many as may be denied, so a crawler does not raise the numbers; `check`
//! plays them through the limiter's own code.

mod arrival_log;
mod burst;
mod check;
mod distribution;
mod history;
mod in_flight_peaks;
mod limits;
mod majority;
mod needs;
mod outliers;
mod peaks;
mod settings;
mod shape;
mod snippet;
mod suggestion;
mod warning;

pub use self::arrival_log::{Arrival, Histories};
pub use self::check::Check;
pub use self::distribution::Quantiles;
pub use self::history::{History, HistoryPart, KeyCount};
pub use self::in_flight_peaks::{InFlightPeaks, SlotsSuggestion};
pub use self::limits::{LimitNumbers, Role};
pub use self::outliers::Outliers;
pub use self::settings::{ShareOf, SuggestSettings, SuggestionSubject};
pub use self::shape::{ListedClient, Shape, ShapeKind};
pub use self::snippet::WrittenLimits;
pub use self::suggestion::{CurvePoint, SuggestedLimit, Suggestion, WindowPeaks, suggest};
pub use self::warning::{Warning, percent};
