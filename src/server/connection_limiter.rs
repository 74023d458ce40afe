//! Places for connections of clients on one address, over all workers: so many in all, and so many for each client.
//!
//! When all are taken, a newcomer gets the place of an idle connection of the client that has the most.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::occupant::Occupant;

/// Parts of the table of clients, so that workers that accept at once seldom wait for each other.
const SHARDS: usize = 16;
/// The part of all connections that may be closing for newcomers at once.
const CLOSING_PART: usize = 16;

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

type Clients = HashMap<IpAddr, Vec<Arc<Occupant>>>;

/// The places on one address.
#[derive(Debug, Default)]
pub struct ConnectionLimiter {
    /// Connections that have a place.
    taken: AtomicUsize,
    /// Connections that have lost it to a newcomer, and are not closed yet.
    closing: AtomicUsize,
    /// Connections by client: no more entries than connections are open.
    clients: [Mutex<Clients>; SHARDS],
    hasher: RandomState,
    refused: [AtomicU64; 2],
}

/// A place that is taken until the value is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    places: Arc<ConnectionLimiter>,
    client: Option<IpAddr>,
    occupant: Arc<Occupant>,
}

impl ConnectionLimiter {
    /// Takes one of `max` places for a connection of this client, if it is known already.
    ///
    /// # Errors
    /// When all of them are taken, and no client that has more of them has an idle connection.
    pub(super) fn take(
        self: &Arc<Self>,
        max: usize,
        client: Option<IpAddr>,
    ) -> Result<ConnectionPermit, Full> {
        let place = ConnectionPermit { places: Arc::clone(self), client: None, occupant: Arc::default() };
        if self.taken.fetch_add(1, Ordering::Relaxed) < max || self.evict(max, client) {
            return Ok(place);
        }
        self.refused[0].fetch_add(1, Ordering::Relaxed);
        Err(Full::Listener(max))
    }

    /// How many connections are open.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed) + self.closing.load(Ordering::Relaxed)
    }

    /// How many connections got none: because there was none at all, and because their client had all of its own.
    #[must_use]
    pub fn refused(&self) -> [u64; 2] {
        self.refused.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Has an idle connection close of the client that has the most, if those are more than the newcomer has; says
    /// whether there was one.
    fn evict(&self, max: usize, newcomer: Option<IpAddr>) -> bool {
        if self.closing.load(Ordering::Relaxed) > max / CLOSING_PART {
            return false;
        }
        let own = newcomer.and_then(|client| self.shard(client).lock().get(&client).map(Vec::len));
        let mut largest = (own.unwrap_or(0), None);
        for shard in &self.clients {
            for (client, occupants) in shard.lock().iter() {
                if occupants.len() > largest.0 && occupants.iter().any(|occupant| occupant.is_idle()) {
                    largest = (occupants.len(), Some(*client));
                }
            }
        }
        let Some(client) = largest.1 else { return false };
        let mut shard = self.shard(client).lock();
        let Some(occupants) = shard.get_mut(&client) else { return false };
        let Some(idle) = occupants.iter().position(|occupant| occupant.is_idle()) else { return false };
        let evicted = occupants.remove(idle);
        if occupants.is_empty() {
            shard.remove(&client);
        }
        evicted.evict();
        self.closing.fetch_add(1, Ordering::Relaxed);
        self.taken.fetch_sub(1, Ordering::Relaxed);
        drop(shard);
        evicted.wake();
        tracing::debug!(%client, "an idle connection closes for a newcomer");
        true
    }

    fn shard(&self, client: IpAddr) -> &Mutex<Clients> {
        let hash = self.hasher.hash_one(client);
        // The remainder is below the number of shards.
        &self.clients[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl ConnectionPermit {
    /// Gives the place to a client, which may have `max` of them if that is bounded.
    ///
    /// # Errors
    /// When it has as many already.
    pub fn give_to(&mut self, client: IpAddr, max: Option<NonZeroUsize>) -> Result<(), Full> {
        let mut shard = self.places.shard(client).lock();
        let occupants = shard.entry(client).or_default();
        if let Some(max) = max.filter(|max| occupants.len() >= max.get()) {
            self.places.refused[1].fetch_add(1, Ordering::Relaxed);
            return Err(Full::Client(max));
        }
        occupants.push(Arc::clone(&self.occupant));
        self.client = Some(client);
        Ok(())
    }

    /// The connection that has it.
    pub fn occupant(&self) -> &Arc<Occupant> {
        &self.occupant
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let places = &self.places;
        // Locked over all of it: meanwhile the place can't be taken away.
        let mut shard = self.client.map(|client| (client, places.shard(client).lock()));
        if self.occupant.is_evicted() {
            places.closing.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        places.taken.fetch_sub(1, Ordering::Relaxed);
        let Some((client, shard)) = &mut shard else { return };
        if let Some(occupants) = shard.get_mut(client) {
            occupants.retain(|occupant| !Arc::ptr_eq(occupant, &self.occupant));
            if occupants.is_empty() {
                shard.remove(client);
            }
        }
        if shard.len() < shard.capacity() / 8 {
            // Many were here at once, and are gone.
            shard.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_taken_than_there_are() {
        let places = Arc::new(ConnectionLimiter::default());
        let [first, second] = [(); 2].map(|()| places.take(2, None).unwrap());
        assert_eq!(places.take(2, None).unwrap_err(), Full::Listener(2));
        assert_eq!((places.taken(), places.refused()), (2, [1, 0]));
        drop(first);
        assert!(places.take(2, None).is_ok());
        drop(second);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn a_client_has_its_places_and_leaves_nothing_behind() {
        let places = Arc::new(ConnectionLimiter::default());
        let two = NonZeroUsize::new(2).unwrap();
        let take = |client: &str| {
            let mut place = places.take(1_000, None)?;
            place.give_to(client.parse().unwrap(), Some(two)).map(|()| place)
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

    #[test]
    fn a_newcomer_gets_the_place_of_an_idle_connection_of_the_client_that_has_the_most() {
        let places = Arc::new(ConnectionLimiter::default());
        let take = |number: u8| {
            let client = [192, 0, 2, number].into();
            let mut place = places.take(8, Some(client))?;
            place.give_to(client, None).map(|()| place)
        };
        let held: Vec<ConnectionPermit> = [1, 2, 2, 2, 2, 3, 3, 3].map(|client| take(client).unwrap()).into();
        let idle = |number: usize| held[number].occupant().set_idle(true);
        let evicted = || held.iter().filter(|place| place.occupant().is_evicted()).count();
        assert_eq!(take(4).unwrap_err(), Full::Listener(8));
        [0, 5, 6].into_iter().for_each(idle);
        assert!(take(3).is_err(), "it has as many itself");
        let newcomer = take(4).unwrap();
        assert!(held[5].occupant().is_evicted() && evicted() == 1);
        // One at a time of so few may be closing.
        assert!(take(5).is_err());
        assert_eq!((places.taken(), places.refused()), (9, [3, 0]));
        drop(held);
        drop(newcomer);
        assert_eq!(places.taken(), 0);
        assert!(places.clients.iter().all(|shard| shard.lock().is_empty()));
    }
}
