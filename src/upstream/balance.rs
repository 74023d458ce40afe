//! Which server a request goes to.

use std::cell::RefCell;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::spec::Balance;

/// One worker's choice among the endpoints of an upstream.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    balance: Balance,
    turn: RoundRobin,
}

/// Weighted round robin, smooth: a server of weight 2 among two of weight 1 gets every other request, not
/// two in a row. At each turn every server gains its weight, and the one that has most pays the sum of all.
#[derive(Debug, Default)]
struct RoundRobin {
    credits: RefCell<Vec<i64>>,
}

impl Balancer {
    pub fn new(balance: Balance) -> Self {
        Self { balance, turn: RoundRobin::default() }
    }

    /// The place of the endpoint for a request with this key, if it has one; none where there are no endpoints.
    /// Those that were `tried` before come last, and before them those that are out.
    pub fn pick(&self, endpoints: &[Arc<Endpoint>], tried: &[usize], key: Option<u64>) -> Option<usize> {
        if endpoints.len() <= 1 {
            return (!endpoints.is_empty()).then_some(0);
        }
        let is_new = |place: usize| !tried.contains(&place);
        let shares = |place: usize| if is_new(place) { endpoints[place].share() } else { 0 };
        let picked = self.among(endpoints, shares, key);
        if picked.is_some() {
            return picked;
        }
        let rest = self.among(endpoints, |place| u32::from(is_new(place)), key);
        rest.or_else(|| self.among(endpoints, |_| 1, key))
    }

    /// The place of one that has a share.
    fn among(
        &self,
        endpoints: &[Arc<Endpoint>],
        share: impl Fn(usize) -> u32,
        key: Option<u64>,
    ) -> Option<usize> {
        let count = endpoints.len();
        let load = |place: usize| Load { in_flight: endpoints[place].in_flight(), share: share(place) };
        match (self.balance, key) {
            (Balance::LeastRequests, _) => {
                let least = (0..count).map(load).filter(|load| load.share > 0).reduce(Load::less)?;
                // Equals take turns.
                let share = |place: usize| {
                    let load = load(place);
                    if load.is_over(least) { 0 } else { load.share }
                };
                self.turn.next(count, share)
            }
            (Balance::PowerOfTwo, _) => {
                let one = drawn(count, &share)?;
                let other = drawn(count, |place| if place == one { 0 } else { share(place) });
                Some(other.filter(|&other| load(one).is_over(load(other))).unwrap_or(one))
            }
            (Balance::Hash, Some(key)) => rendezvous(endpoints, share, key),
            (Balance::RoundRobin | Balance::Hash, _) => self.turn.next(count, share),
        }
    }
}

/// Requests in flight, for a share of them.
#[derive(Clone, Copy, Debug)]
struct Load {
    in_flight: usize,
    share: u32,
}

impl Load {
    /// Whether it is more than another: fractions, compared crosswise.
    fn is_over(self, other: Self) -> bool {
        let cross = |one: Self, other: Self| one.in_flight as u128 * u128::from(other.share);
        cross(self, other) > cross(other, self)
    }

    fn less(self, other: Self) -> Self {
        if self.is_over(other) { other } else { self }
    }
}

impl RoundRobin {
    /// The place of the one whose turn it is among so many; none if no one has a share.
    fn next(&self, count: usize, share: impl Fn(usize) -> u32) -> Option<usize> {
        let mut credits = self.credits.borrow_mut();
        credits.resize(count, 0);
        let (mut sum, mut richest) = (0, None);
        for place in 0..count {
            let share = i64::from(share(place));
            if share == 0 {
                // Nobody saves up while it is out.
                credits[place] = credits[place].min(0);
                continue;
            }
            credits[place] += share;
            sum += share;
            if richest.is_none_or(|richest: usize| credits[place] > credits[richest]) {
                richest = Some(place);
            }
        }
        credits[richest?] -= sum;
        richest
    }
}

/// A place that is drawn with a chance as its share is.
fn drawn(count: usize, share: impl Fn(usize) -> u32) -> Option<usize> {
    let sum: u64 = (0..count).map(|place| u64::from(share(place))).sum();
    if sum == 0 {
        return None;
    }
    let mut left = fastrand::u64(..sum);
    (0..count).find(|&place| {
        let share = u64::from(share(place));
        let is_here = left < share;
        left = left.saturating_sub(share);
        is_here
    })
}

/// Weighted rendezvous hashing (Schindelhauer and Schomaker, 2005): each endpoint draws a number from the key and
/// its own name, and the highest for its share wins. When one leaves, only its own keys move.
#[allow(clippy::cast_precision_loss)] // 53 bits are plenty to draw a number.
fn rendezvous(endpoints: &[Arc<Endpoint>], share: impl Fn(usize) -> u32, key: u64) -> Option<usize> {
    let score = |place: usize| {
        let drawn = (mixed(key ^ endpoints[place].id) >> 11) as f64 + 0.5;
        -f64::from(share(place)) / (drawn / (1_u64 << 53) as f64).ln()
    };
    let places = (0..endpoints.len()).filter(|&place| share(place) > 0);
    places
        .map(|place| (place, score(place)))
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .map(|best| best.0)
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014): each bit of its input changes half of its output.
fn mixed(mut bits: u64) -> u64 {
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

    /// How often each place was picked.
    fn tally(places: &[usize], count: usize) -> Vec<usize> {
        (0..count).map(|place| places.iter().filter(|picked| **picked == place).count()).collect()
    }

    #[test]
    fn equals_take_turns() {
        assert_eq!(turns(&[1, 1, 1], 6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(turns(&[7], 3), [0, 0, 0]);
    }

    #[test]
    fn weights_are_shares_and_spread_out() {
        assert_eq!(turns(&[1, 2, 1], 8), [1, 0, 2, 1, 1, 0, 2, 1]);
        assert_eq!(tally(&turns(&[5, 1], 600), 2), [500, 100]);
    }

    #[test]
    fn those_that_are_out_get_nothing_and_save_nothing_up() {
        assert_eq!(turns(&[1, 0, 1], 4), [0, 2, 0, 2]);
        let (balancer, endpoints) = (Balancer::new(Balance::RoundRobin), endpoints(&[1, 0]));
        let pick = || balancer.pick(&endpoints, &[], None).unwrap();
        assert_eq!([(); 50].map(|()| pick()), [0; 50]);
        endpoints[1].set_share(1);
        assert_eq!(tally(&[(); 10].map(|()| pick()), 2), [5, 5]);
    }

    #[test]
    fn what_was_tried_comes_last_and_what_is_out_before_that() {
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
    fn least_requests_are_evened_out_by_weight() {
        let (balancer, endpoints) = (Balancer::new(Balance::LeastRequests), endpoints(&[1, 2, 1]));
        for _ in 0..40 {
            endpoints[balancer.pick(&endpoints, &[], None).unwrap()].request_started();
        }
        assert_eq!([0, 1, 2].map(|place: usize| endpoints[place].in_flight()), [10, 20, 10]);
        // One that gets on with its work gets more.
        (0..7).for_each(|_| endpoints[2].request_finished());
        let more: Vec<usize> = (0..7)
            .map(|_| {
                let place = balancer.pick(&endpoints, &[], None).unwrap();
                endpoints[place].request_started();
                place
            })
            .collect();
        assert_eq!(more, [2; 7]);
    }

    #[test]
    fn of_two_the_less_busy_one_is_taken() {
        let (balancer, endpoints) = (Balancer::new(Balance::PowerOfTwo), endpoints(&[1, 1, 1]));
        (0..5).for_each(|_| endpoints[0].request_started());
        let places: Vec<usize> = (0..300).map(|_| balancer.pick(&endpoints, &[], None).unwrap()).collect();
        let tally = tally(&places, 3);
        // Whoever is drawn beside the busy one goes before it.
        assert_eq!(tally[0], 0);
        assert!(tally[1] > 75 && tally[2] > 75, "{tally:?}");
    }

    #[test]
    fn keys_spread_by_weight_and_stay_where_they_are() {
        let (balancer, endpoints) = (Balancer::new(Balance::Hash), endpoints(&[1000, 2000, 1000, 0]));
        let places = || -> Vec<usize> {
            let key = |number: u64| mixed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (0..4000).map(|number| balancer.pick(&endpoints, &[], Some(key(number))).unwrap()).collect()
        };
        let before = places();
        assert_eq!(before, places());
        let tally = tally(&before, 4);
        assert!((800..1200).contains(&tally[0]) && (1750..2250).contains(&tally[1]), "{tally:?}");
        endpoints[0].set_share(0);
        for (before, after) in before.iter().zip(places()) {
            assert!(*before == 0 || *before == after);
            assert_ne!(after, 0);
        }
        // One that comes takes from all, and nothing else moves.
        endpoints[0].set_share(1000);
        endpoints[3].set_share(1000);
        let moved: Vec<usize> = before
            .iter()
            .zip(places())
            .filter(|(before, after)| *before != after)
            .map(|pair| pair.1)
            .collect();
        assert!(moved.iter().all(|after| *after == 3));
        assert!((600..1000).contains(&moved.len()), "{}", moved.len());
    }
}
