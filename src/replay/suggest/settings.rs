//! What limits should be suggested.

use serde::Serialize;

/// Of what a share may be denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareOf {
    /// Clients of which at least one request is denied.
    #[default]
    Clients,
    /// Requests.
    Requests,
}

/// What limits should be suggested.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SuggestSettings {
    /// The share that may be denied, from 0 to 1.
    pub refuse_at_most: f64,
    /// Of what.
    pub of: ShareOf,
    /// The part of the time from which numbers are chosen; they are checked on the rest.
    pub fit: f64,
    /// How many times what the clients need the numbers are, before they are rounded up.
    pub headroom: f64,
}

impl Default for SuggestSettings {
    /// At most 0.1 % of clients, from six days of a week, with a fifth as headroom.
    fn default() -> Self {
        Self { refuse_at_most: 0.001, of: ShareOf::Clients, fit: 6.0 / 7.0, headroom: 1.2 }
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
