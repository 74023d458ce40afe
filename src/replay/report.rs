//! The report of a replay: what tables, JSON and the page show.

mod configuration;
mod limit;

use std::collections::HashMap;

use serde::Serialize;

pub use self::configuration::{ConfigurationReport, NamedConfig, notes};
pub use self::limit::{DeniedKey, LimitReport, MissingPartReport, RouteReport, SeriesReport};
use super::arrivals::ReadSummary;
use super::format::Format;
use super::part_sources::PartSources;

/// The report of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The logs, with their formats.
    pub logs: Vec<LogReport>,
    /// The lines of all logs.
    pub lines: LineCounts,
    /// The first lines that can't be read.
    pub bad_lines: Vec<BadLineReport>,
    /// What limits the accuracy of the report.
    pub notes: Vec<String>,
    /// For each configuration what it would have done.
    pub configurations: Vec<ConfigurationReport>,
}

/// A log.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// Its name.
    pub name: String,
    /// Its format.
    pub format: &'static str,
}

/// The lines of all logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LineCounts {
    /// All lines but empty ones.
    pub all: u64,
    /// Those with a request.
    pub requests: u64,
    /// Those of connections without a valid request.
    pub without_request: u64,
    /// Those that are not in the format of their log.
    pub malformed: u64,
    /// Those of more than 1 MiB.
    pub too_long: u64,
}

/// A line that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLineReport {
    /// The log.
    pub log: String,
    /// The number of the line, from 1.
    pub line: u64,
    /// Why it can't be read.
    pub error: String,
    /// Its start; none if the report is anonymous.
    pub excerpt: Option<String>,
}

impl ReplayReport {
    /// The report of logs that were read.
    #[must_use]
    pub fn new(formats: &[(std::sync::Arc<str>, Format)], summary: &ReadSummary) -> Self {
        let log = |(name, format): &(std::sync::Arc<str>, Format)| LogReport {
            name: name.to_string(),
            format: format.name(),
        };
        let bad_lines = summary.examples.iter().map(|bad| BadLineReport {
            log: bad.log.to_string(),
            line: bad.number,
            error: bad.error.to_string(),
            excerpt: Some(bad.excerpt.clone()),
        });
        Self {
            logs: formats.iter().map(log).collect(),
            lines: LineCounts {
                all: summary.lines,
                requests: summary.entries,
                without_request: summary.without_request,
                malformed: summary.malformed,
                too_long: summary.too_long,
            },
            bad_lines: bad_lines.collect(),
            notes: notes(summary),
            configurations: Vec::new(),
        }
    }

    /// Notes which of the fields that options name no line has.
    pub fn add_missing_fields(&mut self, sources: &PartSources) {
        for field in sources.fields_not_found() {
            let note = format!("no line of the logs has the field `{field}`");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Replaces the names of keys by pseudonyms, the same for equal names, and removes the lines that can't be read.
    pub fn anonymize(&mut self) {
        let mut pseudonyms = Pseudonyms::default();
        for bad in &mut self.bad_lines {
            bad.excerpt = None;
        }
        for configuration in &mut self.configurations {
            if let Some(client) = &mut configuration.only_client {
                pseudonyms.replace(client);
            }
            for limit in &mut configuration.limits {
                for key in &mut limit.denied_keys_by_count {
                    pseudonyms.replace(&mut key.name);
                }
            }
            for suggestion in &mut configuration.suggestions {
                for client in &mut suggestion.listed {
                    pseudonyms.replace(&mut client.name);
                    client.consumer.iter_mut().for_each(|name| pseudonyms.replace(name));
                }
            }
        }
    }
}

/// A time in UTC, to the second.
#[must_use]
pub fn utc_second(micros: u64) -> String {
    let seconds = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

/// Pseudonyms: `key 1`, `key 2` and so on, in the order of their first use.
#[derive(Debug, Default)]
struct Pseudonyms(HashMap<String, String>);

impl Pseudonyms {
    /// Replaces a name.
    pub fn replace(&mut self, name: &mut String) {
        let next = self.0.len() + 1;
        let pseudonym = self.0.entry(name.clone()).or_insert_with(|| format!("key {next}"));
        name.clone_from(pseudonym);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_pseudonym() {
        let mut pseudonyms = Pseudonyms::default();
        let mut names = ["192.0.2.1", "192.0.2.2", "192.0.2.1"].map(str::to_owned);
        for name in &mut names {
            pseudonyms.replace(name);
        }
        assert_eq!(names, ["key 1", "key 2", "key 1"]);
    }
}
