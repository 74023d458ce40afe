//! For what limits are suggested.

use serde::Serialize;

/// For what limits are suggested: a limit of the configuration, or a route and a key for which there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuggestionSubject {
    /// The name of the limit; for a route without one, the name for the new limits.
    pub name: String,
    /// Whether the configuration has the limit.
    pub is_configured: bool,
    /// The route, if the limit is for one.
    pub route: Option<String>,
    /// The parts of the key, as the configuration has them, such as `client_ip`.
    pub key: Vec<String>,
}
