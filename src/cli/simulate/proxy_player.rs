//! Plays arrivals against limits with `ahead`: through proxies that hold grants, with a round trip to their Redis.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::admissions::Admissions;
use super::arrivals::{ArrivalCharge, SimulatedArrival};
use super::backend::Backend;
use super::exact::ExactPlayer;
use super::played::{ArrivalResults, DecisionOrigin, PlayedArrival};
use super::proxies::{LimitUnits, ProxySettings, ProxySummary};
use super::scenario::{charges, counted, is_blocked, merge, peek};
use crate::gate::Gate;
use crate::limit::{Charge, ChargeKind, DecidedCharge, DecidedCharges, Key, Policy, PolicyId};
use crate::limiter::{LimitStatuses, ProxyCall, ProxyDecision, SimulatedProxy, SimulatedReply};
use crate::store::{Granted, StoreError};
use crate::telemetry::DecisionSource;
use crate::time::{BootTime, Micros, Timestamp};

/// The seed of the choice of proxies: the same in each run.
const SEED: u64 = 1;

/// Proxies that share limits. All have one clock.
pub(super) struct ProxyPlayer<'a> {
    gate: &'a Gate,
    backend: &'a Backend,
    limits: Vec<PolicyId>,
    settings: ProxySettings,
    proxies: Vec<PlayedProxy>,
    random: fastrand::Rng,
    /// The events to come, by their times, and by their numbers if times are equal.
    events: BTreeMap<(Timestamp, u64), ProxyEvent>,
    event_count: u64,
    results: ArrivalResults,
    admissions: Admissions,
    /// Decides the same arrivals at once.
    exact: ExactPlayer<'a>,
    admitted_exactly: u64,
    arrivals: u64,
    admitted: u64,
    calls: u64,
    /// The most units of one key that all proxies together have held, by limit.
    most_held: HashMap<PolicyId, u64>,
}

#[derive(Default)]
struct PlayedProxy {
    grants: SimulatedProxy,
    /// Whether its next sweep is among the events.
    has_sweep: bool,
}

enum ProxyEvent {
    /// A call reaches Redis.
    Call(Box<SentCall>),
    /// The reply to a call reaches the proxy.
    Reply(Box<Reply>),
    /// A proxy returns grants that would lapse.
    Sweep(usize),
}

struct SentCall {
    proxy: usize,
    call: ProxyCall,
    /// The arrival that waits for the reply.
    waiting: Option<Waiting>,
}

struct Reply {
    sent: SentCall,
    granted: Granted,
    /// When Redis has made the decisions.
    decided: Timestamp,
}

/// An arrival that is not decided yet.
struct Waiting {
    index: usize,
    at: Timestamp,
    per_limit: Vec<ArrivalCharge>,
    origin: DecisionOrigin,
}

impl<'a> ProxyPlayer<'a> {
    /// A player of arrivals to proxies with these limits, whose counts are in `backend`. `exact` decides the same arrivals at once, for comparison.
    pub fn new(
        (gate, backend): (&'a Gate, &'a Backend),
        limits: Vec<PolicyId>,
        settings: ProxySettings,
        exact: ExactPlayer<'a>,
    ) -> Self {
        Self {
            gate,
            backend,
            limits,
            settings,
            proxies: std::iter::repeat_with(PlayedProxy::default).take(settings.count).collect(),
            random: fastrand::Rng::with_seed(SEED),
            events: BTreeMap::new(),
            event_count: 0,
            results: ArrivalResults::default(),
            admissions: Admissions::default(),
            exact,
            admitted_exactly: 0,
            arrivals: 0,
            admitted: 0,
            calls: 0,
            most_held: HashMap::new(),
        }
    }

    /// Plays an arrival, after everything that happens before it.
    pub async fn arrive(&mut self, arrival: &SimulatedArrival) -> Result<(), StoreError> {
        self.run_until(arrival.at).await?;
        self.arrivals += 1;
        self.admitted_exactly += u64::from(self.exact.arrive(arrival).await?.allowed);
        let proxy = self.random.usize(..self.proxies.len());
        let waiting = Waiting {
            index: self.results.add(),
            at: arrival.at,
            per_limit: charges(self.gate, &self.limits, arrival),
            origin: DecisionOrigin { proxy: proxy + 1, source: DecisionSource::Store, calls: 0 },
        };
        self.decide(proxy, waiting).await?;
        // Without a round trip the calls are decided now.
        self.run_until(arrival.at).await
    }

    /// Plays on until every arrival is decided.
    pub async fn finish(&mut self) -> Result<(), StoreError> {
        while !self.results.is_complete() {
            let Some(((at, _), event)) = self.events.pop_first() else { break };
            self.handle(event, at).await?;
        }
        self.admissions.judge(Timestamp(u64::MAX), &self.gate.limits.policies);
        Ok(())
    }

    /// Takes the results that are known of the first arrivals, in their order.
    pub fn take_results(&mut self) -> impl Iterator<Item = PlayedArrival> {
        self.results.take()
    }

    /// The status of the key of `arrival` in each limit at a time: what is available in Redis. Spends nothing.
    pub async fn peek(
        &mut self,
        at: Timestamp,
        arrival: &SimulatedArrival,
    ) -> Result<DecidedCharges, StoreError> {
        self.run_until(at).await?;
        let per_limit = charges(self.gate, &self.limits, arrival);
        self.peek_at(at, &per_limit).await
    }

    /// The totals so far.
    pub fn summary(&self) -> ProxySummary {
        let policies = &self.gate.limits.policies;
        let mut limits: BTreeMap<&str, LimitUnits> = BTreeMap::new();
        for (policy, most) in &self.most_held {
            let units = limits.entry(&policies[*policy].name).or_default();
            units.most_held = units.most_held.max(*most);
        }
        for proxy in &self.proxies {
            for (name, values) in proxy.grants.grant_values() {
                if let Some(units) = limits.get_mut(&*name) {
                    units.add(&values);
                }
            }
        }
        ProxySummary {
            settings: self.settings,
            arrivals: self.arrivals,
            calls: self.calls,
            admitted: self.admitted,
            admitted_exactly: self.admitted_exactly,
            exceeding: self.admissions.exceeding(),
            limits: limits.into_iter().map(|(name, units)| (name.into(), units)).collect(),
        }
    }

    async fn run_until(&mut self, to: Timestamp) -> Result<(), StoreError> {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= to) {
            let ((at, _), event) = entry.remove_entry();
            self.handle(event, at).await?;
        }
        // A reply that is still to come was made, and waited for, no longer than a round trip before it.
        let judged = Timestamp(to.0.saturating_sub(self.settings.round_trip.0));
        self.admissions.judge(judged, &self.gate.limits.policies);
        Ok(())
    }

    fn push(&mut self, at: Timestamp, event: ProxyEvent) {
        self.event_count += 1;
        self.events.insert((at, self.event_count), event);
    }

    async fn handle(&mut self, event: ProxyEvent, now: Timestamp) -> Result<(), StoreError> {
        match event {
            ProxyEvent::Call(sent) => {
                self.backend.set_time(now);
                let (policies, store) = (&self.gate.limits.policies, &self.backend.store);
                let (charges, requests) = (sent.call.charges(), sent.call.requests());
                let granted = if sent.call.decides_request() {
                    store.take_with_grants(policies, charges, requests).await?
                } else {
                    store.apply_with_grants(policies, charges, requests).await?
                };
                let way_back = self.settings.round_trip.0.div_ceil(2);
                let reply = Reply { sent: *sent, granted, decided: now };
                self.push(now.after(Micros(way_back)), ProxyEvent::Reply(Box::new(reply)));
            }
            ProxyEvent::Reply(reply) => self.receive(*reply, now),
            ProxyEvent::Sweep(proxy) => {
                self.proxies[proxy].has_sweep = false;
                for call in self.proxies[proxy].grants.sweep(boot_time(now)) {
                    self.send(SentCall { proxy, call, waiting: None }, now);
                }
                self.schedule_sweep(proxy, now);
            }
        }
        Ok(())
    }

    async fn decide(&mut self, proxy: usize, mut waiting: Waiting) -> Result<(), StoreError> {
        let (limits, at) = (&self.gate.limits, waiting.at);
        let counted = counted(&waiting.per_limit);
        if counted.is_empty() || is_blocked(&limits.policies, &waiting.per_limit) {
            waiting.origin.source = DecisionSource::Config;
            let decided = self.peek_at(at, &waiting.per_limit).await?;
            self.conclude(&waiting, decided);
            return Ok(());
        }
        let SimulatedReply { decision, refills } =
            self.proxies[proxy].grants.decide(limits, &counted, boot_time(at));
        waiting.origin.calls = refills.len();
        for call in refills {
            self.send(SentCall { proxy, call, waiting: None }, at);
        }
        match decision {
            ProxyDecision::Allowed(decided) => {
                waiting.origin.source = DecisionSource::Ahead;
                let decided = merge(&waiting.per_limit, decided.iter().map(|one| one.decision));
                self.admit(&waiting, &decided, |_| at);
                self.conclude(&waiting, decided);
            }
            ProxyDecision::Denied(denials, source) => {
                waiting.origin.source = source;
                let mut decided = self.peek_at(at, &waiting.per_limit).await?;
                show_denials(&denials, &mut decided);
                self.conclude(&waiting, decided);
            }
            ProxyDecision::Waiting(call) => {
                waiting.origin.calls += 1;
                self.send(SentCall { proxy, call: *call, waiting: Some(waiting) }, at);
            }
        }
        Ok(())
    }

    fn send(&mut self, sent: SentCall, now: Timestamp) {
        self.calls += 1;
        self.push(now.after(Micros(self.settings.round_trip.0 / 2)), ProxyEvent::Call(Box::new(sent)));
    }

    fn receive(&mut self, reply: Reply, now: Timestamp) {
        let Reply { sent: SentCall { proxy, call, waiting }, granted, decided } = reply;
        let by_store: SmallVec<[Charge; 2]> = call.charges().into();
        let limits = &self.gate.limits;
        let by_proxy = self.proxies[proxy].grants.receive(limits, call, &granted, boot_time(now));
        let granting = by_store.iter().filter(|charge| charge.kind == ChargeKind::Grant);
        for (charge, _) in granting.zip(&granted.grants).filter(|(_, grant)| grant.units > 0) {
            self.record_held(charge.policy, charge.key, now);
        }
        self.schedule_sweep(proxy, now);
        let (Some(waiting), Some(by_proxy)) = (waiting, by_proxy) else { return };
        let all = merge(&waiting.per_limit, by_proxy.iter().map(|one| one.decision));
        let is_own = |one: &Charge, own: &Charge| (one.policy, one.key) == (own.policy, own.key);
        let at = waiting.at;
        self.admit(
            &waiting,
            &all,
            |charge| {
                if by_store.iter().any(|one| is_own(one, charge)) { decided } else { at }
            },
        );
        self.conclude(&waiting, all);
    }

    fn schedule_sweep(&mut self, proxy: usize, now: Timestamp) {
        let PlayedProxy { grants, has_sweep } = &mut self.proxies[proxy];
        if let Some(interval) = grants.sweep_interval().filter(|_| !*has_sweep) {
            *has_sweep = true;
            self.push(now.after(interval), ProxyEvent::Sweep(proxy));
        }
    }

    fn record_held(&mut self, policy: PolicyId, key: Key, now: Timestamp) {
        let settings = &self.gate.limits.policies[policy];
        let of_proxy = |proxy: &PlayedProxy| proxy.grants.held_units(settings, key, boot_time(now));
        let held: u64 = self.proxies.iter().map(of_proxy).sum();
        let most = self.most_held.entry(policy).or_default();
        *most = held.max(*most);
    }

    /// Records the units that limits with `ahead` admit, each at the time `at`.
    fn admit(&mut self, waiting: &Waiting, decided: &[DecidedCharge], at: impl Fn(&Charge) -> Timestamp) {
        let policies = &self.gate.limits.policies;
        let policy = |charge: &Charge| -> &Policy { &policies[charge.policy] };
        let passes = decided.iter().all(|one| one.decision.allowed || policy(&one.charge).shadow);
        for (one, DecidedCharge { charge, decision }) in waiting.per_limit.iter().zip(decided) {
            let counts = one.preset.is_none() && policy(charge).ahead.is_some();
            if counts && decision.allowed && (passes || policy(charge).shadow) {
                self.admissions.add(at(charge), *charge);
            }
        }
    }

    fn conclude(&mut self, waiting: &Waiting, decided: DecidedCharges) {
        let Waiting { index, origin, .. } = *waiting;
        let mut played = PlayedArrival::new(&self.gate.limits.policies, decided);
        played.origin = Some(origin);
        self.admitted += u64::from(played.allowed);
        self.results.set(index, played);
    }

    async fn peek_at(
        &self,
        at: Timestamp,
        per_limit: &[ArrivalCharge],
    ) -> Result<DecidedCharges, StoreError> {
        self.backend.set_time(at);
        peek(&self.backend.store, &self.gate.limits.policies, per_limit).await
    }
}

/// The clock of the proxies, which runs like that of the store.
fn boot_time(at: Timestamp) -> BootTime {
    BootTime(at.0)
}

/// Replaces the decisions of the limits that deny a request.
fn show_denials(denials: &LimitStatuses, decided: &mut DecidedCharges) {
    for one in decided {
        if let Some(denial) = denials.iter().find(|denial| denial.policy == one.charge.policy) {
            one.decision = denial.decision;
        }
    }
}
