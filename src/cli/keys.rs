//! `tidegate keys`.

mod client;
mod shown;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use self::client::{Ask, Client};
use super::output::{complain, print};
use super::{Failure, FileArgs, Outcome, load};
use crate::admin::api::{Block, Done, OneKey, Standings};

const EXAMPLES: &str = "\
Examples:
  tidegate keys list per-key --max 20
  tidegate keys peek per-client 203.0.113.9
  tidegate keys peek per-key 'k-4711|GET'
  tidegate keys block per-key k-4711 --for 1h
  tidegate keys unblock per-key k-4711
  tidegate keys reset per-key tag:lOi_WN7gUW3I4LyfzWuHMA
  TIDEGATE_ADMIN_TOKEN=… tidegate keys list --admin http://10.0.1.5:9900

Ends with 0, with 1 when the proxy can't be reached or refuses, and with 2 for wrong usage.";

const ADMIN: &str = "The admin interface, such as http://10.0.1.5:9900 or unix:/run/tidegate/admin.sock. Then no file is read, and the token \
                     comes from the environment variable TIDEGATE_ADMIN_TOKEN, which otherwise goes over the \
                     file's";

/// What is to be done, and where.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    what: What,
    /// The configuration file, which names the admin interface and its token.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", global = true)]
    config: PathBuf,
    #[arg(long, value_name = "URL", global = true, help = ADMIN)]
    admin: Option<String>,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show where a key stands with a limit and each of its tiers; spends nothing.
    Peek(KeyArgs),
    /// Forget what a key has spent, its denials and its ban; a block stays.
    Reset(KeyArgs),
    /// Refuse a key for a while, on every proxy that shares the store.
    Block {
        #[command(flatten)]
        key: KeyArgs,
        /// How long, such as 30s, 10m, 1h or 7days.
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        length: String,
    },
    /// Lift the block and the ban of a key.
    Unblock(KeyArgs),
    /// Show the keys that are known, in no order. Only their tags: what they were made from is not stored.
    List {
        /// The limit; without it, all limits.
        limit: Option<String>,
        /// The most keys to show.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        max: u32,
    },
}

/// One key of one limit.
#[derive(Debug, Args)]
struct KeyArgs {
    /// The name of the limit.
    limit: String,
    /// The value of the key, with a bar between the values of several parts: 'k-4711|GET'. A literal bar is \|.
    /// Or a tag as `list` shows it.
    key: String,
}

fn duration(text: &str) -> Result<String, String> {
    humantime::parse_duration(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Asks the admin interface, and shows its answer.
pub(super) fn keys(args: &KeysArgs) -> Outcome {
    let client = client(args)?;
    let answer = client.ask(&ask(&args.what)).map_err(|failed| {
        complain(format!("error: {}", failed.error));
        if let Some(help) = failed.help {
            complain(format!("help: {help}"));
        }
        Failure::Running
    })?;
    let text = if args.json { Some(format!("{answer:#}")) } else { shown(&args.what, answer) };
    let Some(text) = text else {
        complain("error: what answers there is no admin interface of this version of tidegate");
        return Err(Failure::Running);
    };
    print(&text)
}

fn ask(what: &What) -> Ask {
    let one = |KeyArgs { limit, key }: &KeyArgs| OneKey { limit: limit.clone(), key: key.clone() };
    match what {
        What::Peek(KeyArgs { limit, key }) => Ask::get("/keys/peek", &[("limit", limit), ("key", key)]),
        What::List { limit, max } => {
            let max = max.to_string();
            let limit = limit.as_deref().map(|limit| ("limit", limit));
            let parameters: Vec<_> = limit.into_iter().chain([("max", &*max)]).collect();
            Ask::get("/keys", &parameters)
        }
        What::Reset(key) => Ask::post("/keys/reset", &one(key)),
        What::Unblock(key) => Ask::post("/keys/unblock", &one(key)),
        What::Block { key, length } => {
            let OneKey { limit, key } = one(key);
            Ask::post("/keys/block", &Block { limit, key, length: length.clone() })
        }
    }
}

/// An answer for people; `None` if it is not what was asked for.
fn shown(what: &What, answer: Value) -> Option<String> {
    match what {
        What::Peek(_) | What::List { .. } => {
            let standings: Standings = serde_json::from_value(answer).ok()?;
            Some(shown::table(&standings))
        }
        _ => {
            let Done { limit, key, done, until } = serde_json::from_value(answer).ok()?;
            let until = until.map_or_else(String::new, |until| format!(" until {until}"));
            Some(format!("{limit}: {key} is {done}{until}"))
        }
    }
}

/// The interface that was named, or the file's.
fn client(args: &KeysArgs) -> Result<Client, Failure> {
    let usage = |error: String| {
        complain(format!("error: {error}"));
        Failure::Usage
    };
    let token = std::env::var("TIDEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
    if let Some(url) = &args.admin {
        return Client::at(url, token).map_err(usage);
    }
    let loaded = load(&FileArgs { config: args.config.clone() })?;
    let Some(spec) = loaded.config.admin else {
        let file = args.config.display();
        return Err(usage(format!(
            "{file} has no admin interface\nhelp: add [admin] with listen = \"127.0.0.1:9900\", or name one with \
             --admin URL"
        )));
    };
    if spec.address.tcp().is_some_and(|address| address.port() == 0) {
        return Err(usage(
            "the file lets the system choose the port\nhelp: name it with --admin URL".to_owned(),
        ));
    }
    Ok(Client::of(&spec, token))
}
