//! What limits should be suggested, and for what.

use serde::Serialize;

/// The unit of the share that may be denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareOf {
    /// Clients of which at least one request is denied.
    #[default]
    Clients,
    /// Requests.
    Requests,
}

/// The settings for suggested limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SuggestSettings {
    /// The share that may be denied, from 0 to 1.
    pub deny_at_most: f64,
    /// The unit of that share.
    pub of: ShareOf,
    /// The part of the time with requests from which numbers are chosen; they are checked on the rest.
    pub fit: f64,
    /// How many times what the clients need the numbers are, before they are rounded up.
    pub headroom: f64,
}

impl Default for SuggestSettings {
    /// At most 0.1 % of clients, from six days of a week, with a fifth as headroom.
    fn default() -> Self {
        Self { deny_at_most: 0.001, of: ShareOf::Clients, fit: 6.0 / 7.0, headroom: 1.2 }
    }
}

impl ShareOf {
    /// The name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Requests => "requests",
        }
    }
}

/// For what limits are suggested: a limit of the configuration, or a route and a key for which there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SuggestionSubject {
    /// The name of the limit; for a route without one, the name for the new limits.
    pub name: String,
    /// Whether the configuration has the limit.
    pub is_configured: bool,
    /// The route, if the limit is for one.
    pub route: Option<String>,
    /// The parts of the key, as the configuration has them, such as `client_ip`.
    pub key: Vec<String>,
    /// The table of the limit as the configuration has it.
    #[serde(skip)]
    pub table: Option<String>,
    /// Requests of the limit that it does not count, since their status is not in its `charge_on`.
    pub uncharged: u64,
    /// Requests of keys that have other numbers, by a tier or an override.
    pub with_own_numbers: u64,
}
