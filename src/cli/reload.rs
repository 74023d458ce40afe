//! `tidegate reload`.

use bytes::Bytes;
use clap::Args;
use http::StatusCode;
use serde::de::DeserializeOwned;

use super::admin_args::AdminArgs;
use super::admin_client::{AdminRequest, unknown_response};
use super::output::{self, CommandResult, Failure, complain, print, print_json};
use crate::admin::api::{ReloadError, ReloadInfo, ReloadRequest};

const EXAMPLES: &str = "\
Examples:
  tidegate check && tidegate reload
  tidegate reload --admin unix:/run/tidegate/admin.sock
  TIDEGATE_ADMIN_TOKEN=… tidegate reload --admin https://gate.internal:9900

Without an admin interface, SIGHUP does the same, and the log has the outcome.

Exit status: 0 if the configuration is served, 1 if it can't be applied (as when a port is in use) or the proxy can't be \
reached, 2 if the configuration is invalid or for wrong usage. Unless it is 0, the earlier configuration is still served, except if the proxy did not respond in time.";

/// The arguments of `tidegate reload`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the response as JSON.
    #[arg(long)]
    json: bool,
}

/// Has a running proxy reload its configuration, and prints the outcome.
pub(super) fn reload(args: &ReloadArgs) -> CommandResult {
    let client = args.admin.client()?;
    let request = AdminRequest::post("/v1/reload", &ReloadRequest {});
    let rejections = [StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY];
    let (status, body) = client.fetch_or_complain(&request, &rejections)?;
    if status == StatusCode::OK {
        let reloaded: ReloadInfo = read(&body)?;
        return if args.json { print_json(&reloaded) } else { print_reloaded(&reloaded) };
    }
    let failure: ReloadError = read(&body)?;
    if args.json {
        print_json(&failure)?;
    } else {
        complain_of(&failure);
    }
    Err(if status == StatusCode::CONFLICT { Failure::Running } else { Failure::Usage })
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|_| unknown_response())
}

/// Prints the warnings of the file, and what has changed.
fn print_reloaded(reloaded: &ReloadInfo) -> CommandResult {
    for line in output::problem_lines(&reloaded.warnings) {
        complain(if line.starts_with(' ') { line } else { format!("warning: {line}") });
    }
    let unchanged = if reloaded.changes.is_empty() { ", without changes" } else { "" };
    let mut lines = vec![format!("{} was reloaded{unchanged}", reloaded.file)];
    lines.extend(reloaded.changes.iter().cloned());
    print(&lines.join("\n"))
}

fn complain_of(failure: &ReloadError) {
    for line in output::problem_lines(&failure.problems) {
        complain(if line.starts_with(' ') { line } else { format!("error: {line}") });
    }
    complain(format!("error: {}; the earlier configuration is still served", failure.error));
    if let Some(help) = &failure.help {
        complain(format!("help: {help}"));
    }
}
