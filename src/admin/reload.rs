//! Reloads the configuration on request.

use http::StatusCode;
use http::header::RETRY_AFTER;

use super::client::Operator;
use super::response::{self, AdminError, AdminResponse};
use super::state::Admin;
use crate::server::Lifecycle;

/// Reloads the configuration, as SIGHUP does, and waits until it is served or rejected. Fails if the process stops, or too many
/// reloads are waiting.
pub(super) async fn reload(admin: &Admin, operator: &Operator) -> Result<AdminResponse, AdminError> {
    let mut lifecycle = admin.lifecycle.clone();
    if *lifecycle.borrow() != Lifecycle::Serving {
        return Err(stopping());
    }
    let outcome = admin.control.request(operator.to_string()).ok_or_else(|| {
        let error = AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "other reloads are waiting");
        error.header(RETRY_AFTER, "1")
    })?;
    let outcome = tokio::select! {
        outcome = outcome => outcome.ok(),
        _ = lifecycle.wait_for(|stage| *stage != Lifecycle::Serving) => None,
    };
    match outcome.ok_or_else(stopping)? {
        Ok(reloaded) => Ok(response::json(&reloaded)),
        // Without errors in the file, something else is in its way, such as a port in use.
        Err(failure) if failure.problems.is_empty() => {
            Ok(response::with_status(StatusCode::CONFLICT, &failure))
        }
        Err(failure) => Ok(response::with_status(StatusCode::UNPROCESSABLE_ENTITY, &failure)),
    }
}

fn stopping() -> AdminError {
    AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "the process is stopping")
}
