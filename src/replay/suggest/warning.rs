//! What a suggestion can't know.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::history::{History, HistoryPart};
use super::outliers::{Outliers, Remaining};
use super::peaks::DAY;
use super::settings::{ShareOf, SuggestSettings, SuggestionSubject};
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
    /// The part that the numbers are from is shorter than a day.
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
    /// No units of the rate of the present limit would be enough.
    NoRoom,
    /// No limit is suggested, because the part that the numbers are from is too short.
    NoLimit {
        /// The length of that part.
        part: Micros,
        /// The shortest length from which a limit is suggested.
        needed: Micros,
        /// The share of the log that this part is.
        fit: f64,
    },
    /// No limit is suggested, because a limit can't have as many units as the clients need.
    TooManyUnits,
    /// Requests that the limit does not count.
    Uncharged(u64),
    /// Requests of keys with other numbers.
    OwnNumbers(u64),
}

impl Warning {
    /// The warnings for limits that were chosen by these settings.
    pub(super) fn all(
        history: &History,
        subject: &SuggestionSubject,
        chosen: &Remaining,
        settings: &SuggestSettings,
    ) -> Vec<Self> {
        let mut warnings = Vec::new();
        let length = history.span().map_or(Micros::ZERO, HistoryPart::length);
        let fit = &chosen.needs;
        if fit.clients < FEWEST_CLIENTS {
            warnings.push(Self::FewClients(fit.clients));
        }
        if fit.part.length() < SHORTEST {
            warnings.push(Self::ShortTime(fit.part.length()));
        } else if length < Micros(WEEK.0 - DAY.0 / 24) {
            warnings.push(Self::PartOfWeek(length));
        }
        let share = settings.deny_at_most;
        if let Some(outliers) = &chosen.outliers {
            warnings.push(Self::Outliers(outliers.clone()));
        } else if settings.of == ShareOf::Clients
            && share > 0.0
            && fit.clients > 1
            && allowed_exceptions(share, fit.clients) == 0
        {
            warnings.push(Self::ShareBelowOne { share, clients: fit.clients });
        }
        if history.split(settings.fit).is_none_or(|(_, held_back)| held_back.is_none()) {
            warnings.push(Self::NothingHeldBack);
        }
        let count = history.key_count();
        if count.relative_error > 0.0 {
            warnings.push(Self::Sampled { kept: count.kept, keys: count.keys });
        }
        if history.cut_logs() > 0 {
            warnings.push(Self::CutLogs(history.cut_logs()));
        }
        if fit.fits_no_units() {
            warnings.push(Self::NoRoom);
        }
        let counts = [
            (subject.uncharged, Self::Uncharged as fn(u64) -> Self),
            (subject.with_own_numbers, Self::OwnNumbers),
        ];
        warnings.extend(counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, of)| of(count)));
        warnings
    }
}

/// How many of these clients are at most this share.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn allowed_exceptions(share: f64, clients: u64) -> u64 {
    // A share such as 0.001 is not exact in binary: 1,000 clients must give one.
    (share * clients as f64 + 1e-9).floor() as u64
}

/// The least share that is so many of these clients, and not one more, as the command line has it.
#[allow(clippy::cast_precision_loss)]
fn least_share(count: u64, clients: u64) -> String {
    let percent = count as f64 / clients.max(1) as f64 * 100.0;
    let rounded = |digits: i32| (percent * 10_f64.powi(digits)).ceil() / 10_f64.powi(digits);
    let is_exact = |share: &f64| allowed_exceptions(share / 100.0, clients) == count;
    let share = (1..6).map(rounded).find(is_exact).unwrap_or_else(|| rounded(1));
    format!("{share}%")
}

/// The length of which this is the share `fit`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn enlarged(part: Micros, fit: f64) -> Micros {
    Micros((part.0 as f64 / fit).round() as u64)
}

/// Formats a share as a percentage with as many decimals as it needs, such as `0.1 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

impl Warning {
    /// Formats the warnings about what is not counted, and about limits that are not suggested.
    fn fmt_uncounted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sampled { kept, keys } => write!(
                f,
                "memory did not suffice for all clients: {kept} of about {keys} were kept, chosen by their hash; \
                 numbers and shares are estimates"
            ),
            Self::CutLogs(clients) => write!(
                f,
                "memory did not suffice for all requests of {clients} clients: their last ones are not counted"
            ),
            Self::NoRoom => write!(
                f,
                "clients send several requests at once, which this limit denies at any rate: give it a burst or a queue"
            ),
            Self::NoLimit { part, needed, fit } => {
                let text = |length: &Micros| format_duration(Duration::from_secs(length.ceil_secs()));
                write!(
                    f,
                    "no limit is suggested, because its units would come back in {}, and the numbers are from {} of the log, which \
                     don't show what it does: use logs of at least {}",
                    text(needed),
                    text(part),
                    text(&enlarged(*needed, *fit))
                )
            }
            Self::TooManyUnits => write!(
                f,
                "no limit is suggested, because the clients need more units than a limit can count: use a lower cost, or leave \
                 clients out with --deny-at-most"
            ),
            Self::Uncharged(requests) => write!(
                f,
                "{requests} further request{} took no units, since the status is not in charge_on",
                plural(*requests)
            ),
            Self::OwnNumbers(requests) => write!(
                f,
                "{requests} further request{} had the numbers of a tier or an override, which stay as they are",
                plural(*requests)
            ),
            _ => Ok(()),
        }
    }
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
                let seconds = Duration::from_secs(length.ceil_secs());
                let length = format_duration(seconds);
                write!(
                    f,
                    "the numbers are from {length}: no limit is suggested whose units come back in a longer time"
                )
            }
            Self::PartOfWeek(length) => {
                let hours = length.ceil_secs() / 3_600;
                write!(f, "the requests cover {hours} hours: other days of the week may have more traffic")
            }
            Self::ShareBelowOne { share, clients } => write!(
                f,
                "{} of {clients} client{} is less than one, so the client that needs most sets the numbers; \
                 --deny-at-most {} leaves it out",
                percent(*share),
                plural(*clients),
                least_share(1, *clients)
            ),
            Self::Outliers(Outliers { left_out, clients, rate, others }) => {
                let (verb, they) = if *left_out == 1 { ("needs", "it") } else { ("need", "them") };
                let instead = rate.as_deref().map_or_else(
                    || format!("and with {they} no rate is enough"),
                    |rate| format!("in place of {rate}"),
                );
                write!(
                    f,
                    "few clients set the numbers: without the {left_out} that {verb} most, a limit of {others} has room for all \
                     requests, {instead}; see the list of clients, and leave {they} out with --share-of clients --deny-at-most {}",
                    least_share(*left_out, *clients)
                )
            }
            Self::NothingHeldBack => write!(f, "no requests were held back: the numbers are not checked"),
            uncounted => uncounted.fmt_uncounted(f),
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

    #[test]
    fn the_share_that_is_advised_is_enough() {
        for (count, clients) in [(1, 13), (1, 1_000), (2, 81), (3, 4_000), (1, 1)] {
            let text = least_share(count, clients);
            let share: f64 = text.trim_end_matches('%').parse::<f64>().unwrap() / 100.0;
            assert_eq!(allowed_exceptions(share, clients), count, "{count} of {clients}: {text}");
        }
        assert_eq!([least_share(1, 13), least_share(3, 4_000)], ["7.7%", "0.08%"]);
    }
}
