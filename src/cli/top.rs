//! `tidegate top`.

mod table;

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;

use super::admin_args::AdminArgs;
use super::admin_client::{AdminRequest, Client, unknown_response};
use super::outcome::{Failure, Outcome};
use super::output::{print, report_write};
use crate::admin::api::TopList;

/// How often the table is shown again.
const REFRESH: Duration = Duration::from_secs(2);
/// Moves the cursor of a terminal to its first line, and erases what follows.
const CLEAR: &str = "\x1b[H\x1b[J";

const EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top --by traffic --window 1m
  tidegate top --once --limit per-consumer --count 3
  tidegate top --json | jq '.limits[0].keys[0].consumer'

Exit status: 0 on success, 1 if the proxy can't be reached or rejects the request, 2 for wrong usage.";

/// The arguments of `tidegate top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The time over which is counted, up to now.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = ["1m", "10m", "60m"])]
    window: String,
    /// What is counted: requests that the limit denied (in shadow mode: would have denied), or all that it decided.
    #[arg(long, value_name = "WHAT", default_value = "denials", value_parser = ["denials", "traffic"])]
    by: String,
    /// The name of a limit; without it, all limits.
    #[arg(long, value_name = "LIMIT")]
    limit: Option<String>,
    /// The number of keys of each limit.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// Print the table once, and end.
    #[arg(long)]
    once: bool,
    /// Print the response as JSON, once.
    #[arg(long)]
    json: bool,
}

/// Prints the most frequent keys, until the command is interrupted.
pub(super) fn top(args: &TopArgs) -> Outcome {
    let client = args.admin.client()?;
    let request = request(args);
    if args.json {
        return print(&format!("{:#}", client.send_or_complain(&request)?));
    }
    if args.once {
        return print(&fetch_table(&client, &request)?);
    }
    let clear = if io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let table = fetch_table(&client, &request)?;
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{clear}{table}").and_then(|()| out.flush());
        if written.is_err() {
            return report_write("standard output", written);
        }
        drop(out);
        std::thread::sleep(REFRESH);
    }
}

fn request(args: &TopArgs) -> AdminRequest {
    let count = args.count.to_string();
    let mut parameters = vec![("window", &*args.window), ("by", &*args.by), ("count", &*count)];
    parameters.extend(args.limit.as_deref().map(|limit| ("limit", limit)));
    AdminRequest::get("/top", &parameters)
}

fn fetch_table(client: &Client, request: &AdminRequest) -> Result<String, Failure> {
    let response = client.send_or_complain(request)?;
    let list: TopList = serde_json::from_value(response).map_err(|_| unknown_response())?;
    Ok(table::format(&list))
}
