//! Tests of load balancing.

use super::super::members::Member;
use super::super::turns;
use super::*;
use crate::config::defaults::server;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::server::PeerAddress;

const ALL: [Balance; 4] = [Balance::RoundRobin, Balance::LeastRequests, Balance::PowerOfTwo, Balance::Hash];

/// A load balancer over endpoints.
struct Balanced {
    balancer: Balancer,
    members: Arc<Members>,
    load: Arc<SharedLoad>,
}

impl Balanced {
    /// Endpoints with these shares.
    fn new(balance: Balance, shares: &[u32]) -> Self {
        Self::bounded(balance, shares, None)
    }

    fn bounded(balance: Balance, shares: &[u32], factor: Option<f64>) -> Self {
        let member = |(number, share): (u32, &u32)| {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
            let endpoint = Endpoint::new(0, &server("http://a"), PeerAddress::Tcp((address, 80).into()), 1);
            endpoint.set_share(*share);
            let weight = if *share == 0 { 1000 } else { *share };
            Member { endpoint: Arc::new(endpoint), weight, fallback: None, priority: 0 }
        };
        let members = Arc::new(Members::new((0..).zip(shares).map(member).collect()));
        let load = Arc::default();
        Self { balancer: Balancer::new(balance, factor, Arc::clone(&members), &load), members, load }
    }

    fn set_share(&self, index: usize, share: u32) {
        self.members[index].endpoint.set_share(share);
        self.load.shares_changed();
    }

    fn pick(&self, tried: &[usize], key: u64) -> usize {
        self.balancer.pick(tried, Some(key)).unwrap()
    }

    fn picks(&self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.balancer.pick(&[], None).unwrap()).collect()
    }

    /// Starts a request; returns the index of its endpoint.
    fn start(&self, key: u64) -> usize {
        let index = self.pick(&[], key);
        self.members[index].endpoint.request_started();
        self.load.request_started();
        index
    }

    fn start_all(&self, keys: impl Iterator<Item = u64>) {
        keys.for_each(|key| assert!(self.start(key) < self.members.len()));
    }

    fn in_flight(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.endpoint.in_flight()).collect()
    }
}

fn turns(shares: &[u32], count: usize) -> Vec<usize> {
    Balanced::new(Balance::RoundRobin, shares).picks(count)
}

/// How often each index was picked.
fn tally(indices: &[usize], count: usize) -> Vec<usize> {
    (0..count).map(|index| indices.iter().filter(|picked| **picked == index).count()).collect()
}

/// A key like those of requests.
fn key(number: u64) -> u64 {
    mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn endpoints_of_equal_weight_take_turns() {
    assert_eq!(turns(&[1, 1, 1], 6), [0, 1, 2, 0, 1, 2]);
    assert_eq!(turns(&[7], 3), [0, 0, 0]);
}

#[test]
fn requests_are_spread_evenly_by_weight() {
    assert_eq!(turns(&[1, 2, 1], 8), [1, 0, 1, 2, 1, 0, 1, 2]);
    assert_eq!(tally(&turns(&[5, 1], 600), 2), [500, 100]);
}

#[test]
fn unavailable_endpoints_get_no_requests_and_no_credit() {
    assert_eq!(turns(&[1, 0, 1], 4), [0, 2, 0, 2]);
    let balanced = Balanced::new(Balance::RoundRobin, &[1, 0]);
    assert_eq!(balanced.picks(50), [0; 50]);
    balanced.set_share(1, 1);
    assert_eq!(tally(&balanced.picks(10), 2), [5, 5]);
}

#[test]
fn tried_endpoints_come_last_after_unavailable_ones() {
    for balance in ALL {
        let balanced = Balanced::new(balance, &[1, 1, 0]);
        for number in 0..20 {
            let pick = |tried: &[usize]| balanced.pick(tried, key(number));
            assert_eq!((pick(&[0]), pick(&[1]), pick(&[0, 1])), (1, 0, 2), "{balance:?}");
            assert!(pick(&[0, 1, 2]) < 3);
        }
        assert_eq!(Balanced::new(balance, &[]).balancer.pick(&[], Some(1)), None);
    }
}

#[test]
fn least_requests_balances_by_weight() {
    let balanced = Balanced::new(Balance::LeastRequests, &[1, 2, 1]);
    balanced.start_all(0..40);
    assert_eq!(balanced.in_flight(), [10, 20, 10]);
    // An endpoint that finishes requests gets more.
    (0..7).for_each(|_| balanced.members[2].endpoint.request_finished());
    assert_eq!([(); 7].map(|()| balanced.start(0)), [2; 7]);
}

#[test]
fn endpoints_with_equal_load_take_turns() {
    for count in [3, 100] {
        let balanced = Balanced::new(Balance::LeastRequests, &vec![1; count]);
        let expected: Vec<usize> = (0..count).chain(0..count).collect();
        assert_eq!(balanced.picks(2 * count), expected);
    }
    // Also those that remain beside a busy one.
    let balanced = Balanced::new(Balance::LeastRequests, &[1, 1, 1]);
    balanced.members[0].endpoint.request_started();
    assert_eq!(tally(&balanced.picks(10), 3), [0, 5, 5]);
}

#[test]
fn least_requests_avoids_busy_endpoints_among_many() {
    let balanced = Balanced::new(Balance::LeastRequests, &[1; 100]);
    (0..50).for_each(|index| {
        (0..20).for_each(|_| balanced.members[index].endpoint.request_started());
    });
    balanced.start_all(0..1000);
    let in_flight = balanced.in_flight();
    // Were all busy endpoints compared, each of the idle half would get 20.
    assert!(in_flight[..50].iter().all(|count| *count <= 22), "{in_flight:?}");
    assert!(in_flight[50..].iter().all(|count| (15..=22).contains(count)), "{in_flight:?}");
}

#[test]
fn power_of_two_takes_the_endpoint_with_fewer_requests() {
    let balanced = Balanced::new(Balance::PowerOfTwo, &[1, 1, 1]);
    (0..5).for_each(|_| balanced.members[0].endpoint.request_started());
    let tally = tally(&balanced.picks(300), 3);
    // The busy one loses against any other.
    assert_eq!(tally[0], 0);
    assert!(tally[1] > 75 && tally[2] > 75, "{tally:?}");
}

#[test]
fn power_of_two_draws_by_weight() {
    let tally = tally(&Balanced::new(Balance::PowerOfTwo, &[1, 0, 8, 1]).picks(4000), 4);
    assert_eq!(tally[1], 0);
    assert!((300..500).contains(&tally[0]) && (3000..3400).contains(&tally[2]), "{tally:?}");
}

#[test]
fn keys_are_spread_by_weight_and_move_only_when_they_must() {
    let balanced = Balanced::new(Balance::Hash, &[1000, 2000, 1000, 0]);
    let indices = || -> Vec<usize> { (0..4000).map(|number| balanced.pick(&[], key(number))).collect() };
    let before = indices();
    assert_eq!(before, indices());
    let tally = tally(&before, 4);
    assert!((800..1200).contains(&tally[0]) && (1750..2250).contains(&tally[1]), "{tally:?}");
    balanced.set_share(0, 0);
    for (before, after) in before.iter().zip(indices()) {
        assert!(*before == 0 || *before == after);
        assert_ne!(after, 0);
    }
    // A new endpoint takes keys from all others, and no other key moves.
    balanced.set_share(0, 1000);
    let mut last = 0;
    for share in [10, 500, 1000] {
        balanced.set_share(3, share);
        let after = indices();
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(_, after)| **after == 3));
        assert!((0..3).all(|index| share < 500 || moved.iter().any(|(before, _)| **before == index)));
        assert!(moved.len() > last);
        last = moved.len();
    }
    assert!((600..1000).contains(&last), "{last}");
}

#[test]
fn one_server_among_many_takes_only_its_keys_with_it() {
    let balanced = Balanced::new(Balance::Hash, &[1000; 100]);
    let indices = || -> Vec<usize> { (0..20_000).map(|number| balanced.pick(&[], key(number))).collect() };
    let before = indices();
    let tally = tally(&before, 100);
    assert!(tally.iter().all(|keys| (120..300).contains(keys)), "{tally:?}");
    balanced.set_share(17, 0);
    let after = indices();
    let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    assert_eq!(moved.len(), tally[17]);
    assert!(moved.iter().all(|(before, _)| **before == 17));
    // They are spread over many others.
    let heirs: std::collections::HashSet<usize> = moved.iter().map(|(_, after)| **after).collect();
    assert!(heirs.len() > 50, "{}", heirs.len());
}

#[test]
fn requests_of_a_frequent_key_are_bounded() {
    let balanced = Balanced::bounded(Balance::Hash, &[1000, 1000, 2000], Some(1.25));
    let own = balanced.start(key(1));
    // Half of the requests have one key.
    for number in 0..400 {
        balanced.start(if number % 2 == 0 { key(1) } else { key(number) });
        let (in_flight, all) = (balanced.in_flight(), balanced.in_flight().iter().sum::<usize>());
        for (index, count) in in_flight.iter().enumerate() {
            let part = if index == 2 { 2 } else { 1 };
            let bound = (5 * all * part).div_ceil(16);
            assert!(*count <= bound, "{count} of {all} at {index}");
        }
    }
    // Without many requests in flight a key stays.
    for member in balanced.members.iter() {
        (0..member.endpoint.in_flight()).for_each(|_| {
            member.endpoint.request_finished();
            balanced.load.request_finished();
        });
    }
    assert_eq!(balanced.pick(&[], key(1)), own);
}

#[test]
fn the_steps_of_a_selection_do_not_grow_with_the_endpoints() {
    let bounded_hash = (Balance::Hash, Some(1.25));
    for (balance, factor) in ALL.map(|balance| (balance, None)).into_iter().chain([bounded_hash]) {
        let balanced = Balanced::bounded(balance, &[1000; 3000], factor);
        balanced.set_share(5, 0);
        balanced.pick(&[], key(0));
        turns::take_steps();
        balanced.start_all((0..1000).map(key));
        let mean = turns::take_steps() / 1000;
        // The heap and the ring are searched in steps in proportion to the logarithm.
        assert!((1..60).contains(&mean), "{balance:?}: {mean} steps");
        let tried = [1, 2, 3, 2_999];
        assert!((0..1000).all(|number| !tried.contains(&balanced.pick(&tried, key(number)))));
        let mean = turns::take_steps() / 1000;
        assert!(mean < 70, "{balance:?}: {mean} steps of a retry");
    }
}
