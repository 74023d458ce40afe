//! `overload` of an upstream: the limit of its requests in flight, and the order of those that wait.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use super::ReadKey;
use crate::config::item::Item;
use crate::config::keys::keys;
use crate::config::keys::kinds::words;
use crate::config::limits::part;
use crate::config::shares::check_shares;
use crate::config::table::Table;
use crate::gate::{KeyPart, KeySpec, OnMissing};
use crate::overload::{Class, CountUntil, LimitSpec, Mode, OverloadSpec};
use crate::time::Micros;
use crate::upstream::UpstreamSpec;

/// The defaults of keys of an upstream where `overload` refuses requests.
const MAX_PENDING: usize = 256;
const PENDING_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_TUNNELS_PER_CLIENT: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// An example of the table.
const EXAMPLE: &str = "write overload = true, or a table such as overload = { min_limit = 16 }";

words!(ModeWords: Mode = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]);
words!(CountWords: CountUntil = [("until_head", CountUntil::Head), ("until_end", CountUntil::End)]);

keys! {
    /// The keys of `overload`.
    OverloadKeys {
        /// `"shadow"` counts the requests above the limit, and refuses none
        mode: Choice<ModeWords> = "enforce";
        /// A fixed limit of requests in flight, for servers that several proxies share
        limit: Integer<1, 60_000, u32>, or "it is learned";
        /// The least limit that can be learned
        min_limit: Integer<1, 60_000, u32> = 8;
        /// The greatest limit that can be learned
        max_limit: Integer<1, 60_000, u32> = 1000;
        /// The [key part](key-parts.md) by whose values the waiting requests of a class take turns. Clients must not be able to
        /// invent values of it
        fair_by: Text = "client_ip";
        /// The shares of the limit that only requests of a class may use, together at most 0.9
        reserved_share: KeyTable<ReservedKeys> = { critical = 0.2 };
        /// The share of the turns that lower classes have while requests of a higher one wait, at most 0.5
        floor: Decimal<0, 1> = 0.05;
        /// Until when a request counts: `"until_head"` of the response, or `"until_end"`, for servers that still work on a response
        /// whose head they have sent
        count: Choice<CountWords> = "until_head";
    }
    mistaken IN_OVERLOAD
}

keys! {
    /// The keys of `reserved_share`.
    ReservedKeys {
        /// The share of `critical`
        critical: Decimal<0, 1> = 0;
        /// The share of `high`
        high: Decimal<0, 1> = 0;
        /// The share of `normal`
        normal: Decimal<0, 1> = 0;
        /// The share of `low`
        low: Decimal<0, 1> = 0;
    }
}

/// `overload` of an upstream, as the file has it.
pub(super) struct ReadOverload {
    spec: OverloadSpec,
    /// The span of its limit, or of the greatest one that can be learned, if the file has one.
    pub limit: Option<Range<usize>>,
    /// The key by whose values waiting requests take turns.
    pub fair_by: ReadKey,
}

/// The keys of an upstream that have other defaults where `overload` refuses requests, if the file does not have them.
pub(super) struct Missing {
    pub max_pending: bool,
    pub pending_timeout: bool,
    pub max_tunnels_per_client: bool,
}

impl ReadOverload {
    /// Adds it to the settings of its upstream.
    pub fn apply(&self, upstream: &mut UpstreamSpec, missing: &Missing) {
        // In shadow mode the upstream serves as it would without `overload`.
        let is_enforced = self.spec.mode == Mode::Enforce;
        if missing.max_pending && is_enforced {
            upstream.max_pending = MAX_PENDING;
        }
        if missing.pending_timeout && is_enforced {
            upstream.pending_timeout = PENDING_TIMEOUT;
        }
        if missing.max_tunnels_per_client && is_enforced {
            upstream.max_tunnels_per_client = Some(MAX_TUNNELS_PER_CLIENT);
        }
        upstream.overload = Some(OverloadSpec {
            max_pending: upstream.max_pending,
            pending_timeout: Micros::from(upstream.pending_timeout),
            servers: u32::try_from(upstream.servers.len()).unwrap_or(u32::MAX),
            ..self.spec.clone()
        });
    }
}

/// Reads `overload`; `Some(None)` for `false`.
#[expect(clippy::option_option, reason = "the outer one is for errors, as in all readers")]
pub(super) fn overload(item: Item<'_>) -> Option<Option<ReadOverload>> {
    let table = if item.is_boolean() {
        if !item.boolean()? {
            return Some(None);
        }
        Table::empty(item.reader)
    } else {
        Table::<OverloadKeys>::of_or(item, "`overload`", EXAMPLE)?
    };
    let read = settings(&table);
    table.close();
    read.map(Some)
}

fn settings(table: &Table<'_, OverloadKeys>) -> Option<ReadOverload> {
    let (mode, count, limit) = (table.mode().read(), table.count().read(), limit(table));
    let fair_by = table.fair_by().with(fair_by);
    let (reserved_share, floor) = (table.reserved_share().with(reserved), table.floor().with(floor));
    let spec = OverloadSpec {
        mode: mode?,
        limit: limit?,
        reserved_share: reserved_share?,
        floor: floor?,
        count: count?,
        ..OverloadSpec::default()
    };
    let limit = table.limit().given().or_else(|| table.max_limit().given()).map(Item::span);
    Some(ReadOverload { spec, limit, fair_by: fair_by? })
}

/// The fixed limit, or the bounds of the one that is learned.
fn limit(table: &Table<'_, OverloadKeys>) -> Option<LimitSpec> {
    let (fixed, min, max) = (table.limit().read(), table.min_limit().read(), table.max_limit().read());
    let bounds = [table.min_limit().given(), table.max_limit().given()];
    let mut given = bounds.into_iter().flatten();
    let (fixed, min, max) = (fixed.ok()?, min?, max?);
    match (fixed, given.next()) {
        (Some(_), Some(bound)) => {
            let problem =
                bound.error(format!("`{}` is for a limit that is learned, and `limit` fixes it", bound.name));
            let span = table.limit().given().map(Item::span).unwrap_or_default();
            bound.reject(problem.related(span, "the fixed limit").help("leave one of them out"))
        }
        (Some(fixed), None) => Some(LimitSpec::Fixed(fixed)),
        (None, Some(bound)) if min > max => {
            let problem = bound.error(format!("`min_limit` is {min}, and `max_limit` is {max}"));
            bound.reject(problem.help("write a `max_limit` that is at least `min_limit`"))
        }
        (None, _) => Some(LimitSpec::Adaptive { min, max }),
    }
}

/// Reads `reserved_share`: the share of each class.
fn reserved(item: Item<'_>) -> Option<[f64; Class::COUNT]> {
    let table = Table::<ReservedKeys>::of_or(item, "`reserved_share`", "such as { critical = 0.2 }")?;
    let shares = [table.critical().read(), table.high().read(), table.normal().read(), table.low().read()];
    table.close();
    let [critical, high, normal, low] = shares;
    let shares = [critical?, high?, normal?, low?];
    check_shares(item, &shares).map(|()| shares)
}

fn floor(item: Item<'_>) -> Option<f64> {
    let share = item.decimal(&(0.0..=1.0))?;
    if share > 0.5 {
        let problem =
            item.error(format!("with a floor of {share} lower classes would be served before higher ones"));
        return item.reject(problem.help("write at most 0.5; the default is 0.05"));
    }
    Some(share)
}

/// Reads the key of fairness, whose part has to be known before the body is read.
fn fair_by(item: Item<'_>) -> Option<ReadKey> {
    let text = item.string()?;
    let part = part(&text, &text.value)?;
    if matches!(part, KeyPart::Body(_) | KeyPart::Descriptor(_)) {
        let what = if matches!(part, KeyPart::Body(_)) { "the body of a request" } else { "descriptors" };
        let problem = text.error(format!("requests don't take turns by {what}"));
        return text.reject(problem.help("such as \"client_ip\", \"consumer\" or \"jwt:sub\""));
    }
    let spec = KeySpec { parts: vec![part], on_missing: OnMissing::ClientIp };
    Some(ReadKey { spec, span: item.span() })
}
