//! `tidegate top`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::admin_args::AdminArgs;
use super::admin_client::{AdminClient, AdminRequest, unknown_response};
use super::completions;
use super::output::{CommandResult, Failure, aligned, print, report_write};
use crate::admin::api::{TopKey, TopLimit, TopList, TopUpstream};
use crate::time::format_duration;

/// What is counted of upstreams.
const REFUSALS: &str = "refusals";
/// How often the table is shown again.
const REFRESH: Duration = Duration::from_secs(2);
/// The most keys of each limit that the admin interface returns.
const MAX_KEYS: u32 = 100;
/// Moves the cursor of a terminal to its first line, and erases what follows.
const CLEAR: &str = "\x1b[H\x1b[J";

const EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top --by traffic --window 1m
  tidegate top --by refusals
  tidegate top --once --limit per-consumer --count 3
  tidegate top --consumer acme --by traffic
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
    /// What is counted: requests that the limit denied (in shadow or mark mode: would have denied), or all that it decided; or
    /// `refusals`, requests that upstreams with `overload` refused, by class instead of keys.
    #[arg(long, value_name = "WHAT", default_value = "denials", value_parser = ["denials", "traffic", REFUSALS])]
    by: String,
    /// The name of a limit; without it, all limits.
    #[arg(long, value_name = "LIMIT", add = completions::limits())]
    limit: Option<String>,
    /// The number of keys of each limit.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_KEYS)))]
    count: u32,
    /// The name of a consumer: only keys with requests of this consumer alone are shown.
    #[arg(long, value_name = "NAME", add = completions::consumers())]
    consumer: Option<String>,
    /// Print the table once, and end.
    #[arg(long)]
    once: bool,
    /// Print the response as JSON, once.
    #[arg(long)]
    json: bool,
}

/// Prints the most frequent keys, until the command is interrupted.
pub(super) fn top(args: &TopArgs) -> CommandResult {
    check(args)?;
    let client = args.admin.client()?;
    if args.json {
        return print(&format!("{:#}", fetch(&client, args)?));
    }
    if args.once {
        return print(&fetch_table(&client, args)?);
    }
    let clear = if io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let table = fetch_table(&client, args)?;
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{clear}{table}").and_then(|()| out.flush());
        if written.is_err() {
            return report_write("standard output", written);
        }
        drop(out);
        std::thread::sleep(REFRESH);
    }
}

/// Rejects arguments that choose keys, of which refusals of upstreams have none.
fn check(args: &TopArgs) -> Result<(), Failure> {
    if args.by == REFUSALS && (args.limit.is_some() || args.consumer.is_some()) {
        let error = "--by refusals counts requests of upstreams by class, and no keys of limits";
        return Err(Failure::Usage.error(error).help(["leave out --limit and --consumer"]));
    }
    Ok(())
}

fn request(args: &TopArgs) -> AdminRequest {
    if args.by == REFUSALS {
        return AdminRequest::get("/v1/top", &[("window", &*args.window), ("by", REFUSALS)]);
    }
    // The most frequent keys of all consumers may have none of this one.
    let count = if args.consumer.is_some() { MAX_KEYS } else { args.count }.to_string();
    let mut parameters = vec![("window", &*args.window), ("by", &*args.by), ("count", &*count)];
    parameters.extend(args.limit.as_deref().map(|limit| ("limit", limit)));
    AdminRequest::get("/v1/top", &parameters)
}

fn fetch(client: &AdminClient, args: &TopArgs) -> Result<Value, Failure> {
    let response = client.send_or_complain(&request(args))?;
    match &args.consumer {
        Some(name) => of_consumer(response, name, args.count as usize).ok_or_else(unknown_response),
        None => Ok(response),
    }
}

fn fetch_table(client: &AdminClient, args: &TopArgs) -> Result<String, Failure> {
    let list: TopList = serde_json::from_value(fetch(client, args)?).map_err(|_| unknown_response())?;
    Ok(format(&list, args.consumer.as_deref()))
}

/// The keys of one consumer, at most `count` of each limit; `None` if the response is not a list.
fn of_consumer(response: Value, name: &str, count: usize) -> Option<Value> {
    let mut list: TopList = serde_json::from_value(response).ok()?;
    for limit in &mut list.limits {
        limit.keys.retain(|key| key.consumer.as_deref() == Some(name));
        limit.keys.truncate(count);
    }
    serde_json::to_value(list).ok()
}

/// Formats a table of keys, those of one consumer if there is one, or a message if there are none.
fn format(list: &TopList, consumer: Option<&str>) -> String {
    if list.by == REFUSALS {
        return format_refusals(list);
    }
    let (what, column) = match &*list.by {
        "denials" => ("denials", "DENIALS"),
        _ => ("requests of limits", "REQUESTS"),
    };
    let whose = consumer.map_or_else(String::new, |name| format!(" of the consumer {name}"));
    let time = format_duration(Duration::from_secs(list.seconds.max(1)));
    let rows = list.limits.iter().flat_map(|limit| limit.keys.iter().map(|key| row(limit, key, &list.by)));
    let rows: Vec<[String; 5]> = rows.collect();
    if rows.is_empty() {
        return format!("no {what}{whose} in the last {time}");
    }
    let title = format!("{what}{whose} in the last {time}\n");
    let lines = aligned(["LIMIT", "CONSUMER", "KEY", column, "SHARE"], rows.into_iter());
    [vec![title], lines].concat().join("\n")
}

/// Formats a table of what upstreams have refused, or a message if that is nothing.
fn format_refusals(list: &TopList) -> String {
    let time = format_duration(Duration::from_secs(list.seconds.max(1)));
    let row = |upstream: &TopUpstream| {
        let (name, total) = (upstream.upstream.clone(), upstream.total);
        let classes = upstream.classes.clone().into_iter();
        classes.map(move |class| {
            let share = format!("{} %", percent(class.count, total));
            [name.clone(), class.class, class.count.to_string(), share]
        })
    };
    let rows: Vec<[String; 4]> = list.upstreams.iter().flat_map(row).collect();
    if rows.is_empty() {
        return format!("no refusals of upstreams in the last {time}");
    }
    let title = format!("refusals of upstreams in the last {time}\n");
    let lines = aligned(["UPSTREAM", "CLASS", "REFUSALS", "SHARE"], rows.into_iter());
    [vec![title], lines].concat().join("\n")
}

/// The row of a key. A limit that enforces nothing has its mode beside its name; `by` is what is counted.
fn row(limit: &TopLimit, key: &TopKey, by: &str) -> [String; 5] {
    let name = match (&*limit.mode, by) {
        ("shadow", "denials") => format!("{} (would deny)", limit.limit),
        (mode @ ("shadow" | "mark"), _) => format!("{} ({mode})", limit.limit),
        _ => limit.limit.clone(),
    };
    let consumer = match &key.consumer {
        Some(name) => name.clone(),
        None if key.several_consumers => "(several)".to_owned(),
        None => "-".to_owned(),
    };
    // The value of a key by consumer is in the column before.
    let shown = key.name.as_ref().filter(|name| **name != consumer).unwrap_or(&key.key).clone();
    let count = match key.error {
        0 => key.count.to_string(),
        error => format!("{}-{}", key.count.saturating_sub(error), key.count),
    };
    [name, consumer, shown, count, format!("{} %", percent(key.count, limit.total))]
}

/// The share of a count in percent, rounded down.
fn percent(count: u64, total: u64) -> u64 {
    count.saturating_mul(100).checked_div(total).unwrap_or_default().min(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::TopClass;

    fn key(consumer: Option<&str>, count: u64, error: u64) -> TopKey {
        TopKey {
            consumer: consumer.map(str::to_owned),
            several_consumers: false,
            key: "tag:lOi_WN7gUW3I4LyfzWuHMA".to_owned(),
            name: None,
            count,
            error,
        }
    }

    fn limit(name: &str, mode: &str, keys: Vec<TopKey>) -> TopLimit {
        TopLimit { limit: name.to_owned(), mode: mode.to_owned(), total: 400, max_error: 4, keys }
    }

    #[test]
    fn counts_that_may_be_too_high_are_ranges() {
        let plain = TopKey { name: Some("10.0.0.1".to_owned()), several_consumers: true, ..key(None, 7, 0) };
        let named = TopKey { name: Some("acme".to_owned()), ..key(Some("acme"), 300, 0) };
        let list = TopList {
            by: "denials".to_owned(),
            window: "10m".to_owned(),
            seconds: 570,
            limits: vec![
                limit("per-consumer", "enforce", vec![named, key(None, 99, 3)]),
                limit("wide", "shadow", vec![plain]),
                limit("quiet", "enforce", vec![]),
            ],
            upstreams: vec![],
        };
        assert_eq!(
            format(&list, None),
            "denials in the last 9m 30s

LIMIT              CONSUMER   KEY                         DENIALS  SHARE
per-consumer       acme       tag:lOi_WN7gUW3I4LyfzWuHMA  300      75 %
per-consumer       -          tag:lOi_WN7gUW3I4LyfzWuHMA  96-99    24 %
wide (would deny)  (several)  10.0.0.1                    7        1 %"
        );
    }

    #[test]
    fn refusals_are_shown_by_upstream_and_class() {
        let class = |class: &str, count| TopClass { class: class.to_owned(), count };
        let list = |upstreams| TopList {
            by: REFUSALS.to_owned(),
            window: "10m".to_owned(),
            seconds: 600,
            limits: vec![],
            upstreams,
        };
        let shop = TopUpstream {
            upstream: "shop".to_owned(),
            total: 400,
            classes: vec![class("normal", 90), class("low", 310)],
        };
        let search =
            TopUpstream { upstream: "search".to_owned(), total: 2, classes: vec![class("critical", 2)] };
        assert_eq!(
            format(&list(vec![shop, search]), None),
            "refusals of upstreams in the last 10m

UPSTREAM  CLASS     REFUSALS  SHARE
shop      normal    90        22 %
shop      low       310       77 %
search    critical  2         100 %"
        );
        assert_eq!(format(&list(vec![]), None), "no refusals of upstreams in the last 10m");
    }

    #[test]
    fn a_time_without_events_is_stated() {
        let list = TopList {
            by: "traffic".to_owned(),
            window: "1m".to_owned(),
            seconds: 59,
            limits: vec![limit("quiet", "enforce", vec![])],
            upstreams: vec![],
        };
        assert_eq!(format(&list, None), "no requests of limits in the last 59s");
    }
}
