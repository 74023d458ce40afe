//! What `tidegate check --connect` has found.

use std::time::Duration;

use serde::Serialize;

/// What was found about one thing that the configuration points to.
#[derive(Debug, Serialize)]
pub(super) struct ConnectionCheck {
    pub result: ConnectionResult,
    /// What was tried, such as `store redis://127.0.0.1:6379`.
    pub target: String,
    /// How long that took; none for what needs no connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// What was found.
    pub message: String,
    /// What to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ConnectionResult {
    Ok,
    /// It works now, but not for long, or not for everything.
    Warning,
    Failed,
}

/// Why something does not work, and what to change.
pub(super) struct Fault {
    pub message: String,
    pub help: Option<String>,
}

impl ConnectionCheck {
    /// A finding, after this time.
    pub fn new(target: String, took: Duration, found: Result<String, Fault>) -> Self {
        let seconds = Some((took.as_secs_f64() * 1_000_000.0).round() / 1_000_000.0);
        match found {
            Ok(message) => Self { result: ConnectionResult::Ok, target, seconds, message, help: None },
            Err(Fault { message, help }) => {
                Self { result: ConnectionResult::Failed, target, seconds, message, help }
            }
        }
    }

    /// Whether it counts as a failure; with `strict` warnings do as well.
    pub fn is_failure(&self, strict: bool) -> bool {
        match self.result {
            ConnectionResult::Ok => false,
            ConnectionResult::Warning => strict,
            ConnectionResult::Failed => true,
        }
    }

    /// Its line in the table: result, target, time, and what was found.
    pub fn row(&self) -> [String; 4] {
        let result = match self.result {
            ConnectionResult::Ok => "ok",
            ConnectionResult::Warning => "warning",
            ConnectionResult::Failed => "failed",
        };
        let time =
            self.seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1_000.0));
        let help = self.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
        [result.to_owned(), self.target.clone(), time, format!("{}{help}", self.message)]
    }
}
