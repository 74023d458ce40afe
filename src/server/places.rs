//! Places for connections of clients on one address, over all workers: so many in all, and so many for each client.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Parts of the table of clients, so that workers that accept at once seldom wait for each other.
const SHARDS: usize = 16;

/// Which places there were none of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Of all.
    #[error("{0} connections are open")]
    Listener(usize),
    /// Of those that a client may have.
    #[error("{0} connections of this client are open")]
    Client(NonZeroUsize),
}

/// The places on one address.
#[derive(Debug, Default)]
pub struct Places {
    taken: AtomicUsize,
    /// Connections by client, where those are bounded: no more entries than connections are open.
    clients: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
    hasher: RandomState,
    refused: [AtomicU64; 2],
}

/// A place that is taken until the value is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: Option<IpAddr>,
}

impl Places {
    /// Takes one of `max` places.
    ///
    /// # Errors
    /// When all of them are taken.
    pub(super) fn take(self: &Arc<Self>, max: usize) -> Result<Place, Full> {
        let place = Place { places: Arc::clone(self), client: None };
        if self.taken.fetch_add(1, Ordering::Relaxed) < max {
            return Ok(place);
        }
        self.refused[0].fetch_add(1, Ordering::Relaxed);
        Err(Full::Listener(max))
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many connections got none: because there was none at all, and because their client had all of its own.
    #[must_use]
    pub fn refused(&self) -> [u64; 2] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn shard(&self, client: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        let hash = self.hasher.hash_one(client);
        // The remainder is below the number of shards.
        &self.clients[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl Place {
    /// Gives the place to a client, which may have `max` of them.
    ///
    /// # Errors
    /// When it has as many already.
    pub fn give_to(&mut self, client: IpAddr, max: NonZeroUsize) -> Result<(), Full> {
        let mut shard = self.places.shard(client).lock();
        let taken = shard.entry(client).or_default();
        if *taken >= max.get() {
            self.places.refused[1].fetch_add(1, Ordering::Relaxed);
            return Err(Full::Client(max));
        }
        *taken += 1;
        self.client = Some(client);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        if let Some(client) = self.client {
            let mut shard = self.places.shard(client).lock();
            if let Some(taken) = shard.get_mut(&client) {
                *taken -= 1;
                if *taken == 0 {
                    shard.remove(&client);
                }
            }
            if shard.len() < shard.capacity() / 8 {
                // Many were here at once, and are gone.
                shard.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_taken_than_there_are() {
        let places = Arc::new(Places::default());
        let [first, second] = [(); 2].map(|()| places.take(2).unwrap());
        assert_eq!(places.take(2).unwrap_err(), Full::Listener(2));
        assert_eq!((places.taken(), places.refused()), (2, [1, 0]));
        drop(first);
        assert!(places.take(2).is_ok());
        drop(second);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn a_client_has_its_places_and_leaves_nothing_behind() {
        let places = Arc::new(Places::default());
        let two = NonZeroUsize::new(2).unwrap();
        let take = |client: &str| {
            let mut place = places.take(1_000)?;
            place.give_to(client.parse().unwrap(), two).map(|()| place)
        };
        let known = || places.clients.iter().map(|shard| shard.lock().len()).sum::<usize>();
        let mut kept = vec![take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap()];
        assert_eq!(take("192.0.2.1").unwrap_err(), Full::Client(two));
        kept.extend((0..500).map(|number| take(&format!("2001:db8::{number:x}")).unwrap()));
        assert_eq!((places.taken(), known(), places.refused()), (502, 501, [0, 1]));
        kept.remove(0);
        kept.push(take("192.0.2.1").unwrap());
        assert!(take("192.0.2.1").is_err());
        drop(kept);
        assert_eq!((places.taken(), known()), (0, 0));
        let rooms = places.clients.iter().map(|shard| shard.lock().capacity()).sum::<usize>();
        // Each part shrinks when it has six at most, which takes room for seven.
        assert!(rooms <= 7 * SHARDS, "{rooms}");
    }
}
