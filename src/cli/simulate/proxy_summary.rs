//! What proxies with grants have done in a simulation, in words.

use std::fmt::Write as _;

use super::proxy_settings::ProxySettings;
use crate::telemetry::{GrantEvent, GrantValues};
use crate::text::plural;
use crate::time::format_duration;

/// The totals of a simulation with proxies.
#[derive(Debug)]
pub(super) struct ProxySummary {
    pub settings: ProxySettings,
    pub arrivals: u64,
    /// Calls to Redis.
    pub calls: u64,
    /// Admitted arrivals.
    pub admitted: u64,
    /// The arrivals that one exact count of all requests would have admitted.
    pub admitted_exactly: u64,
    /// Admitted units beyond a limit.
    pub exceeding: u64,
    /// The units of each limit that has granted some.
    pub limits: Vec<(Box<str>, LimitUnits)>,
}

/// The granted units of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitUnits {
    /// By [`GrantEvent`].
    events: [u64; GrantEvent::COUNT],
    /// Units that are held at the end.
    held: u64,
    /// The most units of one key that were held at the same time.
    pub most_held: u64,
}

impl LimitUnits {
    /// Adds the units of a proxy.
    pub fn add(&mut self, values: &GrantValues) {
        self.held += values.held;
        for (sum, units) in self.events.iter_mut().zip(values.events) {
            *sum += units;
        }
    }

    fn text(&self) -> String {
        let of = |event: GrantEvent| self.events[event as usize];
        format!(
            "{} units granted: {} spent, {} returned, {} lapsed, {} held at the end; at most {} of a key held at once",
            of(GrantEvent::Granted),
            of(GrantEvent::Spent),
            of(GrantEvent::Returned),
            of(GrantEvent::Lapsed),
            self.held,
            self.most_held
        )
    }
}

impl ProxySummary {
    /// Such as `12 calls to Redis, 0.120 for each arrival`.
    pub fn calls(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "three decimals are shown")]
        let each = self.calls as f64 / self.arrivals.max(1) as f64;
        format!("{} call{} to Redis, {each:.3} for each arrival", self.calls, plural(self.calls))
    }

    /// A paragraph; `width` is that of names.
    pub fn paragraph(&self, width: usize) -> String {
        let ProxySettings { count, round_trip } = self.settings;
        let proxies = if count == 1 { "1 proxy".to_owned() } else { format!("{count} proxies") };
        let round_trip = format_duration(round_trip.into());
        let mut text = format!("{proxies}, with a round trip of {round_trip}: {}\n", self.calls());
        for (name, units) in &self.limits {
            let _ = writeln!(text, "  {name:width$}  {}", units.text());
        }
        let (admitted, exactly, exceeding) = (self.admitted, self.admitted_exactly, self.exceeding);
        let _ = writeln!(
            text,
            "  {admitted} admitted, {exactly} if each were counted at once; {exceeding} unit{} beyond a limit",
            plural(exceeding)
        );
        text
    }
}
