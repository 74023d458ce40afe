//! How a limit acts: when it charges, whom it believes, whether it refuses, and whom it bans.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::config::reader::Item;
use crate::config::report::Problem;
use crate::config::table::Table;
use crate::gate::Trust;
use crate::limit::{Algorithm, Ban};
use crate::limiter::OnStoreFailure;
use crate::time::Micros;

const STATUS: RangeInclusive<u64> = 101..=599;
const BAN_AFTER: RangeInclusive<u64> = 1..=1_000_000;
const BAN_WITHIN: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(30 * 24);
const BAN_FOR: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(365 * 24);

/// Reads what becomes of requests while the store is away.
pub(super) fn on_store_failure(item: Option<Item<'_>>) -> Option<OnStoreFailure> {
    use OnStoreFailure::{Allow, Deny, Local};
    let choices = [("local", Local), ("allow", Allow), ("deny", Deny)];
    item.map_or(Some(OnStoreFailure::default()), |item| item.choice(&choices, &[]))
}

/// Reads whether the limit only watches.
pub(super) fn is_shadow(item: Option<Item<'_>>) -> Option<bool> {
    item.map_or(Some(false), |item| item.choice(&[("enforce", false), ("shadow", true)], &[]))
}

/// Reads whose headers count. Everybody's is odd: a client should not set its own price.
pub(super) fn trust(item: Option<Item<'_>>) -> Option<Trust> {
    let Some(item) = item else { return Some(Trust::default()) };
    let trust = item.choice(&[("proxies", Trust::Proxies), ("any", Trust::Any)], &[])?;
    if trust == Trust::Any {
        let title = "any client can set its own cost and choose its own tier";
        let help = "believe only your own proxies: name them in [client_ip] `trusted_proxies`, and leave `trust` out";
        item.reader.note(Problem::warning(item.span(), title).help(help));
    }
    Some(trust)
}

/// Reads the final statuses of the requests that are charged.
pub(super) fn charge_on(item: Option<Item<'_>>, algorithm: Option<Algorithm>) -> Option<Arc<[u16]>> {
    let Some(item) = item else { return Some(Arc::default()) };
    let why = match algorithm {
        Some(Algorithm::Concurrency) => "a slot is given back in any case, when the response has ended",
        Some(Algorithm::LeakyBucket) => {
            "a place in the queue can't be given back: requests behind it wait already"
        }
        _ => return statuses(item),
    };
    let problem = item.error(format!("`charge_on` does not go with this algorithm: {why}"));
    item.refuse(problem.help("leave it out, or use another algorithm, such as \"token_bucket\""))
}

fn statuses(item: Item<'_>) -> Option<Arc<[u16]>> {
    let items = item.list("put the statuses in brackets: [401, 403]")?;
    if items.is_empty() {
        let problem = item.error("no status is named, so no request would ever be charged");
        return item.refuse(problem.help("leave `charge_on` out to charge each request when it arrives"));
    }
    let statuses: Vec<Option<u16>> = items.into_iter().map(final_status).collect();
    statuses.into_iter().collect()
}

/// A status that can be the final one of a request (RFC 9110 §15.2): of the interim ones only 101 can.
fn final_status(item: Item<'_>) -> Option<u16> {
    let status = u16::try_from(item.integer(&STATUS)?).ok()?;
    if status < 200 && status != StatusCode::SWITCHING_PROTOCOLS.as_u16() {
        let problem =
            item.error(format!("{status} is never the final status of a request: it is an interim response"));
        return item.refuse(problem.help("name final statuses, such as 401, or 101 for WebSockets"));
    }
    Some(status)
}

/// Reads when a key is banned; a limit that only watches bans nobody.
#[allow(clippy::option_option)]
pub(super) fn ban(item: Option<Item<'_>>, is_shadow: bool) -> Option<Option<Ban>> {
    let Some(item) = item else { return Some(None) };
    let mut table = item.table("`ban`")?;
    let after = table.required("after", "after = 20").and_then(|item| item.integer(&BAN_AFTER));
    let within = table.required("within", "within = \"1m\"").and_then(|item| item.duration(&BAN_WITHIN));
    let length = table.required("for", "for = \"10m\"").and_then(|item| item.duration(&BAN_FOR));
    table.close();
    let ban = Ban { after: after?, within: Micros::from(within?), length: Micros::from(length?) };
    if is_shadow {
        ignored(item, "bans");
        return Some(None);
    }
    Some(Some(ban))
}

/// Warns of what a limit that only watches does not do.
pub(super) fn ignored(item: Item<'_>, what: &str) {
    let problem = Problem::warning(item.span(), format!("a shadow limit {what} nobody"));
    item.reader.note(problem.help("leave it out until the limit is to be enforced"));
}

/// Warns where headers decide, and nobody is there whose headers count.
pub(super) fn nobody_believed(table: &Table<'_>, key: &str, what: &str) {
    let place = table.key_span(key).unwrap_or_else(|| table.span());
    let title = format!("`{what}` never counts: only trusted proxies are believed, and there are none");
    let help = "name the proxies that set it in [client_ip] `trusted_proxies`";
    table.reader.note(Problem::warning(place, title).help(help));
}
