//! The quotas that limits in the configuration file have.

use tidegate::config;
use tidegate::limit::{Align, Calendar, CalendarUnit, PolicyId, Quota, Rate};
use tidegate::time::Micros;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn rate(units: u64, period: u64) -> Rate {
    Rate::new(units, Micros(period)).unwrap()
}

/// The quotas of a limit with these lines and of its variants, and the number of warnings.
fn read(limit: &str) -> (Vec<Quota>, usize) {
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndefault_limits = [\"one\"]\n[limits.one]\n{limit}\n\
         [[routes]]\npath = \"/*\"\nrespond = {{}}\n"
    );
    let loaded = config::parse(&text, "tidegate.toml", &|_| None).unwrap_or_else(|said| panic!("{said}"));
    let quotas = loaded.config.snapshot.gate.limits.policies.iter().map(|policy| policy.quota.clone());
    (quotas.collect(), loaded.warnings.len())
}

/// The quota of a limit with these lines, which must cause no warning.
fn quota(limit: &str) -> Quota {
    let (quotas, warnings) = read(limit);
    assert_eq!((quotas.len(), warnings), (1, 0), "{limit}");
    quotas[0].clone()
}

fn window(rate: Rate, align: Align) -> Quota {
    Quota::fixed_window(rate, align).unwrap()
}

fn calendar(unit: CalendarUnit, zone: &str) -> Align {
    Align::Calendar(Calendar::new(unit, zone).unwrap())
}

#[test]
fn every_algorithm_reads_its_quota() {
    for (limit, wanted) in [
        ("rate = \"5/s\"", Quota::token_bucket(rate(5, SECOND), 5)),
        ("rate = \"5/s\"\nburst = 9", Quota::token_bucket(rate(5, SECOND), 9)),
        ("rate = \"5/s\"\nrefill = \"interval\"", Quota::interval_bucket(rate(5, SECOND), 5)),
        ("algorithm = \"gcra\"\nrate = \"5/s\"", Quota::gcra(rate(5, SECOND), 0)),
        ("algorithm = \"gcra\"\nrate = \"5/s\"\nburst = 2", Quota::gcra(rate(5, SECOND), 2)),
        ("algorithm = \"sliding_log\"\nrate = \"5/s\"", Quota::sliding_log(&[rate(5, SECOND)])),
        (
            "algorithm = \"sliding_log\"\nrate = [\"5/s\", \"9/day\"]",
            Quota::sliding_log(&[rate(5, SECOND), rate(9, DAY)]),
        ),
        ("algorithm = \"sliding_window\"\nrate = \"5/s\"", Quota::sliding_window(rate(5, SECOND), 1)),
        (
            "algorithm = \"sliding_window\"\nrate = \"5/s\"\nbuckets = 10",
            Quota::sliding_window(rate(5, SECOND), 10),
        ),
        ("algorithm = \"leaky_bucket\"\nrate = \"5/s\"", Quota::leaky_bucket(rate(5, SECOND), 0)),
        ("algorithm = \"leaky_bucket\"\nrate = \"5/s\"\nqueue = 4", Quota::leaky_bucket(rate(5, SECOND), 4)),
        ("algorithm = \"concurrency\"\nmax_in_flight = 7", Quota::concurrency(7, Micros(30 * SECOND))),
        (
            "algorithm = \"concurrency\"\nmax_in_flight = 7\nlease = \"4s\"",
            Quota::concurrency(7, Micros(4 * SECOND)),
        ),
    ] {
        assert_eq!(quota(limit), wanted.unwrap(), "{limit}");
    }
}

#[test]
fn windows_of_a_single_unit_follow_the_calendar() {
    use CalendarUnit::{Day, Month, Week, Year};
    let of = |lines: &str| quota(&format!("algorithm = \"fixed_window\"\n{lines}"));
    let berlin = "timezone = \"Europe/Berlin\"";
    for (lines, period, align) in [
        ("rate = \"5/day\"".to_owned(), DAY, calendar(Day, "UTC")),
        (format!("rate = \"5/d\"\n{berlin}"), DAY, calendar(Day, "Europe/Berlin")),
        (format!("rate = \"5/week\"\n{berlin}"), 7 * DAY, calendar(Week, "Europe/Berlin")),
        (format!("rate = \"5/Month\"\n{berlin}"), 30 * DAY, calendar(Month, "Europe/Berlin")),
        (format!("rate = \"5/year\"\n{berlin}"), 365 * DAY, calendar(Year, "Europe/Berlin")),
        ("rate = \"5/1 day\"".to_owned(), DAY, Align::Clock),
        ("rate = \"5/hour\"".to_owned(), 3_600 * SECOND, Align::Clock),
        ("rate = \"5/day\"\nalign = \"first_request\"".to_owned(), DAY, Align::FirstRequest),
    ] {
        assert_eq!(of(&lines), window(rate(5, period), align), "{lines}");
    }
}

#[test]
fn other_months_have_30_days_with_a_warning() {
    for (limit, wanted) in [
        ("rate = \"5/month\"", Quota::token_bucket(rate(5, 30 * DAY), 5).unwrap()),
        ("rate = \"5/2 years\"", Quota::token_bucket(rate(5, 730 * DAY), 5).unwrap()),
        (
            "algorithm = \"fixed_window\"\nrate = \"5/month\"\nalign = \"first_request\"",
            window(rate(5, 30 * DAY), Align::FirstRequest),
        ),
        ("algorithm = \"fixed_window\"\nrate = \"5/2 months\"", window(rate(5, 60 * DAY), Align::Clock)),
    ] {
        assert_eq!(read(limit), (vec![wanted], 1), "{limit}");
    }
}

#[test]
fn tiers_and_overrides_inherit_from_the_limit() {
    let (quotas, _) = read(
        "algorithm = \"fixed_window\"\nrate = \"5/day\"\ntimezone = \"Asia/Tokyo\"\n\
         tiers = { by = \"method\", PUT = { rate = \"6/week\" }, GET = { timezone = \"UTC\" } }\n\
         overrides = { \"192.0.2.7\" = { align = \"first_request\" } }",
    );
    assert_eq!(
        quotas,
        [
            window(rate(5, DAY), calendar(CalendarUnit::Day, "Asia/Tokyo")),
            window(rate(6, 7 * DAY), calendar(CalendarUnit::Week, "Asia/Tokyo")),
            window(rate(5, DAY), calendar(CalendarUnit::Day, "UTC")),
            window(rate(5, DAY), Align::FirstRequest),
        ]
    );
    let (quotas, _) = read(
        "algorithm = \"leaky_bucket\"\nrate = \"5/s\"\nqueue = 8\n\
         tiers = { by = \"method\", GET = { rate = \"6/s\" }, PUT = { queue = 3 }, POST = { rate = \"7/s\", queue = 2 } }",
    );
    let queue = |units, queue| Quota::leaky_bucket(rate(units, SECOND), queue).unwrap();
    assert_eq!(quotas, [queue(5, 8), queue(6, 0), queue(5, 3), queue(7, 2)]);
    let (quotas, _) = read(
        "algorithm = \"concurrency\"\nmax_in_flight = 5\nlease = \"4s\"\n\
         overrides = { \"192.0.2.7\" = { max_in_flight = 6 } }",
    );
    let slots = |most| Quota::concurrency(most, Micros(4 * SECOND)).unwrap();
    assert_eq!(quotas, [slots(5), slots(6)]);
}

#[test]
fn the_cost_of_a_header_is_at_most_the_capacity() {
    use tidegate::gate::Cost;
    let max = |lines: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[limits.one]\ncost = \"header:x-cost\"\n{lines}\n\
             [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{}}\n"
        );
        let loaded = config::parse(&text, "tidegate.toml", &|_| None).unwrap_or_else(|said| panic!("{said}"));
        match &loaded.config.snapshot.gate.limit_rules[PolicyId(0)].cost {
            Cost::Header { max, .. } => *max,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(max("rate = \"500/s\""), 100);
    assert_eq!(max("rate = \"500/s\"\ncost_max = 500"), 500);
    assert_eq!(max("rate = \"50/s\""), 50);
    assert_eq!(max("rate = \"500/s\"\ntiers = { by = \"method\", GET = { rate = \"20/s\" } }"), 20);
}
