//! Limits with `ahead` through outages: several proxies that hold grants, in virtual time. All calls take no time, so no request
//! is in flight when an outage begins, and no reply is lost.

mod judge;

use std::cell::RefCell;
use std::time::Duration;

use judge::{Judge, Unknown};

use super::*;
use crate::limit::{Ahead, DecidedCharge};
use crate::limiter::grants::{self, SplitCharges};
use crate::limiter::local_fallback::ShareRefunds;
use crate::limiter::outage_ledger::DebtEntry;
use crate::limiter::pending_admission::PendingAdmission;
use crate::time::{BootTime, monotonic};

/// The boot clock when the simulation begins: ahead of that of the machine, so that no grant has ended by it.
const BOOT: u64 = 1_000_000_000_000_000;
/// The units of the limits in a second.
const REFILL: u64 = 300;
/// How long calls must fail, in microseconds, until a proxy reckons with the debts of others.
const NOTICED: u64 = 100_000;
/// The microseconds between two probes.
const PROBE: u64 = 500_000;

/// A part of a simulation: how long it takes in milliseconds, requests a second in thousandths of the limit, and the weights
/// of the proxies.
type Phase = (u64, u64, [u64; 4]);

/// A simulated history.
#[derive(Clone, Debug)]
struct Course {
    phases: Vec<Phase>,
    /// When outages begin and how long they last, in milliseconds.
    outages: Vec<(u64, u64)>,
    /// When a proxy is killed, in milliseconds, and which.
    kill: Option<(u64, usize)>,
    cost: u64,
}

struct Simulation {
    world: World,
    judge: Judge,
    now: u64,
    is_up: bool,
    is_dead: Vec<bool>,
    probes: Vec<Option<u64>>,
    /// What killed proxies owed.
    lost: u64,
    unknown: RefCell<Unknown>,
}

impl Simulation {
    fn new(policy: Policy, proxies: u64) -> Self {
        let world = World::new(policy, proxies, 0);
        let count = world.proxies.len();
        let (is_dead, probes) = (vec![false; count], vec![None; count]);
        let failed = vec![None; count];
        let unknown =
            Unknown { since_reply: vec![0; count], of_outages: 0, late: 0, failed, ended: 0, unaware: 0 };
        let unknown = RefCell::new(unknown);
        Self { world, judge: Judge::default(), now: 0, is_up: true, is_dead, probes, lost: 0, unknown }
    }

    fn boot(&self) -> BootTime {
        BootTime(BOOT + self.now)
    }

    async fn go_to(&mut self, at: u64) {
        if at > self.now {
            let is_open = |proxy: &&ServerLimiter| proxy.client.fallback.breaker.is_open();
            let late = self.world.proxies.iter().filter(is_open).count();
            if self.is_up && late < self.world.proxies.len() {
                self.unknown.borrow_mut().late += (at - self.now) * late as u64;
            }
            tokio::time::advance(Duration::from_micros(at - self.now)).await;
            let _ = monotonic();
            self.now = at;
            self.world.set_clock(START + at);
        }
    }

    /// Calls the store.
    fn call(&self, proxy: usize, charges: &[Charge], may_want: bool) -> Option<Decision> {
        let (limiter, limits) = (&self.world.proxies[proxy], &self.world.limits);
        let client = &limiter.client;
        let (charges, requests) =
            grants::request_grants_at(&limiter.grants, limits, charges, may_want, self.boot());
        if !self.is_up {
            self.unknown.borrow_mut().failed[proxy].get_or_insert(self.now);
            client.record_failure(&StoreError::NotConnected(String::new()));
            return None;
        }
        let granted = self.world.store.take_with_grants(&limits.policies, &charges, &requests.requests);
        client.record_success();
        let decided = DecidedCharge::join(&charges, &granted.decisions);
        client.fallback.seed(limits, &decided);
        let granted_units: u64 = granted.grants.iter().map(|grant| grant.units).sum();
        let taken = if granted.decisions[0].allowed { charges[0].cost } else { 0 };
        for (other, unknown) in self.unknown.borrow_mut().since_reply.iter_mut().enumerate() {
            *unknown = if other == proxy { 0 } else { *unknown + taken + granted_units };
        }
        let shown = requests.receive(limits, &decided, &granted.grants, self.boot());
        Some(shown[0].decision)
    }

    /// Decides a request as `ServerLimiter::decide` does.
    fn decide(&self, proxy: usize, cost: u64) -> bool {
        let (limiter, limits) = (&self.world.proxies[proxy], &self.world.limits);
        let fallback = &limiter.client.fallback;
        let charges = [charge(cost)];
        if !limits.grant_units(&charges) {
            return self.decide_missing(proxy, &charges);
        }
        let SplitCharges { taken, missing, low } = {
            let unsettled = fallback.unless_settled(limits, &charges);
            grants::take_units(&limiter.grants, limits, &charges, unsettled, self.boot())
        };
        for charge in &low {
            if !fallback.breaker.is_open() && fallback.is_settled(limits, &[*charge]) {
                let _ = self.call(proxy, &[grants::refill_charge(charge)], true);
            }
        }
        if taken.denies(&limits.policies) {
            let _ = taken.deny(&limits.policies, LimitStatuses::new(), self.boot());
            return false;
        }
        if missing.is_empty() {
            taken.charge();
            return true;
        }
        self.decide_missing(proxy, &missing)
    }

    fn decide_missing(&self, proxy: usize, charges: &[Charge]) -> bool {
        let (limiter, limits) = (&self.world.proxies[proxy], &self.world.limits);
        let fallback = &limiter.client.fallback;
        let lost = StoreError::NotConnected(String::new());
        let locally = |error| {
            grants::update_shares(&limiter.grants, fallback, limits, charges, self.boot());
            PendingAdmission::new(limiter, limits, None).fail(charges, error).verdict.is_ok()
        };
        if fallback.breaker.is_open() {
            return locally(None);
        }
        let is_settled = fallback.is_settled(limits, charges);
        let shares = if is_settled { Ok(ShareRefunds::new()) } else { fallback.take_shares(limits, charges) };
        let Ok(shares) = shares else {
            return false;
        };
        let decision = self.call(proxy, charges, is_settled);
        if decision.is_none_or(|decision| !decision.allowed) {
            fallback.refund_shares(limits, &shares);
        }
        decision.map_or_else(|| locally(Some(&lost)), |decision| decision.allowed)
    }

    /// Whether no calls of a proxy failed for 100 ms in the last outage, while another one still owes units.
    fn is_unaware(&self, proxy: usize) -> bool {
        let is_open = |other: &ServerLimiter| other.client.fallback.breaker.is_open();
        let is_owing = |(other, is_dead): (&ServerLimiter, &bool)| is_open(other) && !is_dead;
        let is_any_owing = self.world.proxies.iter().zip(&self.is_dead).any(is_owing);
        let Unknown { failed, ended, .. } = &*self.unknown.borrow();
        let has_noticed = failed[proxy].is_some_and(|at| *ended >= at + NOTICED);
        self.is_up && !has_noticed && is_any_owing
    }

    /// What a proxy does besides requests.
    fn maintain(&mut self, proxy: usize) {
        let limiter = &self.world.proxies[proxy];
        let fallback = &limiter.client.fallback;
        if fallback.breaker.is_open() {
            let due = *self.probes[proxy].get_or_insert(self.now + PROBE);
            if self.now >= due {
                self.probes[proxy] = (!self.is_up).then_some(due + PROBE);
                if self.is_up {
                    self.world.pay_debts(proxy);
                    fallback.breaker.close();
                }
            }
            return;
        }
        if self.is_up && !fallback.ledger.is_empty() {
            self.world.pay_debts(proxy);
        }
        if limiter.grants.is_sweep_due(self.boot()) {
            limiter.grants.sweep(self.boot());
        }
        let returned = grants::take_lasting(&limiter.grants, self.boot());
        if self.is_up && !returned.is_empty() {
            let (charges, requests) = grants::return_charges(&returned);
            let policies = &self.world.limits.policies;
            let granted = self.world.store.apply_with_grants(policies, &charges, &requests);
            grants::count_returned(&returned, &granted.decisions);
        }
    }

    fn kill(&mut self, proxy: usize) {
        let (debts, _guard) = self.world.proxies[proxy].client.fallback.ledger.take(100);
        self.lost += debts.iter().map(DebtEntry::units).sum::<u64>();
        self.is_dead[proxy] = true;
    }

    async fn run(&mut self, course: &Course) {
        let quota = self.world.limits.policies[0].quota.clone();
        let (mut begin, mut next) = (0, 0);
        let mut kill = course.kill;
        for (length, load, weights) in &course.phases {
            let end = begin + length * 1_000;
            let step = (1_000_000_000 * course.cost).checked_div(quota.limit() * load).unwrap_or(u64::MAX);
            next = next.max(begin);
            let mut turn = 0;
            loop {
                let at = if step < u64::MAX && next < end { next } else { end };
                // Proxies are maintained each 5 ms, also without requests.
                while self.now + 5_000 < at {
                    let to = self.now + 5_000;
                    self.advance(to, course, &mut kill).await;
                }
                self.advance(at, course, &mut kill).await;
                if at == end {
                    break;
                }
                next += step;
                turn += 1;
                let number = pick(*weights, turn) % self.is_dead.len();
                if !self.is_dead[number] && self.decide(number, course.cost) {
                    self.judge.admit(&quota, self.now, course.cost);
                    if self.is_unaware(number) {
                        self.unknown.borrow_mut().unaware += course.cost;
                    }
                }
            }
            begin = end;
        }
    }

    async fn advance(&mut self, at: u64, course: &Course, kill: &mut Option<(u64, usize)>) {
        self.go_to(at).await;
        let is_down =
            |(from, length): &(u64, u64)| (from * 1_000..(from + length) * 1_000).contains(&self.now);
        let is_up = !course.outages.iter().any(is_down);
        if self.is_up && !is_up {
            let mut unknown = self.unknown.borrow_mut();
            // Each share is rounded, and the oldest part of a window too.
            let shares = unknown.since_reply.iter().sum::<u64>().div_ceil(self.world.limits.instances.get());
            unknown.of_outages += shares + 2;
            unknown.failed.fill(None);
        }
        if is_up && !self.is_up {
            self.unknown.borrow_mut().ended = self.now;
        }
        self.is_up = is_up;
        if let Some((_, proxy)) = kill.take_if(|(due, _)| *due * 1_000 <= self.now) {
            self.kill(proxy % self.is_dead.len());
        }
        for proxy in 0..self.is_dead.len() {
            if !self.is_dead[proxy] {
                self.maintain(proxy);
            }
        }
    }
}

/// What a simulation has admitted.
struct Outcome {
    /// Units beyond the limit.
    over: u64,
    /// The shares of units that proxies did not know of when an outage began, and of those that were refilled before they
    /// noticed its end.
    unknown: u64,
    /// Units that killed proxies owed: the store never learns of them.
    lost: u64,
    /// All units.
    units: u64,
}

fn outcome(policy: &Policy, proxies: u64, course: &Course) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut simulation = Simulation::new(policy.clone(), proxies);
        simulation.run(course).await;
        let Simulation { judge: Judge { over, units, .. }, unknown, lost, .. } = simulation;
        let Unknown { of_outages, late, unaware, .. } = unknown.into_inner();
        let refilled = late * REFILL / 1_000_000 / proxies;
        Outcome { over, unknown: of_outages + refilled + unaware, lost, units }
    })
}

/// All that grant units.
fn leasing() -> Vec<(&'static str, Quota)> {
    let second = rate(REFILL, 1_000_000);
    let all = [
        ("bucket", Quota::token_bucket(second, 300)),
        ("gcra", Quota::gcra(second, 99)),
        ("interval", Quota::interval_bucket(second, 300)),
        ("fixed", Quota::fixed_window(second, Align::Clock)),
        ("first", Quota::fixed_window(second, Align::FirstRequest)),
        ("log", Quota::sliding_log(&[second])),
        ("window", Quota::sliding_window(second, 1)),
        ("parts", Quota::sliding_window(rate(300, 1_000_000), 10)),
    ];
    all.into_iter().map(|(name, quota)| (name, quota.unwrap())).collect()
}

fn with_ahead(quota: &Quota, span: u64) -> Policy {
    let ahead = Ahead { span: Micros(span), share: Ahead::DEFAULT_SHARE };
    Policy::new("a", quota.clone()).with_ahead(ahead)
}

/// How many proxies can be compared with the exact algorithm: windows and grids that start with a first request are separate
/// for each proxy in an outage.
fn judged(quota: &Quota, proxies: u64) -> u64 {
    if matches!(quota, Quota::IntervalBucket(_)) { 1 } else { comparable(quota, proxies) }
}

fn any_course() -> impl Strategy<Value = Course> {
    let load = prop_oneof![Just(0_u64), Just(300), Just(950), Just(3_000), Just(10_000)];
    let weights = prop_oneof![3 => Just([1; 4]), 1 => Just([1, 0, 0, 0]), 1 => Just([0, 1, 0, 1]), 1 => Just([8, 1, 1, 1])];
    let phase = (prop_oneof![20..300_u64, 100..1_500_u64], load, weights);
    let outage = (300..4_000_u64, prop_oneof![50..400_u64, 300..1_500_u64, 2_000..5_000_u64]);
    let kill = prop::option::weighted(0.3, (500..4_000_u64, 0..4_usize));
    let parts = (prop::collection::vec(phase, 4..12), prop::collection::vec(outage, 1..3), kill);
    (parts, prop_oneof![4 => Just(1_u64), 1 => Just(3)]).prop_map(|((phases, outages, kill), cost)| Course {
        phases,
        outages,
        kill,
        cost,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Held units are no second right beside the share. Through outages, deaths of proxies, and changes of the load proxies
    /// admit no more than the limit; except for a share of what others took since the last reply to a proxy, of what is refilled
    /// while it has not noticed that the store is back, and what proxies that did not notice the outage take then; and for what a
    /// proxy owed when it was killed.
    #[test]
    fn units_held_in_an_outage_admit_no_more_than_the_limit(
        which in 0..8_usize,
        proxies in prop_oneof![Just(1_u64), Just(2), Just(4)],
        span in prop_oneof![Just(166_000_u64), Just(500_000)],
        course in any_course(),
    ) {
        let quota = &leasing()[which].1;
        let outcome = outcome(&with_ahead(quota, span), judged(quota, proxies), &course);
        let Outcome { over, unknown, lost, .. } = outcome;
        prop_assert!(over <= unknown + lost, "{} too many; {} were unknown, and {} lost", over, unknown, lost);
    }
}

/// Courses that once admitted too much. A short outage opens the breakers of some proxies only: the others must not take the
/// units that these owe. And a proxy must not count by a grid of ticks that is not that of the store.
#[test]
fn short_outages_admit_no_more_than_the_limit() {
    let (two, all) = ([0, 1, 0, 1], [1; 4]);
    let short = [(1_455, 3_000, two), (1_400, 0, all), (190, 3_000, two), (451, 950, all), (170, 300, two)];
    let uneven = [(256, 0, all), (138, 300, all), (454, 3_000, [8, 1, 1, 1]), (545, 10_000, all)];
    let twice = [(443, 3_000, all), (994, 950, all), (1_003, 10_000, all), (20, 0, all)];
    for (proxies, phases, outages) in [
        (4, short.to_vec(), vec![(3_226, 119)]),
        (4, uneven.to_vec(), vec![(472, 439)]),
        (1, twice.to_vec(), vec![(458, 105), (2_014, 109)]),
    ] {
        let course = Course { phases, outages, kill: None, cost: 1 };
        for (name, quota) in leasing() {
            for policy in [Policy::new("a", quota.clone()), with_ahead(&quota, 166_000)] {
                let Outcome { over, unknown, .. } = outcome(&policy, judged(&quota, proxies), &course);
                assert!(over <= unknown, "{name}, {course:?}: {over} too many; {unknown} were unknown");
            }
        }
    }
}

/// A load of three times the limit on each of `proxies` alike, with these outages.
fn overload(quota: &Quota, proxies: u64, seconds: u64, outages: &[(u64, u64)]) -> Outcome {
    let phases = vec![(seconds * 1_000, 3_000, [1; 4])];
    let course = Course { phases, outages: outages.to_vec(), kill: None, cost: 1 };
    outcome(&with_ahead(quota, 166_000), judged(quota, proxies), &course)
}

/// If proxies are equally busy, what one does not know of is a unit.
#[test]
fn equally_busy_proxies_admit_the_limit_through_outages() {
    for (name, quota) in leasing() {
        for proxies in [1, 2, 4] {
            for outages in
                [&[(2_000, 300)][..], &[(1_500, 50), (2_500, 100)], &[(1_000, 2_500), (6_000, 2_500)]]
            {
                let Outcome { over, units, .. } = overload(&quota, proxies, 10, outages);
                let most = proxies * outages.len() as u64;
                assert!(over <= most, "{name}, {proxies} proxies, {outages:?}: {over} too many");
                assert!(units >= 2_200, "{name}, {proxies} proxies, {outages:?}: {units} admitted");
            }
        }
    }
}
