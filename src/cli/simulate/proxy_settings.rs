//! The proxies of a simulation, as the command line has them.

use std::time::Duration;

use clap::{Args, value_parser};

use super::arrivals::SimulatedArrival;
use crate::gate::Gate;
use crate::limit::{Policy, PolicyId, Quota};
use crate::time::Micros;

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
