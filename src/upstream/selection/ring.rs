//! Consistent hashing: the endpoint of a key in logarithmic time.

use std::sync::Arc;

use super::turns::count_step;

/// The points of the endpoint with the largest weight. The part of the keys that an endpoint gets deviates from its share by
/// about one in the square root of its points.
const POINTS: u64 = 512;

/// A ring of points (Karger et al., 1997). An endpoint has points in proportion to its weight, which depend on nothing else,
/// and gets the keys between a point of another endpoint and its own. So when it leaves, only its keys move, and when it
/// comes it takes keys from all others.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    /// The position of each point in the upper half, and the index of its endpoint in the lower half; sorted.
    points: Arc<Vec<u64>>,
}

impl Ring {
    /// A ring of endpoints with these ids and weights.
    pub fn new(endpoints: impl Iterator<Item = (u64, u32)> + Clone) -> Self {
        let largest = endpoints.clone().map(|(_, weight)| weight).max().unwrap_or(1).max(1);
        let mut points = Vec::new();
        for (index, (id, weight)) in (0_u64..).zip(endpoints) {
            let count = (POINTS * u64::from(weight)).div_ceil(u64::from(largest));
            let position =
                |number: u64| mix(id.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 32;
            points.extend((1..=count).map(|number| position(number) << 32 | index));
        }
        points.sort_unstable();
        Self { points: Arc::new(points) }
    }

    /// The ring with a part of each endpoint's points, in units of 2^-32; a larger part has the points of a smaller one.
    pub fn with_parts(&self, parts: &[u64]) -> Self {
        if parts.iter().all(|part| *part >> 32 > 0) {
            return self.clone();
        }
        let is_kept = |point: &u64| mix(*point >> 32) >> 32 < parts[index(*point)];
        Self { points: Arc::new(self.points.iter().copied().filter(is_kept).collect()) }
    }

    /// The endpoints for a key: first its own, then those of the next points, some of them several times; each point once.
    pub fn endpoints(&self, key: u64) -> impl Iterator<Item = usize> {
        let position = mix(key) >> 32;
        let first = self.points.partition_point(|point| {
            count_step();
            point >> 32 < position
        });
        let (before, from) = self.points.split_at(first);
        from.iter().chain(before).map(|point| {
            count_step();
            index(*point)
        })
    }
}

/// The index of a point's endpoint.
fn index(point: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let index = point as u32;
    index as usize
}

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, 2014): each bit of its input changes half of its output.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
