//! What the clients of a history need of limits, and the limits that they fit.

use super::arrival_log::Arrival;
use super::burst::{RATES, RateGrid, least_units_per_minute};
use super::check::least_units;
use super::distribution::Distribution;
use super::history::{History, HistoryPart};
use super::limits::{LimitNumbers, Role, refills_within, with_headroom};
use super::peaks::{DAY, WINDOWS, daily_peak, peaks};
use crate::limit::{Quota, Rate};
use crate::time::Micros;

const MINUTE_MICROS: u64 = 60_000_000;
/// The position of one minute in [`WINDOWS`].
pub(super) const MINUTE: usize = 2;
/// Of all pairs of rate and burst that fit the clients, the one is chosen that admits the fewest units in this time.
const BURST_TIME: Micros = Micros(10_000_000);

/// What the clients of a part of a history need.
#[derive(Clone, Debug)]
pub(super) struct Needs {
    pub part: HistoryPart,
    pub clients: u64,
    /// The most units in each of [`WINDOWS`].
    pub peaks: [Distribution; WINDOWS.len()],
    /// The least burst for each rate of the grid.
    pub bursts: [Distribution; RATES],
    /// The least N for a bucket of N a minute.
    minute: Distribution,
    /// The most units in a day of UTC.
    day: Distribution,
    /// The least units of the rate of the present limit.
    present: Distribution,
}

/// What one client needs.
#[derive(Clone, Debug)]
pub(super) struct ClientNeeds {
    requests: u64,
    peaks: [u64; WINDOWS.len()],
    bursts: [u64; RATES],
    minute: u64,
    day: u64,
    present: Option<u64>,
}

/// How the needs of clients are measured: for new limits, and for the present one if there is one.
#[derive(Debug, Default)]
pub(super) struct Measure<'q> {
    pub grid: RateGrid,
    pub present: Option<&'q Quota>,
}

impl Measure<'_> {
    /// What the clients of this part need.
    pub fn part(&self, history: &History, part: HistoryPart) -> Needs {
        let mut needs = Needs {
            part,
            clients: 0,
            peaks: Default::default(),
            bursts: std::array::from_fn(|_| Distribution::default()),
            minute: Distribution::default(),
            day: Distribution::default(),
            present: Distribution::default(),
        };
        history.visit(part, |key| {
            let client = self.client(key.arrivals);
            needs.clients += 1;
            needs.change(&client, Distribution::add);
        });
        needs
    }

    /// What the client with these arrivals needs.
    pub fn client(&self, arrivals: &[Arrival]) -> ClientNeeds {
        let peaks = peaks(arrivals);
        ClientNeeds {
            requests: arrivals.len() as u64,
            peaks,
            bursts: self.grid.least_bursts(arrivals),
            minute: least_units_per_minute(arrivals, peaks[MINUTE]),
            day: daily_peak(arrivals),
            present: self.present.map(|quota| least_units(arrivals, quota)),
        }
    }

    /// The limits that these clients fit: with `headroom` so many times that and rounded up to round numbers; without, exactly
    /// that. A limit whose units come back in a longer time than the part is left out, since the part does not show what
    /// it does.
    pub fn limits(&self, needs: &Needs, headroom: Option<f64>) -> Vec<LimitNumbers> {
        let enlarge = |least: u64| headroom.map_or(least, |factor| with_headroom(least, factor)).max(1);
        let length = needs.part.length();
        let limits = match self.present {
            Some(present) => {
                let least = needs.present.largest();
                vec![LimitNumbers::present(present, enlarge(least), least)]
            }
            None => vec![
                self.burst(needs, &enlarge),
                windowed(Role::Minute, needs.minute.largest(), &enlarge),
                windowed(Role::Day, needs.day.largest(), &enlarge),
            ],
        };
        without_redundant(limits.into_iter().flatten().filter(|limit| limit.refills_within(length)))
    }

    /// The units by which clients are compared: the least of the present limit's rate that deny nothing, or without one the least N
    /// for a bucket of N a minute.
    pub fn units(&self, needs: &Needs) -> u64 {
        if self.present.is_some() { needs.present.largest() } else { needs.minute.largest() }
    }

    /// The rate with these units; none if a limit can't have so many.
    pub fn rate_text(&self, units: u64) -> Option<String> {
        match self.present {
            Some(present) => Some(LimitNumbers::present(present, units.max(1), units)?.rate_text()),
            None => Some(format!("{units}/minute")),
        }
    }

    /// The shortest part of a log from which a limit can be suggested for these clients: the time in which the units of the present
    /// limit come back, or without one those of a limit by the minute. None if a limit can't have as many units as they need.
    pub fn shortest_part(&self, needs: &Needs, headroom: f64) -> Option<Micros> {
        let Some(present) = self.present else { return Some(Micros(MINUTE_MICROS)) };
        let least = needs.present.largest();
        Some(LimitNumbers::present(present, with_headroom(least, headroom).max(1), least)?.refill_time())
    }

    /// The pair of rate and burst that admits the fewest units in [`BURST_TIME`].
    fn burst(&self, needs: &Needs, enlarge: &impl Fn(u64) -> u64) -> Option<LimitNumbers> {
        let in_burst_time = |rate: Rate, burst: u64| {
            let units = u128::from(burst) * u128::from(rate.period().0)
                + u128::from(rate.units()) * u128::from(BURST_TIME.0);
            // Products with the period of each rate are compared in the same unit: units in a minute.
            units * u128::from(MINUTE_MICROS / rate.period().0)
        };
        let pairs = self.grid.rates.into_iter().zip(needs.bursts.iter().map(Distribution::largest));
        let known = pairs.filter(|(rate, burst)| refills_within(*rate, enlarge(*burst), needs.part.length()));
        let (rate, least) = known.min_by_key(|(rate, burst)| in_burst_time(*rate, *burst))?;
        LimitNumbers::new(Role::Burst, rate, enlarge(least), least)
    }
}

impl Needs {
    /// The needs of all but these clients.
    pub fn without<'c>(&self, clients: impl IntoIterator<Item = &'c ClientNeeds>) -> Self {
        let mut needs = self.clone();
        for client in clients {
            needs.change(client, Distribution::remove);
        }
        needs
    }

    /// Whether the present limit denies requests of a client with any units of its rate.
    pub fn fits_no_units(&self) -> bool {
        self.present.largest() == u64::MAX
    }

    fn change(&mut self, client: &ClientNeeds, change: fn(&mut Distribution, u64, u64)) {
        let requests = client.requests;
        let of_windows = self.peaks.iter_mut().zip(client.peaks);
        for (distribution, value) in of_windows.chain(self.bursts.iter_mut().zip(client.bursts)) {
            change(distribution, value, requests);
        }
        change(&mut self.minute, client.minute, requests);
        change(&mut self.day, client.day, requests);
        if let Some(units) = client.present {
            change(&mut self.present, units, requests);
        }
    }
}

/// The limit of N a minute or day that has room for `least` units.
fn windowed(role: Role, least: u64, enlarge: &impl Fn(u64) -> u64) -> Option<LimitNumbers> {
    let period = if role == Role::Day { DAY } else { Micros(MINUTE_MICROS) };
    let units = enlarge(least);
    LimitNumbers::new(role, Rate::new(units, period).ok()?, units, least)
}

/// Leaves out limits that never deny what those before them admit.
fn without_redundant(limits: impl Iterator<Item = LimitNumbers>) -> Vec<LimitNumbers> {
    let mut kept: Vec<LimitNumbers> = Vec::new();
    for limit in limits {
        if !kept.iter().any(|other| other.implies(&limit)) {
            kept.push(limit);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Key;
    use crate::time::Timestamp;

    /// Ten clients that send `burst` requests at once, each `pause` seconds, for two days, and one that sends 5 a second.
    fn history(burst: u64, pause: u64) -> History {
        let mut history = History::default();
        for second in 0..2 * 86_400 {
            let mut record = |client: u8, count: u64| {
                for _ in 0..count {
                    let arrival = Arrival { at: Timestamp(second * 1_000_000), cost: 1 };
                    history.record(Key([client; 16]), arrival, usize::MAX, || None);
                }
            };
            if second % pause == 0 {
                (0..10).for_each(|client| record(client, burst));
            }
            record(10, if second < 600 { 5 } else { 0 });
        }
        history
    }

    fn numbers(limits: &[LimitNumbers]) -> Vec<(Role, String, u64)> {
        limits.iter().map(|limit| (limit.role, limit.rate_text(), limit.burst)).collect()
    }

    #[test]
    fn limits_fit_all_but_the_clients_that_are_left_out() {
        let history = history(20, 600);
        let measure = Measure::default();
        let all = measure.part(&history, history.span().unwrap());
        assert_eq!(all.clients, 11);
        let mut clients = Vec::new();
        history.visit(all.part, |key| clients.push(measure.client(key.arrivals)));
        let others = all.without([clients.iter().max_by_key(|client| client.minute).unwrap()]);
        let exact = numbers(&measure.limits(&others, None));
        // Twenty in ten minutes: 2 a minute suffice with a burst of 20. The bucket of 20 a minute adds nothing to that.
        let expected = [(Role::Burst, "2/minute".to_owned(), 20), (Role::Day, "2880/day".to_owned(), 2_880)];
        assert_eq!(exact, expected);
        let rounded = numbers(&measure.limits(&others, Some(1.2)));
        // With a burst of 25 they admit at most 2,905 a day, fewer than the rounded limit by the day.
        assert_eq!(rounded, [(Role::Burst, "2/minute".to_owned(), 25)]);
        let all = measure.limits(&all, None);
        assert_eq!((all[0].rate_text(), all[0].burst), ("5/s".to_owned(), 20));
    }

    #[test]
    fn no_limit_is_slower_than_the_time_that_was_measured() {
        let history = history(20, 600);
        let from = history.span().unwrap().from;
        let measure = Measure::default();
        for seconds in [1, 30, 90, 3_600] {
            let length = Micros(seconds * 1_000_000);
            let needs = measure.part(&history, HistoryPart { from, until: from.after(length) });
            let limits = measure.limits(&needs, Some(1.2));
            assert!(limits.iter().all(|limit| limit.refills_within(length)), "{seconds}: {limits:?}");
            assert!(limits.iter().all(|limit| limit.role != Role::Day), "{seconds}");
        }
    }

    #[test]
    fn limits_that_others_imply_are_left_out() {
        let limit = |role, units, period, burst| {
            LimitNumbers::new(role, Rate::new(units, Micros(period)).unwrap(), burst, 1).unwrap()
        };
        let burst = limit(Role::Burst, 1, 1_000_000, 40);
        let minute = |units| limit(Role::Minute, units, MINUTE_MICROS, units);
        let day = |units| limit(Role::Day, units, DAY.0, units);
        for (other, kept) in [(minute(59), 2), (minute(60), 1), (day(86_439), 2), (day(86_440), 1)] {
            let name = format!("{other:?}");
            assert_eq!(without_redundant([burst.clone(), other].into_iter()).len(), kept, "{name}");
        }
    }
}
