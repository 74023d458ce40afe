//! `tidegate health`.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use http::StatusCode;

use super::admin_args::{AdminArgs, Reached};
use super::admin_client::{AdminClient, AdminRequest, on_this_machine};
use super::output::{CommandResult, Failure, complain, print};

const EXAMPLES: &str = "\
Examples:
  tidegate health
  tidegate health --live --admin unix:/run/tidegate/admin.sock

Exit status: 0 if the proxy is ready, 1 if it is not or can't be reached, 2 for wrong usage.";

/// The arguments of `tidegate health`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HealthArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Ask `/live`: whether the process responds, also while it drains.
    #[arg(long)]
    live: bool,
    /// How long each answer or connection may take.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Checks a running proxy.
pub(super) fn health(args: &HealthArgs) -> CommandResult {
    match args.admin.reached()? {
        Reached::Admin(client) => ask(&client, args),
        Reached::Listeners { addresses, .. } => connect(&addresses, args.timeout),
    }
}

/// Asks the admin interface, and prints its answer.
fn ask(client: &AdminClient, args: &HealthArgs) -> CommandResult {
    let path = if args.live { "/live" } else { "/ready" };
    let (status, body) = client.fetch(&AdminRequest::get(path, &[]), args.timeout).map_err(|failed| {
        complain(format!("error: {}", failed.error));
        Failure::Running
    })?;
    print(String::from_utf8_lossy(&body).trim_end())?;
    if status == StatusCode::OK { Ok(()) } else { Err(Failure::Running) }
}

/// Connects to each listener.
fn connect(addresses: &[SocketAddr], timeout: Duration) -> CommandResult {
    for &address in addresses {
        TcpStream::connect_timeout(&on_this_machine(address), timeout).map_err(|error| {
            complain(format!("error: can't connect to {address}: {error}"));
            Failure::Running
        })?;
    }
    print("all listeners accept connections")
}
