//! Replays access logs.
//!
//! [`Arrivals`] reads logs of any known [`Format`] and returns their requests in the order of their arrival. A [`Player`] plays
//! them against the routes and limits of a configuration, a [`Tally`] counts what a limit does, and [`suggest`] finds limits
//! from what clients do.

mod arrivals;
mod entry;
mod far_dates;
mod fields;
mod format;
pub mod html;
mod in_flight;
mod input;
mod lines;
mod merge;
mod part_sources;
mod planned;
mod player;
mod replayer;
mod report;
mod response_cost;
mod results;
mod source;
pub mod suggest;
mod tally;

pub use self::arrivals::{Arrivals, BackgroundReader, BadLine, OpenError, ReadOptions, ReadSummary};
pub use self::entry::{LineError, LogText, LoggedRequest};
pub use self::fields::{FieldMap, FieldMapError, FieldRole};
pub use self::format::{Format, FormatError, LineReader, TimeUnit, check_format, detect_format};
pub use self::in_flight::{Flight, FlightCharges, RequestsInFlight, lease, settlement};
pub use self::input::Progress;
pub use self::part_sources::{PartSourceError, PartSources};
pub use self::planned::{HeadError, PlannedEntry};
pub use self::player::{PlayedEntry, PlayedRequest, Player, ReplayVerdict, RequestCourse};
pub use self::replayer::{Findings, MemoryBudget, Replayer};
pub use self::report::{
    BadLineReport, ConfigurationReport, DeniedKey, LimitReport, LineCounts, LogReport, MissingPartReport,
    NamedConfig, ReplayReport, RouteReport, SeriesReport, utc_second,
};
pub use self::response_cost::ResponseCost;
pub use self::results::{LimitResults, LogCounts, Results, RouteResults};
pub use self::tally::{Bin, CountedKeys, KeyDenials, Number, Series, Tally};
