//! How an upstream's servers are chosen, checked and spared.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::PathAndQuery;

use crate::config::limits::part;
use crate::config::reader::Item;
use crate::config::report::Problem;
use crate::gate::{KeyPart, KeySpec, OnMissing};
use crate::suggest::nearest;
use crate::upstream::{Balance, EjectSpec, HealthSpec};

const TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);
const IN_A_ROW: RangeInclusive<u64> = 1..=1_000;
const BALANCES: [(&str, Balance); 3] = [
    ("round_robin", Balance::RoundRobin),
    ("least_requests", Balance::LeastRequests),
    ("power_of_two", Balance::PowerOfTwo),
];

/// Reads how a request finds its server, and the key that a hash goes by.
pub(super) fn balance(item: Item<'_>) -> Option<(Balance, Option<KeySpec>)> {
    let text = item.string_like("a string", "put it in quotes")?;
    if let Some((_, balance)) = BALANCES.iter().find(|(word, _)| *word == text.value) {
        return Some((*balance, None));
    }
    if let Some(spelled) = text.value.strip_prefix("hash:") {
        let part = part(&text, spelled)?;
        if part == KeyPart::Global {
            let problem = text.error("one server would get every request: `global` is the same for all");
            return text.refuse(problem.help("such as \"hash:client_ip\" or \"hash:header:x-user\""));
        }
        return Some((Balance::Hash, Some(KeySpec { parts: vec![part], on_missing: OnMissing::ClientIp })));
    }
    let all = "\"round_robin\", \"least_requests\", \"power_of_two\" and \"hash:PART\"";
    let problem = text.error(format!("{} is not a value of `balance`", text.quoted()));
    if text.value == "hash" {
        return text
            .refuse(problem.help("say what goes into the hash: \"hash:client_ip\", \"hash:header:x-user\""));
    }
    text.refuse(match nearest(&text.value, BALANCES.iter().map(|(word, _)| *word)) {
        Some(near) => problem.help(format!("did you mean \"{near}\"? The values are {all}")),
        None => problem.help(format!("the values are {all}")),
    })
}

/// Reads how servers are checked.
pub(super) fn health(item: Item<'_>) -> Option<HealthSpec> {
    let mut table = item.table("`health`")?;
    let path = table.required("path", "path = \"/healthz\"").and_then(path);
    let mut time = |key, default| {
        let item = table.item(key);
        (item.map_or(Some(Duration::from_secs(default)), |item| item.duration(&TIME)), item)
    };
    let ((interval, _), (timeout, timeout_item)) = (time("interval", 5), time("timeout", 1));
    let mut in_a_row = |key, default| table.item(key).map_or(Some(default), times);
    let (healthy_after, unhealthy_after) = (in_a_row("healthy_after", 2), in_a_row("unhealthy_after", 3));
    table.close();
    let (interval, timeout) = (interval?, timeout?);
    if let Some(item) = timeout_item.filter(|_| timeout > interval) {
        let title = "a check may take longer than from one to the next";
        item.reader.note(Problem::warning(item.span(), title).help("the next one waits until then"));
    }
    Some(HealthSpec {
        path: path?,
        interval,
        timeout,
        healthy_after: healthy_after?,
        unhealthy_after: unhealthy_after?,
    })
}

fn path(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string()?;
    if !text.value.starts_with('/') {
        let problem = text.error(format!("{} is not a path: it has no slash at its start", text.quoted()));
        return text.refuse(if text.from_env || text.value.contains("://") {
            problem
                .help("the servers are named in `servers`; here stands what is asked of each: \"/healthz\"")
        } else {
            problem.help(format!("write \"/{}\"", text.value))
        });
    }
    text.parsed("a path", "it may have a query, and no blanks and no `#`", |path| {
        let is_whole = path.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
        is_whole.then(|| path.into())
    })
}

/// Reads when failures put a server out.
#[allow(clippy::option_option)]
pub(super) fn eject(item: Item<'_>) -> Option<Option<EjectSpec>> {
    if item.is_string() {
        let text = item.string()?;
        return if text.value == "off" {
            Some(None)
        } else {
            let problem = text.error(format!("{} is not a value of `eject`", text.quoted()));
            text.refuse(problem.help("write { after = 5, for = \"30s\" }, or \"off\""))
        };
    }
    let mut table = item.table("`eject`")?;
    let default = EjectSpec::default();
    let after = table.item("after").map_or(Some(default.after), times);
    let lasts = table.item("for").map_or(Some(default.lasts), |item| item.duration(&TIME));
    table.close();
    Some(Some(EjectSpec { after: after?, lasts: lasts? }))
}

fn times(item: Item<'_>) -> Option<u32> {
    item.integer(&IN_A_ROW).and_then(|times| u32::try_from(times).ok())
}
