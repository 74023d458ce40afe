//! The numbers of a limit, a tier or an override: which keys its algorithm has, and what they say.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::rate::{self, WrittenRate};
use super::reader::Item;
use super::report::Problem;
use super::table::Table;
use super::zone::zone;
use crate::limit::Algorithm::{
    self, Concurrency, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::limit::{Align, Calendar, MAX_IN_FLIGHT};
use crate::time::Micros;

/// Bursts and queues: beyond it no number is exact anyway.
const UNITS: RangeInclusive<u64> = 0..=1 << 53;
const BUCKETS: RangeInclusive<u64> = 1..=10_000;
const IN_FLIGHT: RangeInclusive<u64> = 1..=MAX_IN_FLIGHT;
/// Leases are looked through once a second, and renewed when a third has passed.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_hours(24);
const DEFAULT_LEASE: Micros = Micros(30_000_000);

/// Keys that have a meaning for some algorithms only.
const OWNERS: [(&str, &[Algorithm]); 9] = [
    ("rate", &[TokenBucket, Gcra, FixedWindow, SlidingLog, SlidingWindow, LeakyBucket]),
    ("burst", &[TokenBucket, Gcra]),
    ("refill", &[TokenBucket]),
    ("align", &[FixedWindow]),
    ("timezone", &[FixedWindow]),
    ("buckets", &[SlidingWindow]),
    ("queue", &[LeakyBucket]),
    ("max_in_flight", &[Concurrency]),
    ("lease", &[Concurrency]),
];

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
    /// Whether there are none at all.
    pub is_empty: bool,
}

impl<'a> Numbers<'a> {
    /// Reads the numbers that a table names. Where the algorithm was not understood, all may belong to it.
    pub fn read(table: &mut Table<'a>, algorithm: Option<Algorithm>) -> Option<Self> {
        let mut items = OWNERS.map(|(key, owners)| match algorithm {
            Some(own) if !owners.contains(&own) => {
                if table.takes_silently(key) {
                    belongs_elsewhere(table, key, owners, own);
                }
                None
            }
            _ => table.item(key),
        });
        let is_empty = items.iter().all(Option::is_none);
        let [rate, burst, refill, align, timezone, buckets, queue, max_in_flight, lease] =
            items.each_mut().map(Option::take);
        let rates = rate.map_or(Some(Vec::new()), |item| rates(item, algorithm));
        let burst = optional(burst, |item| Some((self::burst(item, algorithm)?, item)));
        let is_interval = optional(refill, |item| item.choice(&[("smooth", false), ("interval", true)], &[]));
        let by_first_request =
            optional(align, |item| item.choice(&[("clock", false), ("first_request", true)], &[]));
        let zone = optional(timezone, |item| Some((zone(item)?, item)));
        let buckets = optional(buckets, |item| Some((item.integer(&BUCKETS)?, item)));
        let queue = optional(queue, |item| Some((item.integer(&UNITS)?, item)));
        let max_in_flight = optional(max_in_flight, |item| item.integer(&IN_FLIGHT));
        let lease = optional(lease, |item| item.duration(&LEASE).map(Micros::from));
        Some(Self {
            rates: rates?,
            burst: burst?,
            is_interval: is_interval?,
            by_first_request: by_first_request?,
            zone: zone?,
            buckets: buckets?,
            queue: queue?,
            max_in_flight: max_in_flight?,
            lease: lease?,
            is_empty,
        })
    }

    /// Notes the one number that a limit of this algorithm can't do without, if it is missing.
    pub fn require(table: &mut Table<'a>, algorithm: Option<Algorithm>) {
        let (needed, other, example) = match algorithm {
            Some(Concurrency) => ("max_in_flight", "rate", "max_in_flight = 20"),
            Some(_) => ("rate", "max_in_flight", "rate = \"100/minute\""),
            None => return,
        };
        // Who writes the other has been told already.
        if table.key_span(other).is_none() {
            table.required(needed, example);
        }
    }

    /// These numbers, and those of `base` for what they don't name. A rate of their own does not go with the
    /// burst or the queue of another.
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

    pub fn lease(&self) -> Micros {
        self.lease.unwrap_or(DEFAULT_LEASE)
    }

    /// Where windows begin: with the calendar where the period is one of its units, without a number.
    pub fn align(&self) -> Align {
        if self.by_first_request == Some(true) {
            return Align::FirstRequest;
        }
        let Some(unit) = self.rates.first().and_then(|rate| rate.calendar) else { return Align::Clock };
        let zone = self.zone.as_ref().map_or("UTC", |(zone, _)| zone);
        // The zone was found when it was read.
        Calendar::new(unit, zone).map_or(Align::Clock, Align::Calendar)
    }
}

/// What an item says if it is there; `None` if that is wrong.
#[allow(clippy::option_option)]
fn optional<'a, T>(item: Option<Item<'a>>, read: impl FnOnce(Item<'a>) -> Option<T>) -> Option<Option<T>> {
    item.map_or(Some(None), |item| read(item).map(Some))
}

fn rates(item: Item<'_>, algorithm: Option<Algorithm>) -> Option<Vec<WrittenRate<'_>>> {
    if !item.is_array() {
        return rate::rate(item).map(|rate| vec![rate]);
    }
    if let Some(own) = algorithm.filter(|own| *own != SlidingLog) {
        let problem = item.error(format!("a {} has one rate, not several", own.name()));
        return item.refuse(problem.help(
            "several rates share one log: algorithm = \"sliding_log\"; or name several limits on the route",
        ));
    }
    let items = item.list("")?;
    if items.is_empty() {
        return item.refuse(item.error("there is no rate in it").help("such as [\"1/s\", \"20/minute\"]"));
    }
    let rates: Vec<Option<WrittenRate<'_>>> = items.into_iter().map(rate::rate).collect();
    let rates: Vec<WrittenRate<'_>> = rates.into_iter().collect::<Option<_>>()?;
    check_rates(&rates).then_some(rates)
}

/// Says whether no two rates are the same, and warns of those that can never be the ones that refuse.
fn check_rates(rates: &[WrittenRate<'_>]) -> bool {
    let mut are_right = true;
    for (place, rate) in rates.iter().enumerate() {
        if let Some(twin) = rates[..place].iter().find(|other| other.rate == rate.rate) {
            let problem = rate.text.error("this rate stands in the list already");
            rate.text.refuse::<()>(problem.related(twin.text.item.span(), "here"));
            are_right = false;
            continue;
        }
        let is_stricter = |other: &&WrittenRate<'_>| {
            let (own, other) = (rate.rate, other.rate);
            other != own && other.units() <= own.units() && other.period() >= own.period()
        };
        if let Some(stricter) = rates.iter().find(is_stricter) {
            let problem = Problem::warning(rate.text.item.span(), "this rate never refuses anybody");
            let label = "this one allows no more in no less time";
            rate.text.item.reader.note(problem.related(stricter.text.item.span(), label));
        }
    }
    are_right
}

fn burst(item: Item<'_>, algorithm: Option<Algorithm>) -> Option<u64> {
    let burst = item.integer(&UNITS)?;
    if burst == 0 && algorithm == Some(TokenBucket) {
        let problem = item.error("a bucket that holds nothing would refuse every request");
        return item.refuse(problem.help("`burst` is how many requests may come at once: at least 1"));
    }
    Some(burst)
}

fn belongs_elsewhere(table: &Table<'_>, key: &str, owners: &[Algorithm], own: Algorithm) {
    let place = table.key_span(key).unwrap_or_else(|| table.span());
    if key == "rate" {
        let title = "a concurrency limit has no rate: it bounds how many requests are in flight at once";
        let help = "write `max_in_flight = 20` in its place";
        table.reader.note(Problem::error(place, title).help(help));
        return;
    }
    let names: Vec<&str> = owners.iter().map(|owner| owner.name()).collect();
    let (plural, names) = (if names.len() == 1 { "" } else { "s" }, names.join(" and "));
    let title =
        format!("`{key}` belongs to the algorithm{plural} {names}, and this limit is a {}", own.name());
    let help = match (key, own) {
        ("max_in_flight", _) => {
            "add algorithm = \"concurrency\", or write `rate = \"100/minute\"` in its place".to_owned()
        }
        ("burst", LeakyBucket) => "in a leaky_bucket, `queue` is how many may wait".to_owned(),
        _ => format!("leave `{key}` out"),
    };
    table.reader.note(Problem::error(place, title).help(help));
}
