//! `tidegate keys`.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::admin_args::AdminArgs;
use super::admin_client::{AdminRequest, unknown_response};
use super::completions;
use super::output::{CommandResult, Failure, aligned, print};
use crate::admin::api::{
    BlockRequest, KeyChange, KeyList, KeyRequest, KeyStatus, RaiseInfo, RaiseRequest, RaisesList,
};
use crate::limit::Factor;
use crate::time::format_duration;

/// The most keys that the admin interface lists.
const MAX_KEYS: u32 = 10_000;

const EXAMPLES: &str = "\
Examples:
  tidegate keys list per-key --max 20
  tidegate keys list --denied --consumer acme
  tidegate keys peek per-client 203.0.113.9
  tidegate keys peek per-key 'k-4711|GET'
  tidegate keys block per-key k-4711 --for 1h
  tidegate keys unblock per-key k-4711
  tidegate keys raise per-key k-4711 --by 2x --for 1h
  tidegate keys raise per-key k-4711 --end
  tidegate keys peek per-consumer --consumer acme
  tidegate keys reset per-key tag:lOi_WN7gUW3I4LyfzWuHMA
  TIDEGATE_ADMIN_TOKEN=… tidegate keys list --admin http://10.0.1.5:9900

Exit status: 0 on success, 1 if the proxy can't be reached or rejects the request, 2 for wrong usage.";

/// The arguments of `tidegate keys`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    operation: KeyCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the response as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
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
    /// Raise the numbers of a key for a while, on every proxy that shares the store. What it has spent stays spent, and a ban
    /// or block stays. A raise replaces the one before.
    Raise {
        #[command(flatten)]
        key: KeyArgs,
        /// How many times its rate and its capacity are raised: above 1x and at most 1000x, such as 2x or 1.5x.
        #[arg(long, value_name = "FACTOR", value_parser = factor, required_unless_present = "end")]
        by: Option<String>,
        /// The duration, such as 30s, 10m, 1h or 7days.
        #[arg(long = "for", value_name = "TIME", value_parser = duration, required_unless_present = "end")]
        length: Option<String>,
        /// End the raise of the key now.
        #[arg(long, conflicts_with_all = ["by", "length"])]
        end: bool,
    },
    /// List the keys that are raised.
    Raises,
    /// List the stored keys, in no order. They are shown as tags: the values of their parts are not stored.
    List {
        /// The name of the limit; without it, all limits.
        #[arg(add = completions::limits())]
        limit: Option<String>,
        /// The maximum number of keys.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_KEYS)))]
        max: u32,
        /// List the keys that this proxy has denied in the last hour, those with the most denials first. See `tidegate top`.
        #[arg(long)]
        denied: bool,
        /// With --denied, the name of a consumer: only keys with denied requests of this consumer alone are listed.
        #[arg(long, value_name = "NAME", add = completions::consumers())]
        consumer: Option<String>,
    },
}

/// One key of one limit.
#[derive(Debug, Args)]
struct KeyArgs {
    /// The name of the limit.
    #[arg(add = completions::limits())]
    limit: String,
    /// The key: the values of its parts with a bar between them, such as 'k-4711|GET', where \| is a literal bar.
    /// Or a tag as `list` shows it. With --consumer, the values of the other parts, if there are some.
    #[arg(required_unless_present = "consumer")]
    key: Option<String>,
    /// The name of a consumer, for limits whose key has the part `consumer`.
    #[arg(long, value_name = "NAME", add = completions::consumers())]
    consumer: Option<String>,
}

fn duration(text: &str) -> Result<String, String> {
    humantime::parse_duration(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn factor(text: &str) -> Result<String, String> {
    let factor = Factor::parse(text).map(|_| text.to_owned());
    factor.ok_or_else(|| "a factor is above 1x and at most 1000x, such as 2x or 1.5x".to_owned())
}

/// Sends the request to the admin interface, and prints its response.
pub(super) fn keys(args: &KeysArgs) -> CommandResult {
    if let KeyCommand::List { denied: false, consumer: Some(name), .. } = &args.operation {
        let help = format!(
            "add --denied to list the denied keys of {name}, or look at one key with tidegate keys peek LIMIT --consumer {name}"
        );
        return Err(Failure::Usage.error("the consumers of stored keys are not known").help([help]));
    }
    let response = args.admin.client()?.send_or_complain(&request(&args.operation))?;
    let response = match &args.operation {
        KeyCommand::List { consumer: Some(name), max, .. } => {
            of_consumer(response, name, *max as usize).ok_or_else(unknown_response)?
        }
        _ => response,
    };
    let text =
        if args.json { Some(format!("{response:#}")) } else { format_response(&args.operation, response) };
    print(&text.ok_or_else(unknown_response)?)
}

fn request(operation: &KeyCommand) -> AdminRequest {
    let key_request = |KeyArgs { limit, key, consumer }: &KeyArgs| KeyRequest {
        limit: limit.clone(),
        key: key.clone(),
        consumer: consumer.clone(),
    };
    match operation {
        KeyCommand::Peek(KeyArgs { limit, key, consumer }) => {
            let mut parameters = vec![("limit", &**limit)];
            parameters.extend(key.as_deref().map(|key| ("key", key)));
            parameters.extend(consumer.as_deref().map(|name| ("consumer", name)));
            AdminRequest::get("/v1/keys/peek", &parameters)
        }
        KeyCommand::List { limit, max, denied, consumer } => {
            // The first keys of all consumers may have none of this one.
            let max = if consumer.is_some() { MAX_KEYS } else { *max }.to_string();
            let limit = limit.as_deref().map(|limit| ("limit", limit));
            let parameters: Vec<_> = limit.into_iter().chain([("max", &*max)]).collect();
            AdminRequest::get(if *denied { "/v1/keys/denied" } else { "/v1/keys" }, &parameters)
        }
        KeyCommand::Reset(key) => AdminRequest::post("/v1/keys/reset", &key_request(key)),
        KeyCommand::Unblock(key) => AdminRequest::post("/v1/keys/unblock", &key_request(key)),
        KeyCommand::Raises => AdminRequest::get("/v1/keys/raises", &[]),
        KeyCommand::Raise { key, end: true, .. } => {
            AdminRequest::post("/v1/keys/end-raise", &key_request(key))
        }
        KeyCommand::Raise { key, by, length, .. } => {
            let KeyRequest { limit, key, consumer } = key_request(key);
            // Both are given: without `--end` they are required.
            let (by, length) = (by.clone().unwrap_or_default(), length.clone().unwrap_or_default());
            AdminRequest::post("/v1/keys/raise", &RaiseRequest { limit, key, consumer, by, length })
        }
        KeyCommand::Block { key, length } => {
            let KeyRequest { limit, key, consumer } = key_request(key);
            AdminRequest::post(
                "/v1/keys/block",
                &BlockRequest { limit, key, consumer, length: length.clone() },
            )
        }
    }
}

/// The keys of one consumer, at most `max`; `None` if the response is not a list.
fn of_consumer(response: Value, name: &str, max: usize) -> Option<Value> {
    let KeyList { mut keys, more } = serde_json::from_value(response).ok()?;
    keys.retain(|status| status.consumer.as_deref() == Some(name));
    // A key has a status for each tier that has counted it.
    let is_same = |one: &KeyStatus, next: &KeyStatus| (&one.limit, &one.key) == (&next.limit, &next.key);
    let count: usize = keys.chunk_by(is_same).take(max).map(<[_]>::len).sum();
    let more = more || keys.len() > count;
    keys.truncate(count);
    serde_json::to_value(KeyList { keys, more }).ok()
}

/// Formats a response as text; `None` if it is not one to this request.
fn format_response(operation: &KeyCommand, response: Value) -> Option<String> {
    match operation {
        KeyCommand::List { denied: true, consumer, .. } => {
            let list: KeyList = serde_json::from_value(response).ok()?;
            Some(format_denied(&list, consumer.as_deref()))
        }
        KeyCommand::Peek(_) | KeyCommand::List { .. } => {
            let list: KeyList = serde_json::from_value(response).ok()?;
            Some(format(&list))
        }
        KeyCommand::Raises => {
            let list: RaisesList = serde_json::from_value(response).ok()?;
            Some(format_raises(&list))
        }
        _ => {
            let KeyChange { limit, key, done, until } = serde_json::from_value(response).ok()?;
            let until = until.map_or_else(String::new, |until| format!(" until {until}"));
            Some(format!("{limit}: {key} is {done}{until}"))
        }
    }
}

const HEADER: [&str; 5] = ["LIMIT", "KEY", "STATE", "LEFT", "RESET IN"];
const DENIED_HEADER: [&str; 7] = ["LIMIT", "CONSUMER", "KEY", "DENIED", "STATE", "LEFT", "RESET IN"];

const RAISES_HEADER: [&str; 5] = ["LIMIT", "KEY", "RAISED BY", "UNTIL", "STARTED BY"];

/// Formats a table of keys, or a message if there are none.
fn format(list: &KeyList) -> String {
    if list.keys.is_empty() && !list.more {
        return "no keys: nothing has been charged, or all of it has been refilled".to_owned();
    }
    let mut lines = aligned(HEADER, list.keys.iter().map(row));
    if list.more {
        lines.push("and more: list them with a larger --max".to_owned());
    }
    lines.join("\n")
}

/// Formats a table of denied keys, those of one consumer if there is one, or a message if there are none.
fn format_denied(list: &KeyList, consumer: Option<&str>) -> String {
    if list.keys.is_empty() {
        let whose = consumer.map_or_else(String::new, |name| format!(" of the consumer {name}"));
        return format!("no keys: nothing{whose} was denied in the last hour");
    }
    let row = |status: &KeyStatus| {
        let [limit, key, state, left, reset] = row(status);
        let denied = status.denials.unwrap_or_default().to_string();
        [limit, status.consumer.clone().unwrap_or_else(|| "-".to_owned()), key, denied, state, left, reset]
    };
    let mut lines = aligned(DENIED_HEADER, list.keys.iter().map(row));
    if list.more {
        lines.push("and more: list them with a larger --max".to_owned());
    }
    lines.join("\n")
}

/// Formats a table of raises, or a message if there are none.
fn format_raises(list: &RaisesList) -> String {
    if list.raises.is_empty() {
        return "no keys are raised".to_owned();
    }
    let row = |raise: &RaiseInfo| {
        let RaiseInfo { limit, key, by, until, started_by } = raise.clone();
        [limit, key, by, until, started_by]
    };
    aligned(RAISES_HEADER, list.raises.iter().map(row)).join("\n")
}

fn row(status: &KeyStatus) -> [String; 5] {
    let limit = match &status.tier {
        Some(tier) => format!("{}.{tier}", status.limit),
        None => status.limit.clone(),
    };
    let until = status.until.as_ref().map_or_else(String::new, |until| format!(" until {until}"));
    let state = match status.cause.as_deref() {
        None => "allowed".to_owned(),
        Some("quota") => "used up".to_owned(),
        Some("ban") => format!("banned{until}"),
        Some("block") => format!("blocked{until}"),
        Some(other) => format!("{other}{until}"),
    };
    let reserved = status.reserved.filter(|units| *units > 0);
    let reserved = reserved.map_or_else(String::new, |units| format!(", {units} reserved"));
    let left = format!("{} of {}{reserved}", status.remaining, status.of);
    let state = match &status.raised {
        Some(factor) => format!("{state}, raised by {factor}"),
        None => state,
    };
    [limit, status.key.clone(), state, left, format_span(status.reset_after)]
}

/// Formats seconds, rounded up: to milliseconds below a second, and to whole seconds above.
fn format_span(seconds: f64) -> String {
    let Ok(span) = Duration::try_from_secs_f64(seconds) else { return "?".to_owned() };
    if span.is_zero() {
        return "-".to_owned();
    }
    let unit = if span < Duration::from_secs(1) { 1_000 } else { 1_000_000 };
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).div_ceil(unit).saturating_mul(unit);
    format_duration(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let status = KeyStatus {
            limit: "per-key".into(),
            tier: None,
            key: "tag:lOi_WN7gUW3I4LyfzWuHMA".into(),
            allowed: true,
            cause: None,
            denials: None,
            consumer: None,
            of: 5,
            remaining: 3,
            reserved: None,
            raised: None,
            reset_after: 23.2,
            until: None,
        };
        let banned = KeyStatus {
            tier: Some("pro".into()),
            allowed: false,
            cause: Some("ban".into()),
            remaining: 0,
            reset_after: 0.25,
            until: Some("2026-11-20T21:00:00Z".into()),
            ..status.clone()
        };
        let table = format(&KeyList { keys: vec![status, banned], more: true });
        assert_eq!(
            table,
            "LIMIT        KEY                         STATE                              LEFT    RESET IN
per-key      tag:lOi_WN7gUW3I4LyfzWuHMA  allowed                            3 of 5  24s
per-key.pro  tag:lOi_WN7gUW3I4LyfzWuHMA  banned until 2026-11-20T21:00:00Z  0 of 5  250ms
and more: list them with a larger --max"
        );
    }

    #[test]
    fn spans_round_up() {
        for (seconds, text) in
            [(0.0, "-"), (0.000_001, "1ms"), (1.5, "2s"), (90.0, "1m 30s"), (f64::NAN, "?")]
        {
            assert_eq!(format_span(seconds), text);
        }
    }
}
