//! What a suggestion can't know.

use std::fmt;

use serde::{Serialize, Serializer};

use super::check::share;
use super::history::{History, HistoryPart};
use super::needs::{Needs, Outliers};
use super::peaks::DAY;
use super::settings::{ShareOf, SuggestSettings};
use crate::text::plural;
use crate::time::{Micros, format_duration};

/// Fewer clients say little about others.
const FEWEST_CLIENTS: u64 = 100;
/// A shorter time has not every hour of the day.
const SHORTEST: Micros = DAY;
/// A shorter time has not every day of the week.
const WEEK: Micros = Micros(7 * DAY.0);

/// A reason to distrust a suggestion.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// There are few clients.
    FewClients(u64),
    /// The log is shorter than a day.
    ShortTime(Micros),
    /// The log is shorter than a week.
    PartOfWeek(Micros),
    /// The share is less than one client.
    ShareBelowOne {
        /// The share that was asked for.
        share: f64,
        /// The clients from which the numbers are chosen.
        clients: u64,
    },
    /// A few clients that need far more than the others set the numbers.
    Outliers(Outliers),
    /// No requests in the part of the time that was held back.
    NothingHeldBack,
    /// Only a sample of the clients was kept.
    Sampled {
        /// The clients that were kept.
        kept: u64,
        /// About how many there were.
        keys: u64,
    },
    /// Clients with more requests than were kept.
    CutLogs(usize),
}

impl Warning {
    /// The warnings for limits that were chosen by these settings.
    pub(super) fn all(
        history: &History,
        (fit, exceptions): (&Needs, u64),
        held_back: u64,
        settings: &SuggestSettings,
    ) -> Vec<Self> {
        let mut warnings = Vec::new();
        let length = history.span().map_or(Micros::ZERO, HistoryPart::length);
        if fit.clients < FEWEST_CLIENTS {
            warnings.push(Self::FewClients(fit.clients));
        }
        if length < SHORTEST {
            warnings.push(Self::ShortTime(length));
        } else if length < Micros(WEEK.0 - DAY.0 / 24) {
            warnings.push(Self::PartOfWeek(length));
        }
        let share = settings.refuse_at_most;
        if settings.of == ShareOf::Clients && share > 0.0 && allowed_exceptions(share, fit.clients) == 0 {
            warnings.push(Self::ShareBelowOne { share, clients: fit.clients });
        }
        warnings.extend(fit.outliers(exceptions).map(Self::Outliers));
        if held_back == 0 {
            warnings.push(Self::NothingHeldBack);
        }
        let count = history.key_count();
        if count.relative_error > 0.0 {
            warnings.push(Self::Sampled { kept: count.kept, keys: count.keys });
        }
        if history.cut_logs() > 0 {
            warnings.push(Self::CutLogs(history.cut_logs()));
        }
        warnings
    }
}

/// How many of these clients are at most this share.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn allowed_exceptions(share: f64, clients: u64) -> u64 {
    // A share such as 0.001 is not exact in binary: 1,000 clients must give one.
    (share * clients as f64 + 1e-9).floor() as u64
}

/// Formats a share as a percentage with as many decimals as it needs, such as `0.1 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewClients(clients) => write!(
                f,
                "only {clients} client{}, fewer than {FEWEST_CLIENTS}: the numbers say little about others",
                plural(*clients)
            ),
            Self::ShortTime(length) => {
                let seconds = std::time::Duration::from_secs(length.ceil_secs());
                let length = format_duration(seconds);
                write!(f, "the requests cover {length}, less than a day: no limit by the day is suggested")
            }
            Self::PartOfWeek(length) => {
                let hours = length.ceil_secs() / 3_600;
                write!(f, "the requests cover {hours} hours: other days of the week may have more traffic")
            }
            Self::ShareBelowOne { share, clients } => write!(
                f,
                "{} of {clients} client{} is less than one, so the client that needs most sets the numbers",
                percent(*share),
                plural(*clients)
            ),
            Self::Outliers(outliers) => write!(
                f,
                "few clients set the numbers: without the {} that need most ({} of clients) {} a minute would suffice \
                 in place of {}; see the list of clients, and raise --refuse-at-most to leave them out",
                outliers.left_out,
                percent(share(outliers.left_out, outliers.clients)),
                outliers.others,
                outliers.units
            ),
            Self::NothingHeldBack => write!(f, "no requests were held back: the numbers are not checked"),
            Self::Sampled { kept, keys } => write!(
                f,
                "memory did not suffice for all clients: {kept} of about {keys} were kept, chosen by their hash; \
                 numbers and shares are estimates"
            ),
            Self::CutLogs(clients) => write!(
                f,
                "memory did not suffice for all requests of {clients} clients: their last ones are not counted"
            ),
        }
    }
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_clients_is_rounded_down() {
        let exceptions = [(0.001, 1_000), (0.001, 999), (0.001, 3_000), (0.01, 250), (0.0, 10)];
        assert_eq!(exceptions.map(|(share, clients)| allowed_exceptions(share, clients)), [1, 0, 3, 2, 0]);
    }

    #[test]
    fn percentages_have_the_decimals_that_they_need() {
        assert_eq!([0.001, 0.5, 0.0, 0.012_345].map(percent), ["0.1 %", "50 %", "0 %", "1.2345 %"]);
    }
}
