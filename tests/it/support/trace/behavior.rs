//! When clients of each kind of a trace make requests.

use fastrand::Rng;

use tidegate::time::Timestamp;

use super::ClientKind;

const SECOND: f64 = 1_000_000.0;
const HOUR: f64 = 3_600.0 * SECOND;
const DAY: f64 = 24.0 * HOUR;
/// Pages of a site.
const PAGES: u16 = 500;

/// A request of one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub at: Timestamp,
    pub page: u16,
    pub status: u16,
}

/// Makes the requests of one client.
#[derive(Debug)]
pub(super) struct Behavior {
    random: Rng,
    start: Timestamp,
    days: u64,
}

impl Behavior {
    pub fn new(random: Rng, start: Timestamp, days: u64) -> Self {
        Self { random, start, days }
    }

    /// The requests of a client of this kind, in no order.
    pub fn requests(&mut self, kind: ClientKind) -> Vec<Hit> {
        match kind {
            ClientKind::Browser => self.person(0.5, (0.0, 24.0)),
            ClientKind::Poller => self.poller(),
            ClientKind::Office => self.office(),
            ClientKind::SharedAddress => (0..30).flat_map(|_| self.person(1.5, (7.0, 19.0))).collect(),
            ClientKind::Crawler => self.crawler(),
            ClientKind::RetryStorm => self.retry_storm(),
        }
    }

    /// Sessions at random times within these hours of the day, so many a day on average.
    fn person(&mut self, sessions_a_day: f64, hours: (f64, f64)) -> Vec<Hit> {
        let mut hits = Vec::new();
        for day in self.each_day() {
            let mut hour = hours.0 + self.wait((hours.1 - hours.0) / sessions_a_day);
            while hour < hours.1 {
                hits.extend(self.session(day + hour * HOUR));
                hour += self.wait((hours.1 - hours.0) / sessions_a_day);
            }
        }
        hits
    }

    /// One to ten pages, each with up to 20 files within two seconds, with half a minute between pages.
    fn session(&mut self, start: f64) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut at = start;
        for _ in 0..self.random.u32(1..=10) {
            hits.push(self.hit(at));
            for _ in 0..self.random.u32(3..=20) {
                let after = self.random.f64() * 2.0 * SECOND;
                hits.push(self.hit(at + after));
            }
            at += (3.0 + self.wait(30.0)) * SECOND;
        }
        hits
    }

    fn poller(&mut self) -> Vec<Hit> {
        let interval = [60.0, 120.0, 300.0, 600.0][self.random.usize(..4)] * SECOND;
        let offset = self.random.f64() * interval;
        self.series((offset, self.length()), |random| interval + (random.f64() - 0.5) * SECOND)
    }

    /// Forty requests an hour on average from 8 to 17 h, with a pause at noon.
    fn office(&mut self) -> Vec<Hit> {
        let mut hits = Vec::new();
        for day in self.each_day() {
            for (from, to) in [(8.0, 12.0), (13.0, 17.0)] {
                let span = (day + from * HOUR, day + to * HOUR);
                hits.extend(self.series(span, |random| exponential(random) * 90.0 * SECOND));
            }
        }
        hits
    }

    /// Five requests a second for two hours of each day.
    fn crawler(&mut self) -> Vec<Hit> {
        let mut hits = Vec::new();
        for day in self.each_day() {
            let start = day + self.random.f64() * 20.0 * HOUR;
            hits.extend(
                self.series((start, start + 2.0 * HOUR), |random| exponential(random) * SECOND / 5.0),
            );
        }
        hits
    }

    /// A request a minute, and every other day twenty a second for ten minutes, which fail.
    fn retry_storm(&mut self) -> Vec<Hit> {
        let mut hits = self.series((0.0, self.length()), |_| 60.0 * SECOND);
        for day in self.each_day().into_iter().step_by(2) {
            let start = day + self.random.f64() * 23.0 * HOUR;
            let storm =
                self.series((start, start + HOUR / 6.0), |random| exponential(random) * SECOND / 20.0);
            hits.extend(storm.into_iter().map(|hit| Hit { status: 503, ..hit }));
        }
        hits
    }

    /// Requests from the start to the end of `span`, with gaps from `gap`, all in microseconds.
    fn series(&mut self, span: (f64, f64), gap: impl Fn(&mut Rng) -> f64) -> Vec<Hit> {
        let mut hits = Vec::new();
        let mut at = span.0;
        while at < span.1 {
            hits.push(self.hit(at));
            at += gap(&mut self.random).max(1.0);
        }
        hits
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn hit(&mut self, at: f64) -> Hit {
        let status = if self.random.u8(..) < 2 { 404 } else { 200 };
        Hit { at: Timestamp(self.start.0 + at as u64), page: self.random.u16(..PAGES), status }
    }

    /// A random time until the next event, in the unit of `mean`.
    fn wait(&mut self, mean: f64) -> f64 {
        mean * exponential(&mut self.random)
    }

    /// The start of each day, in microseconds since the start of the trace.
    #[allow(clippy::cast_precision_loss)]
    fn each_day(&self) -> Vec<f64> {
        (0..self.days).map(|day| day as f64 * DAY).collect()
    }

    #[allow(clippy::cast_precision_loss)]
    fn length(&self) -> f64 {
        self.days as f64 * DAY
    }
}

/// A random number of the exponential distribution with mean 1.
fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}
