//! The proxies of a simulation: their settings on the command line, and their totals.

use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, value_parser};

use super::arrivals::SimulatedArrival;
use crate::gate::Gate;
use crate::limit::{Policy, PolicyId, Quota};
use crate::telemetry::{GrantEvent, GrantValues};
use crate::text::plural;
use crate::time::{Micros, format_duration};

/// The most proxies.
const MAX_PROXIES: u16 = 100;
/// The longest round trip: that of the longest `timeout`.
const MAX_ROUND_TRIP: Duration = Duration::from_mins(1);

/// The arguments about proxies.
#[derive(Debug, Args)]
pub(super) struct ProxyArgs {
    /// How many proxies share a limit with `ahead`; 1 by default.
    ///
    /// Each arrival goes to a random one, the same in each run. A proxy decides by the units that it holds, and otherwise
    /// waits for Redis, as the server does. Freed slots that proxies keep for `concurrency` are not simulated.
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=i64::from(MAX_PROXIES)))]
    proxies: Option<u16>,
    /// How long a proxy waits for a reply of Redis if a limit has `ahead`, such as 20ms; 1ms by default.
    #[arg(long, value_name = "TIME", value_parser = round_trip)]
    round_trip: Option<Duration>,
}

/// How many proxies there are, and how far away their Redis is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxySettings {
    /// How many proxies there are. Each arrival goes to a random one.
    pub count: usize,
    /// How long a proxy waits for the reply to a call.
    pub round_trip: Micros,
}

impl ProxyArgs {
    /// The settings.
    pub fn settings(&self) -> ProxySettings {
        let round_trip = self.round_trip.map_or(Micros(1_000), Micros::from);
        ProxySettings { count: self.proxies.unwrap_or(1).into(), round_trip }
    }

    /// Checks that these limits, of each player, and these arrivals can be simulated.
    pub fn check(
        &self,
        gate: &Gate,
        players: &[Vec<PolicyId>],
        arrivals: &[SimulatedArrival],
    ) -> Result<(), String> {
        let policies = &gate.limits.policies;
        let mut with_ahead = players.iter().filter(|limits| have_ahead(policies, limits)).peekable();
        if with_ahead.peek().is_none() {
            let given = [("--proxies", self.proxies.is_some()), ("--round-trip", self.round_trip.is_some())];
            return match given.iter().find(|(_, is_given)| *is_given) {
                None => Ok(()),
                Some((option, _)) => Err(format!(
                    "error: {option} has no effect: none of these limits has `ahead`, so each is exact over all proxies\n\
                     help: leave it out, or add ahead = \"auto\" to a limit; that needs `url` in [store]"
                )),
            };
        }
        for limits in with_ahead {
            let settles = |id: &&PolicyId| policies[**id].settles();
            if arrivals.iter().any(|arrival| arrival.settle.is_some())
                && let Some(id) = limits.iter().find(settles)
            {
                return Err(format!(
                    "error: what responses cost {} can't be played together with a limit that has `ahead`\n\
                     help: leave settle= out of the arrivals, or `ahead` out of the limits",
                    policies[*id].stored
                ));
            }
            let has_slots = |id: &&PolicyId| matches!(policies[**id].quota, Quota::Concurrency(_));
            if let Some(id) = limits.iter().find(has_slots) {
                return Err(format!(
                    "error: the slots of {} can't be played together with a limit that has `ahead`\n\
                     help: add --compare, to play each limit alone",
                    policies[*id].stored
                ));
            }
        }
        if arrivals.windows(2).any(|pair| pair[1].at < pair[0].at) {
            let help = "sort them, or play a limit without `ahead`";
            return Err(format!(
                "error: with `ahead` arrivals must be in the order of their times\nhelp: {help}"
            ));
        }
        Ok(())
    }
}

/// Whether one of these limits has `ahead`.
pub(super) fn have_ahead(policies: &[Policy], limits: &[PolicyId]) -> bool {
    limits.iter().any(|id| policies[*id].ahead.is_some())
}

fn round_trip(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    Some(parsed).filter(|time| *time <= MAX_ROUND_TRIP).ok_or_else(|| "at most 1 minute".to_owned())
}

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
