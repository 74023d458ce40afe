//! How requests are charged: `trust`, `charge_on` and `ban`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use http::StatusCode;

use super::limit_keys::{BanKeys, LimitKeys, Mode, Status};
use crate::config::deny_status;
use crate::config::item::Item;
use crate::config::keys::kinds::ReadKind as _;
use crate::config::report::Problem;
use crate::config::table::{AnyTable, Reported, Table};
use crate::gate::{DenyStatus, Trust};
use crate::limit::{Algorithm, Ban, Share};
use crate::time::Micros;

/// Reads `trust`. Warns of `"any"`: a client should not set its own cost.
pub(super) fn trust(table: &Table<'_, LimitKeys>) -> Option<Trust> {
    let trust = table.trust().read()?;
    if let Some(item) = table.trust().given().filter(|_| trust == Trust::Any) {
        let title = "any client can set its own cost and choose its own tier";
        let help =
            "trust only your own proxies: name them in [client_ip] `trusted_proxies`, and leave `trust` out";
        item.reader.report(Problem::warning(item.span(), title).help(help));
    }
    Some(trust)
}

/// The final statuses of a class: of the interim ones only 101 can be final.
const CLASSES: [(&str, RangeInclusive<u16>); 5] =
    [("1", 101..=101), ("2", 200..=299), ("3", 300..=399), ("4", 400..=499), ("5", 500..=599)];
/// The first digits of the classes that are charged by default where the response decides the cost.
const SETTLED: [&str; 3] = ["1", "2", "3"];

/// Reads the final statuses of the requests that are charged, in their order. `settles` says whether the response decides the cost.
pub(super) fn charge_on(
    table: &Table<'_, LimitKeys>,
    algorithm: Option<Algorithm>,
    settles: bool,
) -> Option<Arc<[u16]>> {
    let Some(item) = table.charge_on().given() else {
        let classes = CLASSES.into_iter().filter(|(digit, _)| settles && SETTLED.contains(digit));
        return Some(classes.flat_map(|(_, statuses)| statuses).collect());
    };
    let why = match algorithm {
        Some(Algorithm::Concurrency) => "a slot is released in any case when the response has ended",
        Some(Algorithm::LeakyBucket) => {
            "a position in the queue can't be given back: requests behind it wait already"
        }
        _ => return statuses(item),
    };
    let problem = item.error(format!("`charge_on` does not work with this algorithm: {why}"));
    item.reject(problem.help("leave it out, or use another algorithm, such as \"token_bucket\""))
}

fn statuses(item: Item<'_>) -> Option<Arc<[u16]>> {
    let status = |item: Item<'_>| match item.text().and_then(class) {
        Some(statuses) => Some(statuses),
        None => final_status(item).map(|status| status..=status),
    };
    let mut statuses: Vec<u16> =
        item.list_of("put the statuses in brackets: [401, 403]", status)?.into_iter().flatten().collect();
    if statuses.is_empty() {
        let problem = item.error("the list is empty, so no request would ever be charged");
        return item.reject(problem.help("leave `charge_on` out to charge each request when it arrives"));
    }
    statuses.sort_unstable();
    statuses.dedup();
    Some(statuses.into())
}

/// The statuses of a class such as `4xx`.
fn class(text: &str) -> Option<RangeInclusive<u16>> {
    let (digit, _) = text.split_at_checked(1).filter(|(_, rest)| *rest == "xx")?;
    CLASSES.into_iter().find(|(own, _)| *own == digit).map(|(_, statuses)| statuses)
}

/// How to write a text that is no class.
fn class_cure(text: &str) -> Option<String> {
    let digit = text.split_at_checked(1).filter(|(_, rest)| ["XX", "**", "*", "x", ""].contains(rest));
    let class = digit.map(|(digit, _)| format!("{digit}xx")).filter(|text| class(text).is_some());
    let number = || text.parse::<u16>().ok().map(|status| format!("write it without quotes: {status}"));
    class.map(|class| format!("write \"{class}\"")).or_else(number)
}

/// A status that can be the final one of a request (RFC 9110 §15.2): of the interim ones only 101 can.
fn final_status(item: Item<'_>) -> Option<u16> {
    if item.is_string() {
        let text = item.string()?;
        let form = "write statuses and classes of them: [401, \"2xx\"]".to_owned();
        let help = class_cure(&text.value).filter(|_| !text.from_env).unwrap_or(form);
        return text.reject(text.error(format!("{} is not a class of statuses", text.quoted())).help(help));
    }
    let status = Status::read(item)?;
    if status < 200 && status != StatusCode::SWITCHING_PROTOCOLS.as_u16() {
        let problem =
            item.error(format!("{status} is never the final status of a request: it is an interim response"));
        return item.reject(problem.help("name final statuses, such as 401, or 101 for WebSockets"));
    }
    Some(status)
}

/// Reads `ban`; none for a limit that denies nothing.
pub(super) fn enforced_ban(
    table: &Table<'_, LimitKeys>,
    mode: Option<Mode>,
) -> Result<Option<Ban>, Reported> {
    let ban = table.ban().with(ban)?;
    if let Some(item) = table.ban().given().filter(|_| is_passive(mode)) {
        ignored(item, "bans", mode);
    }
    Ok(ban.filter(|_| !is_passive(mode)))
}

fn ban(item: Item<'_>) -> Option<Ban> {
    let table = Table::<BanKeys>::of(item, "`ban`")?;
    let (after, within, length) = (table.after().read(), table.within().read(), table.length().read());
    table.close();
    Some(Ban { after: after?, within: Micros::from(within?), length: Micros::from(length?) })
}

/// Reads `deny_status`, and warns if the limit denies nothing.
pub(super) fn read_deny_status(
    table: &Table<'_, LimitKeys>,
    mode: Option<Mode>,
) -> Result<Option<DenyStatus>, Reported> {
    if let Some(item) = table.deny_status().given().filter(|_| is_passive(mode)) {
        ignored(item, "denies", mode);
    }
    table.deny_status().with(deny_status::read)
}

/// Reads `warn_at`.
pub(super) fn warn_at(item: Item<'_>) -> Option<Share> {
    let share = item.decimal(&(0.0..=1.0))?;
    Share::new(share).or_else(|| {
        let problem = item.error("`warn_at` is a share of the limit, more than 0 and less than 1");
        item.reject(
            problem.help(
                "such as 0.8; to count what a limit would deny without a denial, write mode = \"shadow\"",
            ),
        )
    })
}

/// Whether the limit denies nothing.
pub(super) fn is_passive(mode: Option<Mode>) -> bool {
    matches!(mode, Some(Mode::Shadow | Mode::Mark))
}

/// Warns of a key that a limit ignores which denies nothing.
pub(super) fn ignored(item: Item<'_>, verb: &str, mode: Option<Mode>) {
    let mode = if mode == Some(Mode::Mark) { "mark" } else { "shadow" };
    let problem = Problem::warning(item.span(), format!("a limit in {mode} mode never {verb}"));
    item.reader.report(problem.help("leave it out until the limit is enforced"));
}

/// Warns of a header that never counts because no proxy is trusted.
pub(super) fn never_trusted(table: &AnyTable<'_>, key: &str, source: &str) {
    let span = table.key_span(key).unwrap_or_else(|| table.span());
    let title = format!(
        "`{source}` never counts: it is accepted only from trusted proxies, and `trusted_proxies` is empty"
    );
    let help = "name the proxies that set it in [client_ip] `trusted_proxies`";
    table.reader.report(Problem::warning(span, title).help(help));
}
