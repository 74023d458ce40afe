//! `tidegate status` and `tidegate health`: a running proxy as a whole.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use http::StatusCode;

use super::admin_args::{AdminArgs, Reached};
use super::admin_client::{AdminClient, AdminRequest, on_this_machine, unknown_response};
use super::output::{self, CommandResult, Failure, aligned, print};
use crate::admin::api::{AcmeInfo, ConfigError, ConfigInfo, ServerInfo, StatusInfo, StoreInfo, UpstreamInfo};
use crate::telemetry::escaped;
use crate::text::counted;
use crate::time::format_duration;

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status --admin unix:/run/tidegate/admin.sock
  tidegate status --json | jq -r .configuration.sha256        (compare with: sha256sum tidegate.toml)

Exit status: 0 if the proxy responds, whatever its state is; 1 if it can't be reached or rejects the request; 2 for wrong usage. \
`tidegate health` is for health checks.";

/// How many digits of the hash are shown: enough to tell versions of a file apart.
const HASH_DIGITS: usize = 12;

/// The arguments of `tidegate status`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the response as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the state of a running proxy.
pub(super) fn status(args: &StatusArgs) -> CommandResult {
    let response = args.admin.client()?.send_or_complain(&AdminRequest::get("/v1/status", &[]))?;
    if args.json {
        return print(&format!("{response:#}"));
    }
    let status: StatusInfo = serde_json::from_value(response).map_err(|_| unknown_response())?;
    print(&lines(&status).join("\n"))
}

fn lines(status: &StatusInfo) -> Vec<String> {
    // A damaged response may have any number.
    let uptime = Duration::try_from_secs_f64(status.uptime).unwrap_or_default();
    let uptime = format_duration(Duration::from_secs(uptime.as_secs()));
    let mut lines = vec![row("tidegate", &format!("{}, {}, up {uptime}", status.version, status.state))];
    lines.extend(configuration(&status.configuration));
    lines.push(row("store", &store(&status.store)));
    for (index, listener) in status.listeners.iter().enumerate() {
        let tls = if listener.tls { " by TLS" } else { "" };
        let connections = counted(listener.connections, "connection");
        let label = if index == 0 { "listeners" } else { "" };
        lines.push(row(label, &format!("{}{tls}, {connections}", listener.address)));
    }
    lines.push(row("routes", &status.routes.to_string()));
    if !status.limits.is_empty() {
        lines.push(String::new());
        lines.extend(limits(status));
    }
    if !status.upstreams.is_empty() {
        lines.push(String::new());
        lines.extend(upstreams(&status.upstreams));
    }
    if let Some(acme) = &status.acme {
        lines.push(String::new());
        lines.extend(certificates(acme));
    }
    lines
}

fn row(label: &str, text: &str) -> String {
    format!("{label:<15}{}", escaped(text))
}

/// The file that is served, and why another version of it is not.
fn configuration(configuration: &ConfigInfo) -> Vec<String> {
    let hash: String = configuration.sha256.chars().take(HASH_DIGITS).collect();
    let served = format!("{}, loaded {}, sha256 {hash}…", configuration.file, configuration.loaded);
    let mut lines = vec![row("configuration", &served)];
    if let Some(ConfigError { at, failure }) = &configuration.last_error {
        lines.push(row("last error", &format!("{at}: {}", failure.error)));
        let help = failure.help.iter().map(|help| format!("  help: {help}"));
        let details = output::problem_lines(&failure.problems).into_iter().chain(help);
        lines.extend(details.map(|line| row("", &line)));
    }
    lines
}

fn store(store: &StoreInfo) -> String {
    let keys = counted(store.keys, "key");
    let owed = match store.owed_keys {
        0 => String::new(),
        count => format!(", {} to charge later", counted(count, "key")),
    };
    match &store.address {
        None => format!("in this process, {keys}"),
        Some(address) => format!("{address}, {}{owed}", store.state),
    }
}

fn limits(status: &StatusInfo) -> Vec<String> {
    let rows = status.limits.iter().map(|limit| {
        let numbers = limit.numbers.clone();
        [limit.name.clone(), limit.algorithm.clone(), limit.mode.clone(), limit.limit.to_string(), numbers]
    });
    aligned(["LIMIT", "ALGORITHM", "MODE", "AT ONCE", "NUMBERS"], rows)
}

fn upstreams(upstreams: &[UpstreamInfo]) -> Vec<String> {
    let rows = upstreams.iter().flat_map(|upstream| {
        upstream.servers.iter().map(|server| {
            let state = server_health(server, upstream.health_checks);
            [upstream.name.clone(), server.server.clone(), state, server.connections.to_string()]
        })
    });
    aligned(["UPSTREAM", "SERVER", "STATE", "CONNECTIONS"], rows)
}

/// The state of a server: of its addresses, those that get requests.
fn server_health(server: &ServerInfo, is_checked: bool) -> String {
    let ServerInfo { addresses, healthy, ejected, .. } = *server;
    let ejected = if ejected == 0 { String::new() } else { format!(", {ejected} ejected") };
    match (addresses, healthy) {
        (0, _) => "no address".to_owned(),
        _ if !is_checked => format!("not checked{ejected}"),
        (_, 0) => format!("unhealthy{ejected}"),
        (addresses, healthy) if addresses == healthy => format!("healthy{ejected}"),
        (addresses, healthy) => format!("{healthy} of {addresses} addresses healthy{ejected}"),
    }
}

/// The certificates of an ACME server, and why attempts to obtain them have failed.
fn certificates(acme: &AcmeInfo) -> Vec<String> {
    let rows = acme.certificates.iter().map(|one| {
        let expires = one.not_after.clone().unwrap_or_else(|| "none".to_owned());
        [one.name.clone(), one.state.clone(), expires, one.next_attempt.clone()]
    });
    let mut lines = aligned(["CERTIFICATE", "STATE", "EXPIRES", "NEXT ATTEMPT"], rows);
    let failed = acme.certificates.iter().filter_map(|one| Some((&one.name, one.last_error.as_ref()?)));
    lines.extend(
        failed.map(|(name, last)| row("last error", &format!("{name}, {}: {}", last.at, last.error))),
    );
    lines
}

const HEALTH_EXAMPLES: &str = "\
Examples:
  tidegate health
  tidegate health --live --admin unix:/run/tidegate/admin.sock

Exit status: 0 if the proxy is ready, 1 if it is not or can't be reached, 2 for wrong usage.";

/// The arguments of `tidegate health`.
#[derive(Debug, Args)]
#[command(after_help = HEALTH_EXAMPLES)]
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
    let response = client.fetch(&AdminRequest::get(path, &[]), args.timeout);
    let (status, body) = response.map_err(|failed| Failure::Running.error(failed.error))?;
    print(String::from_utf8_lossy(&body).trim_end())?;
    if status == StatusCode::OK { Ok(()) } else { Err(Failure::Running) }
}

/// Connects to each listener.
fn connect(addresses: &[SocketAddr], timeout: Duration) -> CommandResult {
    for &address in addresses {
        TcpStream::connect_timeout(&on_this_machine(address), timeout)
            .map_err(|error| Failure::Running.error(format!("can't connect to {address}: {error}")))?;
    }
    print("all listeners accept connections")
}
