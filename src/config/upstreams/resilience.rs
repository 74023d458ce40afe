//! Load balancing, health checks and ejection of an upstream.

use std::ops::Range;

use http::uri::PathAndQuery;

use crate::config::item::Item;
use crate::config::keys::keys;
use crate::config::keys::kinds::{OffWords, Words as _};
use crate::config::limits::part;
use crate::config::report::Problem;
use crate::config::table::{Reported, Table};
use crate::gate::{KeyPart, KeySpec, OnMissing};
use crate::suggest::nearest;
use crate::upstream::{Balance, EjectSpec, HealthSpec};

keys! {
    /// The keys of `health`.
    HealthKeys {
        /// The path of the check, with its query
        path: Text, required "/healthz" => path;
        /// The time between two checks of an address
        interval: Duration<MILLISECOND, DAY> = "5s";
        /// The longest that a check may take
        timeout: Duration<MILLISECOND, DAY> = "1s";
        /// Consecutive successful checks after which an address is healthy
        healthy_after: Integer<1, 1_000, u32> = 2;
        /// Consecutive failed checks after which an address is unhealthy
        unhealthy_after: Integer<1, 1_000, u32> = 3;
    }
    mistaken IN_HEALTH
    reads HealthSpec(table)
}

keys! {
    /// The keys of `eject`.
    EjectKeys {
        /// The number of consecutive failures
        after: Integer<1, 1_000, u32> = 5;
        /// How long the server is ejected
        lasts("for"): Duration<MILLISECOND, DAY> = "30s";
    }
    reads EjectSpec(table)
}

const BALANCES: [(&str, Balance); 3] = [
    ("round_robin", Balance::RoundRobin),
    ("least_requests", Balance::LeastRequests),
    ("power_of_two", Balance::PowerOfTwo),
];

/// A key that chooses servers.
pub(in crate::config) struct ReadKey {
    pub spec: KeySpec,
    /// The span of `balance`.
    pub span: Range<usize>,
}

/// Reads `balance`, with the key of `hash:PART`.
pub(super) fn balance(item: Item<'_>) -> Option<(Balance, Option<ReadKey>)> {
    let text = item.string_like("a string", "put it in quotes")?;
    if let Some((_, balance)) = BALANCES.iter().find(|(word, _)| *word == text.value) {
        return Some((*balance, None));
    }
    if let Some(written) = text.value.strip_prefix("hash:") {
        let part = part(&text, written)?;
        if part == KeyPart::Global {
            let problem = text.error("one server would get every request: `global` is the same for all");
            return text.reject(problem.help("such as \"hash:client_ip\" or \"hash:header:x-user\""));
        }
        if let KeyPart::Body(_) | KeyPart::Descriptor(_) = part {
            let what = if matches!(part, KeyPart::Body(_)) { "the body of a request" } else { "descriptors" };
            let problem = text.error(format!("servers are not chosen by {what}"));
            return text.reject(problem.help("such as \"hash:client_ip\" or \"hash:header:x-user\""));
        }
        let spec = KeySpec { parts: vec![part], on_missing: OnMissing::ClientIp };
        return Some((Balance::Hash, Some(ReadKey { spec, span: item.span() })));
    }
    let all = "\"round_robin\", \"least_requests\", \"power_of_two\" and \"hash:PART\"";
    let problem = text.error(format!("{} is not a value of `balance`", text.quoted()));
    if text.value == "hash" {
        return text
            .reject(problem.help("name the key part to hash: \"hash:client_ip\", \"hash:header:x-user\""));
    }
    text.reject(match nearest(&text.value, BALANCES.iter().map(|(word, _)| *word)) {
        Some(near) => problem.help(format!("did you mean \"{near}\"? The values are {all}")),
        None => problem.help(format!("the values are {all}")),
    })
}

/// Checks `hash_balance_factor`, the value of `item`; `None` for 0.
pub(super) fn hash_balance_factor(
    factor: Option<f64>,
    item: Item<'_>,
    balance: Option<Balance>,
) -> Result<Option<f64>, Reported> {
    let factor = factor.ok_or(Reported)?;
    let problem = if factor == 0.0 {
        return Ok(None);
    } else if factor < 1.0 {
        let problem = item.error("with less than 1 the servers together could not get every request");
        problem.help("write 1.25 for a quarter more than the fair part, or 0 for no bound")
    } else if balance.is_some_and(|balance| balance != Balance::Hash) {
        let problem = item.error("`hash_balance_factor` is only for a hash");
        problem.help("such as balance = \"hash:client_ip\"")
    } else {
        return Ok(Some(factor));
    };
    item.reject::<()>(problem);
    Err(Reported)
}

/// Reads the health checks.
pub(super) fn health(item: Item<'_>) -> Option<HealthSpec> {
    let table = Table::<HealthKeys>::of(item, "`health`")?;
    let (read, timeout) = (HealthKeys::read(&table), table.timeout().given());
    table.close();
    let spec = read?;
    if let Some(item) = timeout.filter(|_| spec.timeout > spec.interval) {
        let title = "`timeout` is longer than `interval`";
        item.reader.report(Problem::warning(item.span(), title).help("a slow check delays the next one"));
    }
    Some(spec)
}

/// Reads a path, with its query.
pub(in crate::config) fn path(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string()?;
    if !text.value.starts_with('/') {
        let problem = text.error(format!("{} is not a path: it has no slash at its start", text.quoted()));
        return text.reject(if text.from_env || text.value.contains("://") {
            problem.help("write only the path, such as \"/healthz\": the servers are named in `servers`")
        } else {
            problem.help(format!("write \"/{}\"", text.value))
        });
    }
    text.parsed("a path", "a path may have a query, but no spaces and no `#`", |path| {
        let is_whole = path.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
        is_whole.then(|| path.into())
    })
}

/// Reads `eject`; `None` for `"off"`.
pub(super) fn eject(item: Item<'_>) -> Result<Option<EjectSpec>, Reported> {
    if item.is_table() {
        return ejection(item).map(Some).ok_or(Reported);
    }
    let off = item.choice_or_table(OffWords::MEANINGS, "eject = { after = 5, for = \"30s\" }");
    off.map(|()| None).ok_or(Reported)
}

fn ejection(item: Item<'_>) -> Option<EjectSpec> {
    let table = Table::<EjectKeys>::of(item, "`eject`")?;
    let read = EjectKeys::read(&table);
    table.close();
    read
}
