//! The keys `charge_on`, `trust` and `ban` of a limit.

use std::sync::Arc;

use http::StatusCode;

use super::limit_keys::{BanKeys, LimitKeys};
use crate::config::item::Item;
use crate::config::report::Problem;
use crate::config::table::{AnyTable, Reported, Table};
use crate::gate::Trust;
use crate::limit::{Algorithm, Ban};
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

/// Reads the final statuses of the requests that are charged.
pub(super) fn charge_on(table: &Table<'_, LimitKeys>, algorithm: Option<Algorithm>) -> Option<Arc<[u16]>> {
    let Some(item) = table.charge_on().given() else { return Some(Arc::default()) };
    let why = match algorithm {
        Some(Algorithm::Concurrency) => "a slot is released in any case when the response has ended",
        Some(Algorithm::LeakyBucket) => {
            "a position in the queue can't be given back: requests behind it wait already"
        }
        _ => return statuses(table, item),
    };
    let problem = item.error(format!("`charge_on` does not work with this algorithm: {why}"));
    item.reject(problem.help("leave it out, or use another algorithm, such as \"token_bucket\""))
}

fn statuses<'a>(table: &Table<'a, LimitKeys>, item: Item<'a>) -> Option<Arc<[u16]>> {
    let status = |item: Item<'a>| match status_class(item) {
        Some(statuses) => {
            let title = "`charge_on` has single statuses, not a class of them";
            item.reject(item.error(title).help(format!("name those that count: [{statuses}]")))
        }
        None => final_status(item, table.charge_on().element(item)?),
    };
    let statuses = item.list_of("put the statuses in brackets: [401, 403]", status)?;
    if statuses.is_empty() {
        let problem = item.error("the list is empty, so no request would ever be charged");
        return item.reject(problem.help("leave `charge_on` out to charge each request when it arrives"));
    }
    Some(statuses.into())
}

/// The usual statuses of a class such as `4xx`.
fn status_class(item: Item<'_>) -> Option<&'static str> {
    let is = |class: &str| ["xx", "XX", "**", "*"].iter().any(|rest| item.is_text(&format!("{class}{rest}")));
    let classes = [
        ("2", "200, 201, 204"),
        ("3", "301, 302, 304, 307, 308"),
        ("4", "400, 401, 403, 404, 422, 429"),
        ("5", "500, 502, 503, 504"),
    ];
    classes.into_iter().find(|(class, _)| is(class)).map(|(_, statuses)| statuses)
}

/// A status that can be the final one of a request (RFC 9110 §15.2): of the interim ones only 101 can.
fn final_status(item: Item<'_>, status: u64) -> Option<u16> {
    let status = u16::try_from(status).ok()?;
    if status < 200 && status != StatusCode::SWITCHING_PROTOCOLS.as_u16() {
        let problem =
            item.error(format!("{status} is never the final status of a request: it is an interim response"));
        return item.reject(problem.help("name final statuses, such as 401, or 101 for WebSockets"));
    }
    Some(status)
}

/// Reads `ban`; none for a limit in shadow mode.
pub(super) fn enforced_ban(
    table: &Table<'_, LimitKeys>,
    is_shadow: Option<bool>,
) -> Result<Option<Ban>, Reported> {
    let ban = table.ban().with(ban)?;
    if let Some(item) = table.ban().given().filter(|_| is_shadow == Some(true)) {
        ignored(item, "bans");
    }
    Ok(ban.filter(|_| is_shadow != Some(true)))
}

fn ban(item: Item<'_>) -> Option<Ban> {
    let table = Table::<BanKeys>::of(item, "`ban`")?;
    let (after, within, length) = (table.after().read(), table.within().read(), table.length().read());
    table.close();
    Some(Ban { after: after?, within: Micros::from(within?), length: Micros::from(length?) })
}

/// Warns of a key that a limit in shadow mode ignores.
pub(super) fn ignored(item: Item<'_>, verb: &str) {
    let problem = Problem::warning(item.span(), format!("a limit in shadow mode never {verb}"));
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
