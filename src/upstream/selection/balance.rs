//! Load balancing: the endpoint for a request, in constant or logarithmic time. Shares change seldom: what depends on them is
//! computed when they have changed.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::members::Members;
use super::ring::{Ring, mix};
use super::turns::{Turns, count_step};
use crate::upstream::spec::Balance;

/// The most endpoints whose requests in flight are compared.
const COMPARED: usize = 8;
/// How many draws may hit an endpoint that was tried, before another one is looked for.
const DRAWS: usize = 4;

/// What the load balancers of all workers share.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SharedLoad {
    /// Increased after each change of shares.
    version: AtomicU64,
    /// Requests in flight at all endpoints; counted if they are bounded by `hash_balance_factor`.
    in_flight: AtomicUsize,
}

/// One worker's load balancer over the endpoints of an upstream.
#[derive(Debug, Default)]
pub struct Balancer {
    balance: Balance,
    /// The most requests in flight at an endpoint relative to its share, if a hash selects it.
    factor: Option<f64>,
    members: Arc<Members>,
    load: Arc<SharedLoad>,
    view: RefCell<View>,
}

/// What a worker has computed from the shares.
#[derive(Debug, Default)]
struct View {
    /// The version of the shares.
    version: Option<u64>,
    /// The share of each endpoint.
    shares: Vec<u32>,
    /// The endpoints with a share above 0.
    available: Vec<usize>,
    /// For each of them the sum of the shares up to its own.
    sums: Vec<u64>,
    turns: Turns,
    ring: Ring,
}

/// Requests in flight, relative to a share.
#[derive(Clone, Copy, Debug)]
struct Load {
    in_flight: u64,
    share: u32,
}

impl SharedLoad {
    /// Makes every worker read the shares again.
    pub fn shares_changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Counts a request.
    pub fn request_started(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a request.
    pub fn request_finished(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Balancer {
    pub(in crate::upstream) fn new(
        balance: Balance,
        factor: Option<f64>,
        members: Arc<Members>,
        load: &Arc<SharedLoad>,
    ) -> Self {
        Self { balance, factor, members, load: Arc::clone(load), view: RefCell::default() }
    }

    /// The index of the endpoint for a request, by the hash of its key if it has one; none if there are no endpoints.
    /// Unavailable endpoints are chosen only if no available one is left, and `tried` ones only if no other is left.
    pub fn pick(&self, tried: &[usize], hash_key: Option<u64>) -> Option<usize> {
        let count = self.members.len();
        if count <= 1 {
            return (count == 1).then_some(0);
        }
        let view = &mut *self.view.borrow_mut();
        let version = self.load.version.load(Ordering::Acquire);
        if view.version != Some(version) {
            view.update(&self.members, self.balance);
            view.version = Some(version);
        }
        let is_new = |index: usize| {
            count_step();
            !tried.contains(&index)
        };
        if let Some(&failed) = tried.last() {
            view.turns.lose(failed);
        }
        // This search and the one below end after one endpoint more than were tried.
        if view.available.iter().any(|index| is_new(*index)) {
            return self.among_available(view, is_new, hash_key);
        }
        let start = below(count, hash_key.map_or_else(|| fastrand::u64(..), mix));
        (start..count).chain(0..start).find(|index| is_new(*index)).or(Some(start))
    }

    /// The index of an available endpoint that is new; there is one.
    fn among_available(
        &self,
        view: &mut View,
        is_new: impl Fn(usize) -> bool,
        hash_key: Option<u64>,
    ) -> Option<usize> {
        match (self.balance, hash_key) {
            (Balance::LeastRequests, _) if view.available.len() <= COMPARED => self.least(view, is_new),
            (Balance::LeastRequests, _) => self.least_of_some(view, is_new),
            (Balance::PowerOfTwo, _) => self.less_of_two(view, is_new),
            (Balance::Hash, Some(key)) => self.by_hash(view, is_new, key),
            (Balance::RoundRobin | Balance::Hash, _) => view.turns.next(is_new),
        }
    }

    /// The endpoint with the least load; those with equal load take turns.
    fn least(&self, view: &mut View, is_new: impl Fn(usize) -> bool) -> Option<usize> {
        let loads: SmallVec<[(usize, Load); COMPARED]> = view
            .available
            .iter()
            .filter(|index| is_new(**index))
            .map(|&index| (index, self.load(view, index)))
            .collect();
        let least = loads.iter().map(|(_, load)| *load).reduce(Load::less)?;
        let is_least = |index| loads.iter().any(|(other, load)| *other == index && !load.is_over(least));
        view.turns.next(is_least)
    }

    /// The endpoint whose turn it is, unless one of some others has less load.
    fn least_of_some(&self, view: &mut View, is_new: impl Fn(usize) -> bool) -> Option<usize> {
        let first = view.turns.next(&is_new)?;
        let mut best = (first, self.load(view, first));
        let mut bits = fastrand::u64(..);
        for _ in 1..COMPARED {
            // A linear congruential generator (Knuth): the upper bits, which are used, differ enough.
            bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let index = view.available[below(view.available.len(), bits)];
            let load = self.load(view, index);
            if best.1.is_over(load) && is_new(index) {
                best = (index, load);
            }
        }
        Some(best.0)
    }

    /// Of two endpoints that are drawn by their shares, the one with less load.
    fn less_of_two(&self, view: &mut View, is_new: impl Fn(usize) -> bool) -> Option<usize> {
        let drawn = (0..DRAWS).find_map(|_| view.draw(None).filter(|place| is_new(view.available[*place])));
        let Some(place) = drawn else { return view.turns.next(is_new) };
        let one = view.available[place];
        let other = view.draw(Some(place)).map(|place| view.available[place]);
        let is_better =
            |other: &usize| self.load(view, one).is_over(self.load(view, *other)) && is_new(*other);
        other.filter(is_better).or(Some(one))
    }

    /// The endpoint of a key, or with `hash_balance_factor` the next one that has room.
    fn by_hash(&self, view: &View, is_new: impl Fn(usize) -> bool, key: u64) -> Option<usize> {
        let mut endpoints = view.ring.endpoints(key).filter(|index| is_new(*index));
        let Some(factor) = self.factor else { return endpoints.next() };
        let own = endpoints.next()?;
        let sum = view.sums.last().copied().unwrap_or_default();
        let all = self.load.in_flight.load(Ordering::Relaxed);
        let has_room = |index: &usize| self.load(view, *index).has_room(factor, all, sum);
        if has_room(&own) { Some(own) } else { endpoints.find(has_room).or(Some(own)) }
    }

    fn load(&self, view: &View, index: usize) -> Load {
        count_step();
        Load { in_flight: self.members[index].endpoint.in_flight() as u64, share: view.shares[index] }
    }
}

impl View {
    /// Reads the shares.
    fn update(&mut self, members: &Members, balance: Balance) {
        self.shares.clear();
        self.shares.extend(members.iter().map(|member| member.endpoint.share()));
        self.turns.set_shares(&self.shares);
        self.available.clear();
        self.sums.clear();
        let mut sum = 0;
        for (index, share) in self.shares.iter().enumerate().filter(|(_, share)| **share > 0) {
            sum += u64::from(*share);
            self.available.push(index);
            self.sums.push(sum);
        }
        if balance == Balance::Hash {
            self.ring = members.ring().with_parts(&parts(members, &self.shares));
        }
    }

    /// The place of an available endpoint that is drawn with a probability in proportion to its share; `other` is not drawn.
    fn draw(&self, other: Option<usize>) -> Option<usize> {
        let start = |place: usize| place.checked_sub(1).map_or(0, |before| self.sums[before]);
        let (from, to) = other.map_or((0, 0), |place| (start(place), self.sums[place]));
        let sum = self.sums.last()? - (to - from);
        if sum == 0 {
            return None;
        }
        let drawn = fastrand::u64(..sum);
        let drawn = if other.is_some() && drawn >= from { drawn + (to - from) } else { drawn };
        Some(self.sums.partition_point(|sum| {
            count_step();
            *sum <= drawn
        }))
    }
}

impl Load {
    /// Whether this load is higher. The fractions are compared by cross-multiplication.
    fn is_over(self, other: Self) -> bool {
        let cross = |one: Self, other: Self| one.in_flight * u64::from(other.share);
        cross(self, other) > cross(other, self)
    }

    fn less(self, other: Self) -> Self {
        if self.is_over(other) { other } else { self }
    }

    /// Whether one more request is within `factor` times the fair part of all requests (Mirrokni, Thorup and
    /// Zadimoghaddam, 2018), where `sum` is the sum of all shares.
    #[expect(clippy::cast_precision_loss, reason = "a bound of load needs no more than 53 bits")]
    fn has_room(self, factor: f64, all: usize, sum: u64) -> bool {
        (self.in_flight as f64) * (sum as f64) < factor * (all + 1) as f64 * f64::from(self.share)
    }
}

/// The part 1, in units of 2^-32.
const WHOLE: f64 = 4_294_967_296.0;

/// The part of each endpoint's weight that its share is, relative to the largest such part, in units of 2^-32.
fn parts(members: &Members, shares: &[u32]) -> Vec<u64> {
    let part = |(index, share): (usize, &u32)| f64::from(*share) / f64::from(members[index].weight.max(1));
    let largest = shares.iter().enumerate().map(part).fold(f64::MIN_POSITIVE, f64::max);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^32")]
    let scaled = |part: f64| (part / largest * WHOLE) as u64;
    shares.iter().enumerate().map(part).map(scaled).collect()
}

/// A number below `count` from random bits.
fn below(count: usize, bits: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "it is below `count`")]
    let index = ((u128::from(bits) * count as u128) >> 64) as usize;
    index
}

#[cfg(test)]
mod tests;
