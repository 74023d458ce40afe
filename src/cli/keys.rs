//! `tidegate keys`.

mod client;
mod table;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use self::client::{AdminRequest, Client};
use super::file::FileArgs;
use super::outcome::{Failure, Outcome};
use super::output::{complain, print};
use crate::admin::api::{BlockRequest, KeyChange, KeyList, KeyRequest};

const EXAMPLES: &str = "\
Examples:
  tidegate keys list per-key --max 20
  tidegate keys peek per-client 203.0.113.9
  tidegate keys peek per-key 'k-4711|GET'
  tidegate keys block per-key k-4711 --for 1h
  tidegate keys unblock per-key k-4711
  tidegate keys reset per-key tag:lOi_WN7gUW3I4LyfzWuHMA
  TIDEGATE_ADMIN_TOKEN=… tidegate keys list --admin http://10.0.1.5:9900

Exit status: 0 on success, 1 if the proxy can't be reached or rejects the request, 2 for wrong usage.";

const ADMIN: &str = "The admin interface, such as http://10.0.1.5:9900 or unix:/run/tidegate/admin.sock. The configuration is \
                     not read then. The token is that of the environment variable TIDEGATE_ADMIN_TOKEN, which also \
                     overrides that of the configuration";

/// The arguments of `tidegate keys`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    operation: Operation,
    /// The configuration file, which names the admin interface and its token.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", global = true)]
    config: PathBuf,
    #[arg(long, value_name = "URL", global = true, help = ADMIN)]
    admin: Option<String>,
    /// Print the response as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Operation {
    /// Show the status of a key in a limit and each of its tiers; charges nothing.
    Peek(KeyArgs),
    /// Reset the count, the denials and the ban of a key; a block stays.
    Reset(KeyArgs),
    /// Block a key for a while, on every proxy that shares the store.
    Block {
        #[command(flatten)]
        key: KeyArgs,
        /// The duration, such as 30s, 10m, 1h or 7days.
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        length: String,
    },
    /// Lift the block and the ban of a key.
    Unblock(KeyArgs),
    /// List the stored keys, in no order. They are shown as tags: the values of their parts are not stored.
    List {
        /// The name of the limit; without it, all limits.
        limit: Option<String>,
        /// The maximum number of keys.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        max: u32,
    },
}

/// One key of one limit.
#[derive(Debug, Args)]
struct KeyArgs {
    /// The name of the limit.
    limit: String,
    /// The key: the values of its parts with a bar between them, such as 'k-4711|GET', where \| is a literal bar.
    /// Or a tag as `list` shows it.
    key: String,
}

fn duration(text: &str) -> Result<String, String> {
    humantime::parse_duration(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Sends the request to the admin interface, and prints its response.
pub(super) fn keys(args: &KeysArgs) -> Outcome {
    let client = client(args)?;
    let response = client.send(&request(&args.operation)).map_err(|failed| {
        complain(format!("error: {}", failed.error));
        if let Some(help) = failed.help {
            complain(format!("help: {help}"));
        }
        Failure::Running
    })?;
    let text =
        if args.json { Some(format!("{response:#}")) } else { format_response(&args.operation, response) };
    let Some(text) = text else {
        complain("error: the response is not that of an admin interface of this version of tidegate");
        return Err(Failure::Running);
    };
    print(&text)
}

fn request(operation: &Operation) -> AdminRequest {
    let key_request =
        |KeyArgs { limit, key }: &KeyArgs| KeyRequest { limit: limit.clone(), key: key.clone() };
    match operation {
        Operation::Peek(KeyArgs { limit, key }) => {
            AdminRequest::get("/keys/peek", &[("limit", limit), ("key", key)])
        }
        Operation::List { limit, max } => {
            let max = max.to_string();
            let limit = limit.as_deref().map(|limit| ("limit", limit));
            let parameters: Vec<_> = limit.into_iter().chain([("max", &*max)]).collect();
            AdminRequest::get("/keys", &parameters)
        }
        Operation::Reset(key) => AdminRequest::post("/keys/reset", &key_request(key)),
        Operation::Unblock(key) => AdminRequest::post("/keys/unblock", &key_request(key)),
        Operation::Block { key, length } => {
            let KeyRequest { limit, key } = key_request(key);
            AdminRequest::post("/keys/block", &BlockRequest { limit, key, length: length.clone() })
        }
    }
}

/// Formats a response as text; `None` if it is not one to this request.
fn format_response(operation: &Operation, response: Value) -> Option<String> {
    match operation {
        Operation::Peek(_) | Operation::List { .. } => {
            let list: KeyList = serde_json::from_value(response).ok()?;
            Some(table::format(&list))
        }
        _ => {
            let KeyChange { limit, key, done, until } = serde_json::from_value(response).ok()?;
            let until = until.map_or_else(String::new, |until| format!(" until {until}"));
            Some(format!("{limit}: {key} is {done}{until}"))
        }
    }
}

/// A client of the interface of --admin, or of that of the configuration.
fn client(args: &KeysArgs) -> Result<Client, Failure> {
    let usage = |error: String| {
        complain(format!("error: {error}"));
        Failure::Usage
    };
    let token = std::env::var("TIDEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
    if let Some(url) = &args.admin {
        return Client::at_url(url, token).map_err(usage);
    }
    let loaded = FileArgs { config: args.config.clone() }.load()?;
    let Some(spec) = loaded.config.admin else {
        let file = args.config.display();
        return Err(usage(format!(
            "{file} has no admin interface\nhelp: add [admin] with listen = \"127.0.0.1:9900\", or name an interface with \
             --admin URL"
        )));
    };
    if spec.address.tcp().is_some_and(|address| address.port() == 0) {
        return Err(usage(
            "the configuration has port 0, which the system chooses\nhelp: name the interface with --admin URL".to_owned(),
        ));
    }
    Ok(Client::from_spec(&spec, token))
}
