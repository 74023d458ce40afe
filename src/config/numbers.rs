//! The numbers of a limit, a tier or an override, and which of them belong to its algorithm.

use std::sync::LazyLock;

use super::item::Item;
use super::keys::kinds::ReadKind;
use super::limits::LimitKeys;
use super::rate::{self, WrittenRate};
use super::report::Problem;
use super::table::{AnyTable, Field, Reported, Table, read_defaults};
use crate::limit::Algorithm::{
    self, Concurrency, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::limit::{Align, Calendar, CalendarUnit};
use crate::suggest::nearest;
use crate::text::plural;
use crate::time::Micros;

/// The algorithms that each key belongs to.
const OWNERS: [(&str, &[Algorithm]); 10] = [
    ("rate", &[TokenBucket, Gcra, FixedWindow, SlidingLog, SlidingWindow, LeakyBucket]),
    ("burst", &[TokenBucket, Gcra]),
    ("refill", &[TokenBucket]),
    ("align", &[FixedWindow]),
    ("timezone", &[FixedWindow]),
    ("buckets", &[SlidingWindow]),
    ("queue", &[LeakyBucket]),
    ("max_in_flight", &[Concurrency]),
    ("lease", &[Concurrency]),
    ("reserved_share", &[Concurrency]),
];

/// The numbers of a limit that has none of these keys.
static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| read_defaults(|table| Defaults::read(&table)));

/// The numbers that have a default.
struct Defaults {
    is_interval: bool,
    by_first_request: bool,
    zone: Box<str>,
    buckets: u64,
    queue: u64,
    lease: Micros,
}

/// Numbers as a table has them.
#[derive(Clone, Default)]
pub(super) struct Numbers<'a> {
    /// Several where they share a log.
    pub rates: Vec<WrittenRate<'a>>,
    pub burst: Option<(u64, Item<'a>)>,
    pub is_interval: Option<bool>,
    pub by_first_request: Option<bool>,
    pub zone: Option<(Box<str>, Item<'a>)>,
    pub buckets: Option<(u64, Item<'a>)>,
    pub queue: Option<(u64, Item<'a>)>,
    pub max_in_flight: Option<u64>,
    pub lease: Option<Micros>,
    /// Whether the table has none of them.
    pub is_empty: bool,
}

impl Defaults {
    fn read(table: &Table<'_, LimitKeys>) -> Option<Self> {
        Some(Self {
            is_interval: table.refill().read()?,
            by_first_request: table.align().read()?,
            zone: table.timezone().with(zone)?,
            buckets: table.buckets().read()?,
            queue: table.queue().read()?,
            lease: table.lease().read()?.into(),
        })
    }
}

impl<'a> Numbers<'a> {
    /// Reads the numbers of a table. If the algorithm is invalid, keys of any algorithm are accepted.
    pub fn read(table: &mut Table<'a, LimitKeys>, algorithm: Option<Algorithm>) -> Option<Self> {
        for (key, owners) in OWNERS {
            if let Some(own) = algorithm
                && !owners.contains(&own)
                && table.exclude(key)
            {
                belongs_elsewhere(table, key, owners, own);
            }
        }
        let table = &*table;
        let rates = table.rate().with(|item| rates(item, algorithm));
        let burst = table.burst().with(|item| Some((burst(table, item, algorithm)?, item)));
        let (is_interval, by_first_request) = (given(&table.refill()), given(&table.align()));
        let zone = table.timezone().optional(|item| Some((zone(item)?, item)));
        let (buckets, queue) = (number(&table.buckets()), number(&table.queue()));
        let (max_in_flight, lease) = (table.max_in_flight().read(), given(&table.lease()));
        Some(Self {
            rates: rates.ok()?.unwrap_or_default(),
            burst: burst.ok()?,
            is_interval: is_interval.ok()?,
            by_first_request: by_first_request.ok()?,
            zone: zone.ok()?,
            buckets: buckets.ok()?,
            queue: queue.ok()?,
            max_in_flight: max_in_flight.ok()?,
            lease: lease.ok()?.map(Micros::from),
            is_empty: OWNERS.iter().all(|(key, _)| table.given(key).is_none()),
        })
    }

    /// Reports a problem if the number that the algorithm requires is missing.
    pub fn require(table: &Table<'a, LimitKeys>, algorithm: Option<Algorithm>) {
        // The message about the other key suggests this one already.
        match algorithm {
            Some(Concurrency) if table.key_span("rate").is_none() => {
                table.max_in_flight().require("max_in_flight = 20");
            }
            Some(own) if own != Concurrency && table.key_span("max_in_flight").is_none() => {
                table.rate().require("rate = \"100/minute\"");
            }
            _ => {}
        }
    }

    /// These numbers, and those of `base` for the missing ones. With a rate of their own, burst and queue are not
    /// taken from `base`.
    pub fn over(self, base: &Self) -> Self {
        let has_rate = !self.rates.is_empty();
        let beside_rate = |own: Option<(u64, Item<'a>)>, base| if has_rate { own } else { own.or(base) };
        Self {
            burst: beside_rate(self.burst, base.burst),
            queue: beside_rate(self.queue, base.queue),
            rates: if has_rate { self.rates } else { base.rates.clone() },
            is_interval: self.is_interval.or(base.is_interval),
            by_first_request: self.by_first_request.or(base.by_first_request),
            zone: self.zone.or_else(|| base.zone.clone()),
            buckets: self.buckets.or(base.buckets),
            max_in_flight: self.max_in_flight.or(base.max_in_flight),
            lease: self.lease.or(base.lease),
            is_empty: self.is_empty,
        }
    }

    pub fn is_interval(&self) -> bool {
        self.is_interval.unwrap_or(DEFAULTS.is_interval)
    }

    pub fn buckets(&self) -> u64 {
        self.buckets.map_or(DEFAULTS.buckets, |(buckets, _)| buckets)
    }

    pub fn queue(&self) -> u64 {
        self.queue.map_or(DEFAULTS.queue, |(queue, _)| queue)
    }

    pub fn lease(&self) -> Micros {
        self.lease.unwrap_or(DEFAULTS.lease)
    }

    /// Where windows start: with the calendar where the period is one of its units, without a number.
    pub fn align(&self) -> Align {
        if self.by_first_request.unwrap_or(DEFAULTS.by_first_request) {
            return Align::FirstRequest;
        }
        let Some(unit) = self.rates.first().and_then(|rate| rate.calendar) else { return Align::Clock };
        let zone = self.zone.as_ref().map_or(&DEFAULTS.zone, |(zone, _)| zone);
        // The zone was valid when it was read.
        Calendar::new(unit, zone).map_or(Align::Clock, Align::Calendar)
    }
}

/// A value that the file has.
fn given<'a, K: ReadKind, P>(field: &Field<'_, 'a, K, P>) -> Result<Option<K::Value<'a>>, Reported> {
    field.optional(K::read)
}

/// A value that the file has, and its place.
fn number<'a, K: ReadKind, P>(
    field: &Field<'_, 'a, K, P>,
) -> Result<Option<(K::Value<'a>, Item<'a>)>, Reported> {
    field.optional(|item| Some((K::read(item)?, item)))
}

fn rates(item: Item<'_>, algorithm: Option<Algorithm>) -> Option<Vec<WrittenRate<'_>>> {
    if !item.is_array() {
        return rate::rate(item).map(|rate| vec![rate]);
    }
    if let Some(own) = algorithm.filter(|own| *own != SlidingLog) {
        let problem = item.error(format!("a {} has one rate, not several", own.name()));
        return item.reject(problem.help(
            "several rates share one log: algorithm = \"sliding_log\"; or name several limits on the route",
        ));
    }
    let items = item.list("")?;
    if items.is_empty() {
        return item.reject(item.error("the list has no rate").help("such as [\"1/s\", \"20/minute\"]"));
    }
    let rates: Vec<Option<WrittenRate<'_>>> = items.into_iter().map(rate::rate).collect();
    let rates: Vec<WrittenRate<'_>> = rates.into_iter().collect::<Option<_>>()?;
    check_rates(&rates).then_some(rates)
}

/// Returns whether no two rates are equal, and warns of rates that can never deny a request.
fn check_rates(rates: &[WrittenRate<'_>]) -> bool {
    let mut is_valid = true;
    for (index, rate) in rates.iter().enumerate() {
        if let Some(twin) = rates[..index].iter().find(|other| other.rate == rate.rate) {
            let problem = rate.text.error("this rate is in the list already");
            rate.text.reject::<()>(problem.related(twin.text.item.span(), "here"));
            is_valid = false;
            continue;
        }
        let is_stricter = |other: &&WrittenRate<'_>| {
            let (own, other) = (rate.rate, other.rate);
            other != own && other.units() <= own.units() && other.period() >= own.period()
        };
        if let Some(stricter) = rates.iter().find(is_stricter) {
            let problem = Problem::warning(rate.text.item.span(), "this rate never denies a request");
            let label = "this rate is stricter in any case";
            rate.text.item.reader.report(problem.related(stricter.text.item.span(), label));
        }
    }
    is_valid
}

fn burst<'a>(table: &Table<'a, LimitKeys>, item: Item<'a>, algorithm: Option<Algorithm>) -> Option<u64> {
    let burst = table.burst().value(item)?;
    if burst == 0 && algorithm == Some(TokenBucket) {
        let problem = item.error("an empty bucket would deny every request");
        return item.reject(problem.help("`burst` is how many units may be spent at once: at least 1"));
    }
    Some(burst)
}

fn belongs_elsewhere(table: &AnyTable<'_>, key: &str, owners: &[Algorithm], own: Algorithm) {
    let span = table.key_span(key).unwrap_or_else(|| table.span());
    if key == "rate" {
        let title = "a concurrency limit has no rate: it bounds how many requests are in flight at once";
        let help = "write `max_in_flight = 20` instead";
        table.reader.report(Problem::error(span, title).help(help));
        return;
    }
    let names: Vec<&str> = owners.iter().map(|owner| owner.name()).collect();
    let (plural, names) = (plural(names.len()), names.join(" and "));
    let title =
        format!("`{key}` belongs to the algorithm{plural} {names}, and this limit is a {}", own.name());
    let help = match (key, own) {
        ("max_in_flight", _) => {
            "add algorithm = \"concurrency\", or write `rate = \"100/minute\"` instead".to_owned()
        }
        ("burst", LeakyBucket) => "in a leaky_bucket, `queue` is how many may wait".to_owned(),
        _ => format!("leave `{key}` out"),
    };
    table.reader.report(Problem::error(span, title).help(help));
}

/// Reads the name of a time zone.
fn zone(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string_like("the name of a time zone", "such as \"Europe/Berlin\" or \"UTC\"")?;
    if let Ok(calendar) = Calendar::new(CalendarUnit::Day, &text.value) {
        return Some(calendar.zone().into());
    }
    let problem = text.error(format!("{} is not the name of a time zone", text.quoted()));
    text.reject(match nearest_zone(&text.value, &Calendar::zones()) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help("write a name of the IANA database, such as \"Europe/Berlin\" or \"UTC\""),
    })
}

/// The zone that was probably meant; often only its city is given.
fn nearest_zone<'z>(text: &str, zones: &'z [String]) -> Option<&'z str> {
    let city = |zone: &'z String| zone.rsplit('/').next().unwrap_or(zone);
    let names = || zones.iter().map(String::as_str);
    nearest(text, names()).or_else(|| {
        let meant = nearest(&text.replace(' ', "_"), zones.iter().map(city))?;
        names().find(|zone| zone.rsplit('/').next() == Some(meant))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_zones_are_suggested() {
        let zones = Calendar::zones();
        for (text, near) in [
            ("Europe/Berln", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("new york", Some("America/New_York")),
            ("", None),
            ("Mars/Olympus Mons", None),
        ] {
            assert_eq!(nearest_zone(text, &zones), near, "{text}");
        }
    }
}
