//! Load balancing: the endpoint for a request.

use std::cell::RefCell;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::spec::Balance;

/// One worker's load balancer over the endpoints of an upstream.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    balance: Balance,
    round_robin: RoundRobin,
}

/// Smooth weighted round robin, as in nginx: a server of weight 2 among two of weight 1 gets every other request, not
/// two in a row. At each request every server gains credit by its weight, and the one with the most pays the sum of all
/// weights.
#[derive(Debug, Default)]
struct RoundRobin {
    credits: RefCell<Vec<i64>>,
}

impl Balancer {
    pub fn new(balance: Balance) -> Self {
        Self { balance, round_robin: RoundRobin::default() }
    }

    /// The index of the endpoint for a request, by the hash of its key if it has one; none if there are no endpoints.
    /// Unavailable endpoints are chosen only if no available one is left, and `tried` ones only if no other is left.
    pub fn pick(&self, endpoints: &[Arc<Endpoint>], tried: &[usize], hash_key: Option<u64>) -> Option<usize> {
        if endpoints.len() <= 1 {
            return (!endpoints.is_empty()).then_some(0);
        }
        let is_new = |index: usize| !tried.contains(&index);
        let share = |index: usize| if is_new(index) { endpoints[index].share() } else { 0 };
        let available = self.among(endpoints, share, hash_key);
        if available.is_some() {
            return available;
        }
        let untried = self.among(endpoints, |index| u32::from(is_new(index)), hash_key);
        untried.or_else(|| self.among(endpoints, |_| 1, hash_key))
    }

    /// The index of an endpoint with a share above 0.
    fn among(
        &self,
        endpoints: &[Arc<Endpoint>],
        share: impl Fn(usize) -> u32,
        hash_key: Option<u64>,
    ) -> Option<usize> {
        let count = endpoints.len();
        let load = |index: usize| Load { in_flight: endpoints[index].in_flight(), share: share(index) };
        match (self.balance, hash_key) {
            (Balance::LeastRequests, _) => {
                let least = (0..count).map(load).filter(|load| load.share > 0).reduce(Load::less)?;
                // Endpoints with equal load take turns.
                let share = |index: usize| {
                    let load = load(index);
                    if load.is_over(least) { 0 } else { load.share }
                };
                self.round_robin.next(count, share)
            }
            (Balance::PowerOfTwo, _) => {
                let one = draw(count, &share)?;
                let other = draw(count, |index| if index == one { 0 } else { share(index) });
                Some(other.filter(|&other| load(one).is_over(load(other))).unwrap_or(one))
            }
            (Balance::Hash, Some(key)) => rendezvous(endpoints, share, key),
            (Balance::RoundRobin | Balance::Hash, _) => self.round_robin.next(count, share),
        }
    }
}

/// Requests in flight, relative to a share.
#[derive(Clone, Copy, Debug)]
struct Load {
    in_flight: usize,
    share: u32,
}

impl Load {
    /// Whether this load is higher. The fractions are compared by cross-multiplication.
    fn is_over(self, other: Self) -> bool {
        let cross = |one: Self, other: Self| one.in_flight as u128 * u128::from(other.share);
        cross(self, other) > cross(other, self)
    }

    fn less(self, other: Self) -> Self {
        if self.is_over(other) { other } else { self }
    }
}

impl RoundRobin {
    /// The next of `count` indices; none if none has a share above 0.
    fn next(&self, count: usize, share: impl Fn(usize) -> u32) -> Option<usize> {
        let mut credits = self.credits.borrow_mut();
        credits.resize(count, 0);
        let (mut sum, mut richest) = (0, None);
        for index in 0..count {
            let share = i64::from(share(index));
            if share == 0 {
                // An unavailable endpoint collects no credit.
                credits[index] = credits[index].min(0);
                continue;
            }
            credits[index] += share;
            sum += share;
            if richest.is_none_or(|richest: usize| credits[index] > credits[richest]) {
                richest = Some(index);
            }
        }
        credits[richest?] -= sum;
        richest
    }
}

/// An index drawn at random, with a probability proportional to its share.
fn draw(count: usize, share: impl Fn(usize) -> u32) -> Option<usize> {
    let sum: u64 = (0..count).map(|index| u64::from(share(index))).sum();
    if sum == 0 {
        return None;
    }
    let mut rest = fastrand::u64(..sum);
    (0..count).find(|&index| {
        let share = u64::from(share(index));
        let is_drawn = rest < share;
        rest = rest.saturating_sub(share);
        is_drawn
    })
}

/// Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): each endpoint gets a score from the key, its id and
/// its share, and the highest wins. When an endpoint is removed, only its own keys move.
#[expect(clippy::cast_precision_loss, reason = "a score needs no more than 53 bits")]
fn rendezvous(endpoints: &[Arc<Endpoint>], share: impl Fn(usize) -> u32, key: u64) -> Option<usize> {
    let score = |index: usize| {
        let uniform = ((mix(key ^ endpoints[index].id) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(share(index)) / uniform.ln()
    };
    let indices = (0..endpoints.len()).filter(|&index| share(index) > 0);
    indices
        .map(|index| (index, score(index)))
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .map(|best| best.0)
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014): each bit of its input changes half of its output.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Endpoints with these shares.
    fn endpoints(shares: &[u32]) -> Vec<Arc<Endpoint>> {
        let endpoint = |(number, share): (u8, &u32)| {
            let endpoint = Endpoint::new(0, "http://a", ([10, 0, 0, number], 80).into(), 1);
            endpoint.set_share(*share);
            Arc::new(endpoint)
        };
        (0..).zip(shares).map(endpoint).collect()
    }

    fn turns(shares: &[u32], count: usize) -> Vec<usize> {
        let (balancer, endpoints) = (Balancer::new(Balance::RoundRobin), endpoints(shares));
        (0..count).map(|_| balancer.pick(&endpoints, &[], None).unwrap()).collect()
    }

    /// How often each index was picked.
    fn tally(indices: &[usize], count: usize) -> Vec<usize> {
        (0..count).map(|index| indices.iter().filter(|picked| **picked == index).count()).collect()
    }

    #[test]
    fn endpoints_of_equal_weight_take_turns() {
        assert_eq!(turns(&[1, 1, 1], 6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(turns(&[7], 3), [0, 0, 0]);
    }

    #[test]
    fn requests_are_spread_evenly_by_weight() {
        assert_eq!(turns(&[1, 2, 1], 8), [1, 0, 2, 1, 1, 0, 2, 1]);
        assert_eq!(tally(&turns(&[5, 1], 600), 2), [500, 100]);
    }

    #[test]
    fn unavailable_endpoints_get_no_requests_and_no_credit() {
        assert_eq!(turns(&[1, 0, 1], 4), [0, 2, 0, 2]);
        let (balancer, endpoints) = (Balancer::new(Balance::RoundRobin), endpoints(&[1, 0]));
        let pick = || balancer.pick(&endpoints, &[], None).unwrap();
        assert_eq!([(); 50].map(|()| pick()), [0; 50]);
        endpoints[1].set_share(1);
        assert_eq!(tally(&[(); 10].map(|()| pick()), 2), [5, 5]);
    }

    #[test]
    fn tried_endpoints_come_last_after_unavailable_ones() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::PowerOfTwo, Balance::Hash] {
            let (balancer, endpoints) = (Balancer::new(balance), endpoints(&[1, 1, 0]));
            for key in 0..20 {
                let pick = |tried: &[usize]| balancer.pick(&endpoints, tried, Some(key)).unwrap();
                assert_eq!((pick(&[0]), pick(&[1]), pick(&[0, 1])), (1, 0, 2), "{balance:?}");
                assert!(pick(&[0, 1, 2]) < 3);
            }
            assert_eq!(balancer.pick(&[], &[], Some(1)), None);
        }
    }

    #[test]
    fn least_requests_balances_by_weight() {
        let (balancer, endpoints) = (Balancer::new(Balance::LeastRequests), endpoints(&[1, 2, 1]));
        for _ in 0..40 {
            endpoints[balancer.pick(&endpoints, &[], None).unwrap()].request_started();
        }
        assert_eq!([0, 1, 2].map(|index: usize| endpoints[index].in_flight()), [10, 20, 10]);
        // An endpoint that finishes requests gets more.
        (0..7).for_each(|_| endpoints[2].request_finished());
        let more: Vec<usize> = (0..7)
            .map(|_| {
                let index = balancer.pick(&endpoints, &[], None).unwrap();
                endpoints[index].request_started();
                index
            })
            .collect();
        assert_eq!(more, [2; 7]);
    }

    #[test]
    fn power_of_two_takes_the_endpoint_with_fewer_requests() {
        let (balancer, endpoints) = (Balancer::new(Balance::PowerOfTwo), endpoints(&[1, 1, 1]));
        (0..5).for_each(|_| endpoints[0].request_started());
        let indices: Vec<usize> = (0..300).map(|_| balancer.pick(&endpoints, &[], None).unwrap()).collect();
        let tally = tally(&indices, 3);
        // The busy one loses against any other.
        assert_eq!(tally[0], 0);
        assert!(tally[1] > 75 && tally[2] > 75, "{tally:?}");
    }

    #[test]
    fn keys_are_spread_by_weight_and_move_only_when_they_must() {
        let (balancer, endpoints) = (Balancer::new(Balance::Hash), endpoints(&[1000, 2000, 1000, 0]));
        let indices = || -> Vec<usize> {
            let key = |number: u64| mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (0..4000).map(|number| balancer.pick(&endpoints, &[], Some(key(number))).unwrap()).collect()
        };
        let before = indices();
        assert_eq!(before, indices());
        let tally = tally(&before, 4);
        assert!((800..1200).contains(&tally[0]) && (1750..2250).contains(&tally[1]), "{tally:?}");
        endpoints[0].set_share(0);
        for (before, after) in before.iter().zip(indices()) {
            assert!(*before == 0 || *before == after);
            assert_ne!(after, 0);
        }
        // A new endpoint takes keys from all others, and no other key moves.
        endpoints[0].set_share(1000);
        endpoints[3].set_share(1000);
        let moved: Vec<usize> = before
            .iter()
            .zip(indices())
            .filter(|(before, after)| *before != after)
            .map(|pair| pair.1)
            .collect();
        assert!(moved.iter().all(|after| *after == 3));
        assert!((600..1000).contains(&moved.len()), "{}", moved.len());
    }
}
