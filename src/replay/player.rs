//! Plays requests, such as those of a log, against the routes and limits of a configuration, on the clock of the log.
//!
//! A request is planned by the [`Gate`] and decided by the in-process store, the code that serves. A request holds its slots
//! of concurrency limits from its arrival until the end that the log has, and limits with `charge_on` refund its units then,
//! by the status in the log.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::entry::LoggedRequest;
use super::in_flight::{Flight, RequestsInFlight, lease, settlement};
use super::part_sources::PartSources;
use super::planned::{HeadError, PlannedEntry, request_head};
use super::response_cost::ResponseCost;
use crate::consumers::ConsumerError;
use crate::gate::{BodyFields, ClientIdentity, Gate, MissingPart, RecordedParts, RequestError, RouteId};
use crate::http1::RequestHead;
use crate::limit::{Charge, Charges, DecidedCharge, Decision, Holder, MAX_LEASE, Policy, PolicyId, Quota};
use crate::limiter::is_unanswered;
use crate::proxy::{ConfigSnapshot, Target};
use crate::store::Memory;
use crate::time::{Clock, Micros, Timestamp};

/// What is known of the body of a request in a log.
static NO_BODY: BodyFields = BodyFields::NONE;

/// A request to play.
#[derive(Clone, Copy, Debug)]
pub struct PlayedRequest<'r> {
    /// The peer that sends it.
    pub client: ClientIdentity<'r>,
    /// Its head.
    pub head: &'r RequestHead,
    /// The fields of its body that limits count by.
    pub body: &'r BodyFields,
    /// What its head lacks.
    pub recorded: &'r RecordedParts,
}

/// When a request arrives and ends, and how.
#[derive(Clone, Copy, Debug)]
pub struct RequestCourse<'c> {
    /// When it arrives.
    pub arrival: Timestamp,
    /// When its response has ended, if no limit delays it.
    pub end: Timestamp,
    /// Its final status, if that is known.
    pub status: Option<u16>,
    /// What its response costs limits that settle.
    pub cost: ResponseCost<'c>,
}

/// Plays requests, which must come in the order of their arrival.
#[derive(Debug)]
pub struct Player<'g> {
    snapshot: &'g ConfigSnapshot,
    gate: &'g Gate,
    sources: &'g PartSources,
    /// The policies of the gate. Leases have their greatest length, since the ends of requests are known.
    policies: Vec<Policy>,
    memory: Memory,
    in_flight: RequestsInFlight,
    /// The number of requests so far, which numbers them.
    requests: u64,
    /// How many requests each limit that settles has charged with their estimates, since the cost of their responses is unknown.
    unknown_costs: BTreeMap<PolicyId, u64>,
}

/// The result of playing a request.
#[derive(Debug)]
pub struct PlayedEntry {
    /// The route; none if none matches, or the request has no plan.
    pub route: Option<RouteId>,
    /// Whether it is forwarded.
    pub verdict: ReplayVerdict,
    /// The decision of each limit, by the limit of the configuration, in the order of the route.
    pub decisions: SmallVec<[(PolicyId, Charge, Decision); 4]>,
    /// The limits that exempt it.
    pub exempt: SmallVec<[PolicyId; 2]>,
}

/// Whether a request is forwarded, and why not.
#[derive(Debug)]
pub enum ReplayVerdict {
    /// After this delay.
    Forwarded(Micros),
    /// This limit denies it: the first that does in the order of the route.
    Denied(PolicyId),
    /// It lacks a part of the key of a limit with `on_missing = "deny"`.
    Missing(Box<MissingPart>),
    /// Its consumer is not served, or it lacks the one that its route requires.
    Consumer(ConsumerError),
    /// Its route blocks all requests.
    Blocked(RouteId),
    /// It is rejected before any limit is checked.
    Rejected(RequestError),
    /// The log has too little of it to tell.
    Incomplete(HeadError),
}

impl<'g> Player<'g> {
    /// A player that counts up to `max_keys` keys.
    #[must_use]
    pub fn new(snapshot: &'g ConfigSnapshot, sources: &'g PartSources, max_keys: usize) -> Self {
        let memory = Memory::new(max_keys, Clock::manual(Timestamp::default()));
        let gate = &snapshot.gate;
        let policies = gate.limits.policies.iter().map(with_longest_lease).collect();
        Self {
            snapshot,
            gate,
            sources,
            policies,
            memory,
            in_flight: RequestsInFlight::default(),
            requests: 0,
            unknown_costs: BTreeMap::new(),
        }
    }

    /// Plays a request. `observe` gets what happens, and the request with its plan if it has one.
    pub fn play<T>(
        &mut self,
        entry: &LoggedRequest<'_>,
        observe: impl FnOnce(&PlayedEntry, Option<&PlannedEntry<'_>>) -> T,
    ) -> T {
        let cost = ResponseCost::Logged(entry);
        let course = RequestCourse { arrival: entry.arrival, end: entry.end(), status: entry.status, cost };
        let Some(client) = self.sources.client(self.gate, entry) else {
            self.advance(entry.arrival);
            return observe(&PlayedEntry::without_plan(ReplayVerdict::Incomplete(HeadError::NoClient)), None);
        };
        let (head, recorded) = match request_head(entry, self.sources.host()) {
            Ok(head) => (head, self.sources.recorded(self.gate, entry)),
            Err(error) => {
                self.advance(entry.arrival);
                return observe(&PlayedEntry::without_plan(ReplayVerdict::Incomplete(error)), None);
            }
        };
        let request =
            PlayedRequest { client: client.into(), head: &head, body: &NO_BODY, recorded: &recorded };
        self.play_request(request, course, observe)
    }

    /// Plays a request that is no line of a log.
    pub fn play_request<T>(
        &mut self,
        request: PlayedRequest<'_>,
        course: RequestCourse<'_>,
        observe: impl FnOnce(&PlayedEntry, Option<&PlannedEntry<'_>>) -> T,
    ) -> T {
        self.advance(course.arrival);
        let PlayedRequest { client, head, body, recorded } = request;
        let plan = match self.gate.plan_recorded(client, head, body, recorded) {
            Ok(plan) => plan,
            Err(error) => return observe(&PlayedEntry::without_plan(ReplayVerdict::Rejected(error)), None),
        };
        let planned = PlannedEntry { gate: self.gate, client, head, plan: &plan, recorded };
        let played = self.decide(&planned, course);
        observe(&played, Some(&planned))
    }

    /// How many keys were evicted before they had expired, since there were more than the player counts.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.memory.evictions()
    }

    /// How many requests each limit that settles has charged with their estimates, since the cost of their responses is unknown.
    #[must_use]
    pub fn unknown_costs(&self) -> &BTreeMap<PolicyId, u64> {
        &self.unknown_costs
    }

    fn decide(&mut self, planned: &PlannedEntry<'_>, course: RequestCourse<'_>) -> PlayedEntry {
        let plan = planned.plan;
        self.requests += 1;
        let charge = |charge: &Charge| {
            let known = course.cost.of(self.gate, self.gate.limit_of(charge.policy));
            Charge { holder: Holder(self.requests), cost: known.reserved.unwrap_or(charge.cost), ..*charge }
        };
        let charges: Charges = plan.charges.iter().map(charge).collect();
        let decided = self.memory.decide(&self.policies, &charges);
        let policies = &self.gate.limits.policies;
        let enforced = || decided.iter().filter(|one| !policies[one.charge.policy].shadow);
        let verdict = if let Some(denial) = enforced().find(|one| !one.decision.allowed) {
            ReplayVerdict::Denied(self.gate.limit_of(denial.charge.policy))
        } else {
            let delay = enforced().map(|one| one.decision.delay).max().unwrap_or_default();
            self.start(&decided, course, delay);
            match (plan.identity.error, &plan.missing, plan.matched.route) {
                (Some(error), ..) => ReplayVerdict::Consumer(error),
                (None, Some(missing), _) => ReplayVerdict::Missing(missing.clone()),
                (None, None, Some(route)) if self.blocks(route) => ReplayVerdict::Blocked(route),
                (None, None, _) => ReplayVerdict::Forwarded(delay),
            }
        };
        let by_limit =
            |one: &DecidedCharge| (self.gate.limit_of(one.charge.policy), one.charge, one.decision);
        PlayedEntry {
            route: plan.matched.route,
            verdict,
            decisions: decided.iter().map(by_limit).collect(),
            exempt: plan.exempt.clone(),
        }
    }

    fn blocks(&self, route: RouteId) -> bool {
        matches!(self.snapshot.actions[route].target, Target::Block)
    }

    /// Starts a request that holds slots, or units until its status is known.
    fn start(&mut self, decided: &[DecidedCharge], course: RequestCourse<'_>, delay: Micros) {
        let policies = &*self.policies;
        let mut flight = Flight::default();
        for one in decided.iter().filter(|one| one.decision.allowed) {
            let (charge, policy) = (&one.charge, &policies[one.charge.policy]);
            if lease(policy).is_some() && charge.cost > 0 {
                flight.slots.push(*charge);
            } else if charge.takes_units() {
                let limit = self.gate.limit_of(charge.policy);
                let units = course.cost.of(self.gate, limit).charged;
                if policy.settles() && units.is_none() && is_charged(policy, course.status) {
                    *self.unknown_costs.entry(limit).or_default() += 1;
                }
                flight.settlement.extend(at_end(policy, one, units, course.status));
            }
        }
        self.in_flight.start(course.arrival, course.end.after(delay), flight, policies);
    }

    /// Sets the clock, after doing what is due until then.
    fn advance(&mut self, to: Timestamp) {
        let policies = &*self.policies;
        while let Some((end, charges)) = self.in_flight.next_end(to) {
            self.memory.clock().set(end);
            let _ = self.memory.apply(policies, &charges);
        }
        self.memory.clock().set(to);
        if let Some(consumers) = &self.gate.consumers {
            consumers.clock.set(to);
        }
        while let Some(charges) = self.in_flight.next_renewal(to, policies) {
            let _ = self.memory.apply(policies, &charges);
        }
    }
}

/// What is refunded or charged at the end of a request, for the units that a limit has taken.
fn at_end(policy: &Policy, taken: &DecidedCharge, units: Option<u64>, status: Option<u16>) -> Option<Charge> {
    match units.filter(|_| policy.settles()) {
        Some(units) => settlement(policy, taken, units),
        None => (!is_charged(policy, status)).then(|| taken.refund()),
    }
}

/// Whether the units of a request stay charged when it has ended, by its status, if that is known.
pub(super) fn is_charged(policy: &Policy, status: Option<u16>) -> bool {
    let charges = |status| policy.charge_on().contains(&status) || is_unanswered(status);
    !policy.charges_by_status() || status.is_none_or(charges)
}

/// The policy with slots that need no renewal within a day.
fn with_longest_lease(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    if let Quota::Concurrency(slots) = &policy.quota
        && let Ok(slots) = slots.with_lease(MAX_LEASE)
    {
        policy.quota = Quota::Concurrency(slots);
    }
    policy
}

impl PlayedEntry {
    fn without_plan(verdict: ReplayVerdict) -> Self {
        Self { route: None, verdict, decisions: SmallVec::new(), exempt: SmallVec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// The statuses that requests get: 200 if they are forwarded, 429 if a limit denies them. Each is the time of its arrival
    /// in seconds, how long it takes, and its status in the log.
    fn statuses(limit: &str, requests: &[(u64, u64, u16)]) -> Vec<u16> {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[limits.a]\nkey = \"client_ip\"\n{limit}\n[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = {{ status = 200 }}\n"
        );
        let loaded = config::parse(&text, "t.toml", &|_| None).unwrap();
        let sources = PartSources::default();
        let mut player = Player::new(&loaded.config.snapshot, &sources, 1_000);
        let mut status = |(at, took, status): &(u64, u64, u16)| {
            let entry = LoggedRequest {
                arrival: Timestamp(at * 1_000_000),
                duration: Some(Micros(took * 1_000_000)),
                status: Some(*status),
                client: "192.0.2.1".parse().ok(),
                method: b"GET".into(),
                target: b"/".into(),
                ..LoggedRequest::default()
            };
            player.play(&entry, |played, _| match &played.verdict {
                ReplayVerdict::Forwarded(_) => 200,
                ReplayVerdict::Denied(PolicyId(0)) => 429,
                other => panic!("{other:?}"),
            })
        };
        requests.iter().map(&mut status).collect()
    }

    #[test]
    fn limits_count_on_the_clock_of_the_log() {
        let requests = [(100, 0, 200), (100, 0, 200), (129, 0, 200), (130, 0, 200), (130, 0, 200)];
        assert_eq!(statuses("rate = \"2/minute\"", &requests), [200, 200, 429, 200, 429]);
    }

    #[test]
    fn a_slot_is_held_from_the_arrival_to_the_end() {
        let limit = "algorithm = \"concurrency\"\nmax_in_flight = 1\nlease = \"10s\"";
        // The second request is denied, so it holds nothing.
        let requests = [(0, 100, 200), (99, 100, 200), (100, 5, 200), (104, 1, 200), (105, 1, 200)];
        assert_eq!(statuses(limit, &requests), [200, 429, 200, 429, 200]);
    }

    #[test]
    fn units_are_refunded_by_the_status_of_the_log() {
        let limit = "rate = \"1/hour\"\ncharge_on = [401]";
        let requests = [(0, 2, 200), (1, 0, 401), (3, 0, 401), (4, 0, 200)];
        assert_eq!(statuses(limit, &requests), [200, 429, 200, 429]);
    }
}
