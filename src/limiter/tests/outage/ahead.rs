//! Limits with `ahead` through outages: several proxies that hold grants, in virtual time. All calls take no time, so no request
//! is in flight when an outage begins, and no reply is lost.

use std::time::Duration;

use super::*;
use proptest::strategy::ValueTree;

use crate::limit::{Ahead, Holder, State};
use crate::limiter::grants::{self, SplitCharges};
use crate::time::{BootTime, monotonic};

/// The boot clock when the simulation begins: ahead of that of the machine, so that no grant has ended by it.
const BOOT: u64 = 1_000_000_000_000_000;
/// How often an open breaker probes the store, in microseconds.
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

/// The exact algorithm, which judges what was admitted.
#[derive(Default)]
struct Judge {
    state: Option<State>,
    admitted: Vec<(u64, u64)>,
    units: u64,
    over: u64,
}

struct Simulation {
    world: World,
    judge: Judge,
    now: u64,
    is_up: bool,
    is_dead: Vec<bool>,
    probes: Vec<Option<u64>>,
    /// Units that killed proxies owed: the store never learns of them.
    lost: u64,
}

impl Judge {
    fn admit(&mut self, quota: &Quota, at: u64, units: u64) {
        self.units += units;
        if let Quota::IntervalBucket(bucket) = quota {
            // The grid of each proxy starts by itself, so only the bound is the same.
            self.admitted.push((at, units));
            let (rate, mut sum, mut over) = (bucket.rate(), 0, 0);
            for (from, units) in self.admitted.iter().rev() {
                sum += units;
                let most = bucket.limit() + rate.units() * (at - from).div_ceil(rate.period().0);
                over = over.max(sum.saturating_sub(most));
            }
            if over > 0 {
                self.over += units;
                let _ = self.admitted.pop();
            }
            return;
        }
        let step = quota.step(self.state.as_ref(), Timestamp(START + at), units, Holder::default());
        if step.decision.allowed {
            self.state = step.next.or(self.state.take());
        } else {
            self.over += units;
        }
    }
}

impl Simulation {
    fn new(policy: Policy, proxies: u64) -> Self {
        let world = World::new(policy, proxies, 0);
        let count = world.proxies.len();
        let (is_dead, probes) = (vec![false; count], vec![None; count]);
        Self { world, judge: Judge::default(), now: 0, is_up: true, is_dead, probes, lost: 0 }
    }

    fn boot(&self) -> BootTime {
        BootTime(BOOT + self.now)
    }

    async fn go_to(&mut self, at: u64) {
        if at > self.now {
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
            client.record_failure(&StoreError::NotConnected(String::new()));
            return None;
        }
        let granted = self.world.store.take_with_grants(&limits.policies, &charges, &requests.requests);
        client.record_success();
        client.fallback.seed(limits, &charges, &granted.decisions);
        let decisions = requests.receive(limits, &charges, &granted, self.boot());
        Some(decisions[0])
    }

    /// Decides a request as `Limiter::decide` does.
    fn decide(&self, proxy: usize, cost: u64) -> bool {
        let (limiter, limits) = (&self.world.proxies[proxy], &self.world.limits);
        let fallback = &limiter.client.fallback;
        let charges = [charge(cost)];
        if !limits.grant_units(&charges) {
            return self.decide_missing(proxy, &charges);
        }
        let SplitCharges { taken, missing, low } = {
            let unsettled = (!fallback.is_settled(limits, &charges)).then_some(fallback);
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
            grants::update_shares(&limiter.grants, fallback, limits, (charges, self.boot()));
            limiter.decide_locally(limits, charges, None, error).verdict.is_ok()
        };
        if fallback.breaker.is_open() {
            return locally(None);
        }
        let is_settled = fallback.is_settled(limits, charges);
        let Ok(shares) =
            (if is_settled { Ok(Default::default()) } else { fallback.take_shares(limits, charges) })
        else {
            return false;
        };
        let decision = self.call(proxy, charges, is_settled);
        if decision.is_none_or(|decision| !decision.allowed) {
            fallback.refund_shares(limits, &shares);
        }
        decision.map_or_else(|| locally(Some(&lost)), |decision| decision.allowed)
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
        self.lost += debts.iter().map(|debt| debt.units()).sum::<u64>();
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
                }
            }
            begin = end;
        }
    }

    async fn advance(&mut self, at: u64, course: &Course, kill: &mut Option<(u64, usize)>) {
        self.go_to(at).await;
        let is_down =
            |(from, length): &(u64, u64)| (from * 1_000..(from + length) * 1_000).contains(&self.now);
        self.is_up = !course.outages.iter().any(is_down);
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

/// The proxy of a request, so that each gets its weight of them.
fn pick(weights: [u64; 4], turn: u64) -> usize {
    let mut rest = turn * 7 % weights.iter().sum::<u64>().max(1);
    for (index, weight) in weights.iter().enumerate() {
        if rest < *weight {
            return index;
        }
        rest -= weight;
    }
    0
}

/// How many units too many are admitted, and how many in all.
fn excess(policy: &Policy, proxies: u64, course: &Course) -> (u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut simulation = Simulation::new(policy.clone(), proxies);
        simulation.run(course).await;
        (simulation.judge.over.saturating_sub(simulation.lost), simulation.judge.units)
    })
}

/// The algorithms that grant units, at 300 units a second.
fn leasing() -> Vec<(&'static str, Quota)> {
    let second = rate(300, 1_000_000);
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

#[test]
#[ignore]
fn measure() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases = std::env::var("CASES").map_or(20, |cases| cases.parse().unwrap());
    for (name, quota) in leasing() {
        for proxies in [1, 2, 4] {
            let proxies = judged(&quota, proxies);
            for span in [166_000, 500_000] {
                let (mut worst, mut sum, mut worst_without, mut units, mut units_without) = (0, 0, 0, 0, 0);
                for _ in 0..cases {
                    let course = any_course().new_tree(&mut runner).unwrap().current();
                    let (over, admitted) = excess(&with_ahead(&quota, span), proxies, &course);
                    let (without, plain) = excess(&Policy::new("a", quota.clone()), proxies, &course);
                    if over > without && std::env::var("SHOW").is_ok() {
                        println!("   {over} {without} {course:?}");
                    }
                    worst = worst.max(over);
                    sum += over;
                    units += admitted;
                    units_without += plain;
                    worst_without = worst_without.max(without);
                }
                println!(
                    "{name} k={proxies} span={span}: worst {worst} sum {sum} without {worst_without}; {units} of {units_without}"
                );
            }
        }
    }
}
