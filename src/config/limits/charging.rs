//! How requests are charged: the cost of a request and whether the limit could ever allow it, `trust`, `charge_on` and `ban`.

use std::ops::Range;
use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderName;

use super::limit_keys::{BanKeys, LimitKeys, Mode};
use crate::config::deny_status;
use crate::config::item::Item;
use crate::config::report::Problem;
use crate::config::table::{AnyTable, Reported, Table};
use crate::gate::{Cost, DenyStatus, KeyPart, Trust};
use crate::limit::{Algorithm, Ban, Quota, Share};
use crate::time::Micros;

const FORM: &str = "a cost is a number, or comes from a header: \"header:x-cost\"";

/// A cost as the file has it.
pub(super) struct ReadCost<'a> {
    amount: Amount,
    /// The value of the file that sets the largest cost, if there is one.
    item: Option<Item<'a>>,
}

enum Amount {
    Fixed(u64),
    /// A header, and its highest value that counts.
    Header(HeaderName, u64),
}

/// A quota that a cost has to fit.
pub(super) struct Fit<'q> {
    pub quota: &'q Quota,
    /// The tier or override that has it, with its span; `None` for the limit itself.
    pub variant: Option<(String, Range<usize>)>,
}

/// Reads the cost of a request.
pub(super) fn read_cost<'a>(table: &Table<'a, LimitKeys>) -> Option<ReadCost<'a>> {
    let (item, max_item) = (table.cost().given(), table.cost_max().given());
    let max = table.cost_max().read();
    let Some(header) = item.filter(|item| item.is_string()) else {
        let cost = fixed(table, table.cost().item());
        if let Some(max) = max_item {
            let problem = max.error("`cost_max` bounds the value of a header, and this `cost` is a number");
            max.reject::<()>(problem.help("leave it out, or take the cost from a header: \"header:x-cost\""));
        }
        return Some(ReadCost { amount: Amount::Fixed(cost?), item });
    };
    let name = header_name(header);
    Some(ReadCost { amount: Amount::Header(name?, max?), item: max_item })
}

fn fixed<'a>(table: &Table<'a, LimitKeys>, item: Item<'a>) -> Option<u64> {
    if item.is_integer() {
        return table.cost().first(item);
    }
    item.string_like("a number or the name of a header", FORM).map(|_| 1)
}

fn header_name(item: Item<'_>) -> Option<HeaderName> {
    let text = item.string()?;
    text.parsed("a header", FORM, |text| match KeyPart::parse(text) {
        Some(KeyPart::Header(name)) => Some(name),
        _ => None,
    })
}

impl ReadCost<'_> {
    /// The header that sets it, if one does.
    pub fn header(&self) -> Option<&HeaderName> {
        if let Amount::Header(name, _) = &self.amount { Some(name) } else { None }
    }

    /// The cost, if a request that costs the most could pass with all of these numbers.
    pub fn fitting(self, algorithm: Algorithm, fits: &[Fit<'_>]) -> Option<Cost> {
        let least = fits.iter().map(|fit| fit.quota.limit()).min().unwrap_or(u64::MAX);
        let largest = match &self.amount {
            Amount::Fixed(cost) => *cost,
            Amount::Header(_, max) => *max,
        };
        let Some(item) = self.item.filter(|_| largest > least) else {
            return Some(match self.amount {
                Amount::Fixed(cost) => Cost::Fixed(cost),
                // Only the default can be more than the capacity here.
                Amount::Header(name, max) => Cost::Header { name, max: max.min(least) },
            });
        };
        for fit in fits.iter().filter(|fit| fit.quota.limit() < largest) {
            item.reader.report(too_expensive(item, largest, algorithm, fit));
        }
        None
    }
}

fn too_expensive(item: Item<'_>, cost: u64, algorithm: Algorithm, fit: &Fit<'_>) -> Problem {
    let (limit, key) = (fit.quota.limit(), item.name);
    let more = match algorithm {
        Algorithm::TokenBucket | Algorithm::Gcra => "burst",
        Algorithm::LeakyBucket => "queue",
        Algorithm::Concurrency => "max_in_flight",
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => "rate",
    };
    let whose = fit.variant.as_ref().map_or_else(String::new, |(whose, _)| format!(" of {whose}"));
    let title = if key == "cost" {
        format!("no request{whose} could ever be allowed: it costs {cost}, and the capacity is {limit}")
    } else {
        format!("a request{whose} that costs {cost} could never be allowed: the capacity is {limit}")
    };
    let help = format!("lower `{key}` to {limit} or less, or raise `{more}`");
    match &fit.variant {
        None => item.error(title).help(help),
        Some((_, span)) => Problem::error(span.clone(), title).related(item.span(), "the cost").help(help),
    }
}

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
