//! `tidegate reload`: has a running proxy read its configuration again.

use std::thread;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use super::admin_args::{AdminArgs, Reached};
use super::admin_client::{AdminClient, AdminRequest, unknown_response};
use super::file;
use super::output::{self, CommandResult, Failure, complain, print, print_json};
use crate::admin::api::{ProblemInfo, ReloadError, ReloadInfo, ReloadRequest, StatusInfo};
use crate::time::monotonic;

const EXAMPLES: &str = "\
Examples:
  tidegate check && tidegate reload
  tidegate reload --admin unix:/run/tidegate/admin.sock
  TIDEGATE_ADMIN_TOKEN=… tidegate reload --admin https://gate.internal:9900
  tidegate reload --pid $MAINPID        (in a systemd unit: also without an admin interface)

Without an admin interface, SIGHUP does the same, and the log has the outcome.

Exit status: 0 if the configuration is served, 1 if it can't be applied (as when a port is in use) or the proxy can't be \
reached, 2 if the configuration is invalid or for wrong usage. Unless it is 0, the earlier configuration is still served, except \
if the proxy did not respond in time. With --pid and without [admin], 0 means that the file is valid and SIGHUP was sent.";

/// The arguments of `tidegate reload`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The process of the proxy. If the admin interface of the file can't be used, because the file has none, or the process has
    /// not opened it or accepted its token yet, the file is checked, and the process gets SIGHUP
    #[arg(long, value_name = "PID", conflicts_with = "admin")]
    pid: Option<i32>,
    /// Print the response as JSON.
    #[arg(long, conflicts_with = "pid")]
    json: bool,
}

/// Has a running proxy reload its configuration, and prints the outcome.
pub(super) fn reload(args: &ReloadArgs) -> CommandResult {
    let Some(pid) = args.pid else { return request(&args.admin.client()?, args.json) };
    match args.admin.reached()? {
        Reached::Admin(client) if status(&client).is_some() => request(&client, args.json),
        Reached::Admin(client) => {
            let sha256 = signal(args, pid)?;
            wait_until_served(&client, pid, &sha256)
        }
        Reached::Listeners { file, .. } => {
            signal(args, pid)?;
            print(&format!(
                "process {pid} was told to reload; its log has the outcome, since {} has no [admin] to ask for it",
                file.display()
            ))
        }
    }
}

/// Requests a reload through the admin interface, and prints the outcome.
fn request(client: &AdminClient, is_json: bool) -> CommandResult {
    let request = AdminRequest::post("/v1/reload", &ReloadRequest {});
    let rejections = [StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY];
    let (status, body) = client.fetch_or_complain(&request, &rejections)?;
    if status == StatusCode::OK {
        let reloaded: ReloadInfo = read(&body)?;
        return if is_json { print_json(&reloaded) } else { print_reloaded(&reloaded) };
    }
    let failure: ReloadError = read(&body)?;
    if is_json {
        print_json(&failure)?;
    } else {
        complain_of(&failure);
    }
    Err(if status == StatusCode::CONFLICT { Failure::Running } else { Failure::Usage })
}

/// Checks the configuration, and sends SIGHUP to the process; returns the hash of the file.
fn signal(args: &ReloadArgs, pid: i32) -> Result<String, Failure> {
    let loaded = file::load(&args.admin.file()?)?;
    let process = Pid::from_raw(pid).filter(|_| pid > 0);
    let process = process.ok_or_else(|| Failure::Usage.error(format!("{pid} is no process")))?;
    kill_process(process, Signal::HUP)
        .map_err(|error| Failure::Running.error(format!("can't send SIGHUP to process {pid}: {error}")))?;
    Ok(loaded.sha256)
}

/// How long a process may take to serve a configuration after SIGHUP: it resolves names first.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const OPEN_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the admin interface that a reload has added or changed shows the file with this hash.
fn wait_until_served(client: &AdminClient, pid: i32, sha256: &str) -> CommandResult {
    let deadline = monotonic() + OPEN_TIMEOUT;
    while monotonic() < deadline {
        if status(client).is_some_and(|status| status.configuration.sha256 == sha256) {
            return print("the configuration is served");
        }
        thread::sleep(OPEN_INTERVAL);
    }
    let error =
        format!("the admin interface of process {pid} does not show that the configuration is served");
    Err(Failure::Running.error(error).help(["the log of the process has the outcome of SIGHUP"]))
}

/// The status that the admin interface shows; none if it does not respond, or rejects the request.
fn status(client: &AdminClient) -> Option<StatusInfo> {
    let response = client.fetch(&AdminRequest::get("/v1/status", &[]), OPEN_TIMEOUT);
    let (_, body) = response.ok().filter(|(status, _)| *status == StatusCode::OK)?;
    serde_json::from_slice(&body).ok()
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|_| unknown_response())
}

/// Prints the warnings of the file, and what has changed.
fn print_reloaded(reloaded: &ReloadInfo) -> CommandResult {
    complain_of_problems("warning", &reloaded.warnings);
    let unchanged = if reloaded.changes.is_empty() { ", without changes" } else { "" };
    let mut lines = vec![format!("{} was reloaded{unchanged}", reloaded.file)];
    lines.extend(reloaded.changes.iter().cloned());
    print(&lines.join("\n"))
}

/// Prints problems of this kind in one message, so that all of its lines have the priority of the kind in a journal.
fn complain_of_problems(kind: &str, problems: &[ProblemInfo]) {
    let lines = output::problem_lines(problems).into_iter();
    let lines = lines.map(|line| if line.starts_with(' ') { line } else { format!("{kind}: {line}") });
    let text = lines.collect::<Vec<_>>().join("\n");
    if !text.is_empty() {
        complain(text);
    }
}

fn complain_of(failure: &ReloadError) {
    complain_of_problems("error", &failure.problems);
    complain(format!("error: {}; the earlier configuration is still served", failure.error));
    if let Some(help) = &failure.help {
        complain(format!("help: {help}"));
    }
}
