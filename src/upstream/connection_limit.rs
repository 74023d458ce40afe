//! How many connections a process may have to one address, and who is next when they are all in use.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::connection_use::{ConnectionUse, bits};
use super::fair_queue::FairQueue;

/// How long no connection is looked for after there was none to reclaim: each waiting request asks for one.
const RECLAIM_PAUSE: Duration = Duration::from_millis(50);

/// Stands for one worker, which is told by it that others wait for connections that it keeps.
pub type WorkerWaker = Arc<Notify>;

/// Room for connections to one address, shared by all workers. It is locked when a connection comes or goes; a
/// request that goes over one that was kept only looks whether somebody waits.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    most: usize,
    line: Mutex<Line>,
    /// How many wait, for those who look without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Line {
    /// Connections that are open, or about to be.
    open: Vec<Arc<ConnectionUse>>,
    /// Those who wait.
    waiters: FairQueue<Waiter>,
    /// The number of the next one.
    next: u64,
    /// When there was no connection to reclaim for the last time.
    none_to_reclaim: Option<Instant>,
}

/// Somebody who waits for a connection.
#[derive(Debug)]
pub(super) struct Waiter {
    pub number: u64,
    worker: WorkerWaker,
    tell: oneshot::Sender<Grant>,
}

/// What ends a wait.
#[derive(Debug)]
pub(super) enum Grant {
    /// There is room for a new connection.
    Place(ConnectionPermit),
    /// A connection of the same worker has come free, and is kept under the waiter's number.
    Handed,
}

/// Who is next.
#[derive(Debug)]
pub(super) enum Next {
    /// Nobody waits.
    Nobody,
    /// Somebody of the same worker, who is out of the line now.
    Here(Waiter),
    /// Somebody of another worker, to whom a connection can't be handed: its place can.
    Elsewhere,
}

/// The right to one connection; dropped with it, it goes to whoever is next.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    room: Arc<ConnectionLimit>,
    connection: Arc<ConnectionUse>,
}

/// What one client has of the connections to one address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Connections that its requests use.
    pub held: usize,
    /// Connections that there may be.
    pub most: usize,
    /// Whether requests of other clients wait.
    pub others_wait: bool,
}

impl ConnectionLimit {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, line: Mutex::default(), waiting: AtomicUsize::new(0) })
    }

    /// A place, if one is free and nobody waits for it.
    pub fn enter(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut line = self.line.lock();
        let is_free = line.open.len() < self.most && line.waiters.is_empty();
        is_free.then(|| self.place(&mut line))
    }

    /// A place in any case.
    pub fn enter_over(self: &Arc<Self>) -> ConnectionPermit {
        self.place(&mut self.line.lock())
    }

    fn place(self: &Arc<Self>, line: &mut Line) -> ConnectionPermit {
        let connection = Arc::new(ConnectionUse::new());
        line.open.push(Arc::clone(&connection));
        ConnectionPermit { room: Arc::clone(self), connection }
    }

    /// Whether [`ConnectionLimit::enter`] would give a place.
    pub fn is_free(&self) -> bool {
        let line = self.line.lock();
        line.open.len() < self.most && line.waiters.is_empty()
    }

    /// Connections that are open, or about to be.
    pub fn open(&self) -> usize {
        self.line.lock().open.len()
    }

    /// Whether anybody waits.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// What this client has of the connections.
    pub fn share(&self, client: IpAddr) -> Share {
        let line = self.line.lock();
        let held = line.open.iter().filter(|connection| connection.is_by(client)).count();
        Share { held, most: self.most, others_wait: line.waiters.has_others(client) }
    }

    /// Takes a connection for a waiting request of `client` from a client that holds more than a quarter of all, and is
    /// too slow; says whether there was one. A client that holds as much itself gets none.
    pub fn reclaim(&self, client: IpAddr, now: Instant) -> bool {
        let mut line = self.line.lock();
        if line.none_to_reclaim.is_some_and(|at| now < at + RECLAIM_PAUSE) {
            return false;
        }
        // A wake-up may have come while the connection was polled, and have been lost.
        line.open
            .iter()
            .filter(|connection| connection.is_reclaimed())
            .for_each(|connection| connection.wake());
        if !line.open.iter().any(|connection| connection.is_slow(now)) {
            line.none_to_reclaim = Some(now);
            return false;
        }
        let mut held = HashMap::<u128, usize>::new();
        for connection in &line.open {
            *held.entry(connection.client()).or_default() += 1;
        }
        let has_too_much = |client| held.get(&client).is_some_and(|held| held * 4 > self.most);
        if !held.values().any(|held| held * 4 > self.most) {
            line.none_to_reclaim = Some(now);
            return false;
        }
        if has_too_much(bits(client)) {
            return false;
        }
        let slow = line.open.iter().filter(|other| other.is_slow(now) && has_too_much(other.client()));
        // The one that has been slow for longest; if it has gone on just now there is a next time.
        slow.min_by_key(|other| other.slow_from()).is_some_and(|slowest| slowest.reclaim(now))
    }

    /// Refuses the newest waiting request of the client that has the most, in favour of `client`; says whether there is
    /// one that has more than its turn.
    pub fn displace(&self, client: IpAddr) -> bool {
        let mut line = self.line.lock();
        let displaced = line.waiters.displace(client);
        self.count(&line);
        drop(line);
        // Dropping the sender of its channel tells the displaced request.
        displaced.is_some()
    }

    /// Joins the line behind other requests of the same client, under a number.
    pub fn wait(self: &Arc<Self>, worker: &WorkerWaker, client: IpAddr) -> (u64, oneshot::Receiver<Grant>) {
        let (tell, told) = oneshot::channel();
        let mut line = self.line.lock();
        let number = line.next;
        line.next += 1;
        if line.open.len() < self.most && line.waiters.is_empty() {
            // A place came free since this one looked.
            let place = self.place(&mut line);
            drop(line);
            // It can't fail: the receiver is still here.
            let _ = tell.send(Grant::Place(place));
            return (number, told);
        }
        line.waiters.push(client, Waiter { number, worker: Arc::clone(worker), tell });
        self.count(&line);
        (number, told)
    }

    /// Leaves the line, if still there.
    pub fn leave(&self, number: u64) {
        let mut line = self.line.lock();
        line.waiters.retain(|waiter| waiter.number != number);
        self.count(&line);
    }

    /// Who gets a connection that has come free on this worker.
    pub fn next_for(&self, worker: &WorkerWaker) -> Next {
        let mut line = self.line.lock();
        let Some(first) = line.waiters.front() else { return Next::Nobody };
        if !Arc::ptr_eq(&first.worker, worker) {
            return Next::Elsewhere;
        }
        let first = line.waiters.pop();
        self.count(&line);
        first.map_or(Next::Nobody, Next::Here)
    }

    fn count(&self, line: &Line) {
        self.waiting.store(line.waiters.len(), Ordering::Relaxed);
    }
}

impl ConnectionPermit {
    /// Who uses the connection.
    pub fn connection(&self) -> &Arc<ConnectionUse> {
        &self.connection
    }
}

impl Waiter {
    /// Ends the wait; says whether there was still somebody.
    pub fn tell(self, grant: Grant) -> bool {
        self.tell.send(grant).is_ok()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let room = &self.room;
        let mut line = room.line.lock();
        if let Some(own) = line.open.iter().position(|other| Arc::ptr_eq(other, &self.connection)) {
            line.open.swap_remove(own);
        }
        let next = if line.open.len() < room.most { line.waiters.pop() } else { None };
        let next = next.map(|next| (next, room.place(&mut line)));
        room.count(&line);
        drop(line);
        if let Some((next, place)) = next {
            // If nobody is there to take it, it is dropped here, and goes to the one after.
            let _ = next.tell(Grant::Place(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::recent;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn places_are_bounded_and_go_to_the_first_in_line() {
        let (room, worker) = (ConnectionLimit::new(2), WorkerWaker::default());
        let one = room.enter().unwrap();
        let _two = room.enter().unwrap();
        assert!(room.enter().is_none() && !room.is_free() && !room.is_awaited());
        let (_, mut first) = room.wait(&worker, client(1));
        let (number, second) = room.wait(&worker, client(1));
        let (_, mut third) = room.wait(&worker, client(1));
        // Who leaves is passed over, whether it says so or is just gone.
        drop(second);
        drop(one);
        let Ok(Grant::Place(place)) = first.try_recv() else { panic!() };
        assert!(third.try_recv().is_err());
        drop(place);
        assert!(matches!(third.try_recv(), Ok(Grant::Place(_))));
        room.leave(number);
        assert!(!room.is_awaited());
        assert_eq!(room.open(), 1);
        drop(room.wait(&worker, client(1)));
        assert_eq!(room.open(), 1);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        let (room, worker) = (ConnectionLimit::new(1), WorkerWaker::default());
        let place = room.enter().unwrap();
        let (number, _told) = room.wait(&worker, client(1));
        assert!(room.is_awaited());
        drop(place);
        // It belongs to the one who waits, even before that one has taken it.
        assert!(room.enter().is_none());
        room.leave(number);
    }

    #[test]
    fn a_connection_goes_to_its_own_worker_and_a_place_to_any() {
        let (room, here, there) = (ConnectionLimit::new(1), WorkerWaker::default(), WorkerWaker::default());
        let place = room.enter().unwrap();
        assert!(matches!(room.next_for(&here), Next::Nobody));
        let (_, mut first) = room.wait(&there, client(1));
        let (number, mut second) = room.wait(&here, client(1));
        assert!(matches!(room.next_for(&here), Next::Elsewhere));
        drop(place);
        let Ok(Grant::Place(_place)) = first.try_recv() else { panic!() };
        let Next::Here(waiter) = room.next_for(&here) else { panic!() };
        assert_eq!(waiter.number, number);
        assert!(waiter.tell(Grant::Handed));
        assert!(matches!(second.try_recv(), Ok(Grant::Handed)));
    }

    #[test]
    fn waiting_clients_take_turns() {
        let (room, worker) = (ConnectionLimit::new(1), WorkerWaker::default());
        let mut place = room.enter();
        let mut told: Vec<_> =
            [1, 1, 1, 2].map(|number| room.wait(&worker, client(number)).1).into_iter().collect();
        for next in [0, 3, 1, 2] {
            drop(place.take());
            let Ok(Grant::Place(granted)) = told[next].try_recv() else { panic!("{next}") };
            place = Some(granted);
        }
    }

    #[test]
    fn a_slow_client_that_holds_more_than_a_quarter_gives_way() {
        let room = ConnectionLimit::new(8);
        let places: Vec<ConnectionPermit> = std::iter::from_fn(|| room.enter()).collect();
        for (number, place) in [1, 1, 2, 3, 3, 3, 3, 3].into_iter().zip(&places) {
            place.connection().begin(client(number));
        }
        let later = recent() + Duration::from_mins(1);
        // Each look is late enough not to be left out after one that found none.
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            later + looks * RECLAIM_PAUSE
        };
        let reclaimed = || places.iter().position(|place| place.connection().is_reclaimed());
        // No client is slow, and then only clients that hold at most a quarter are.
        assert!(!room.reclaim(client(4), look()));
        let slow =
            |place: &ConnectionPermit| place.connection().wait_for_client(Some(Duration::from_secs(1)));
        places[..3].iter().for_each(slow);
        assert!(!room.reclaim(client(4), look()));
        slow(&places[6]);
        assert!(!room.reclaim(client(3), look()), "it has too much itself");
        assert!(!room.reclaim(client(4), recent()), "it is not slow yet");
        assert!(room.reclaim(client(4), look()) && reclaimed() == Some(6));
        assert!(!room.reclaim(client(4), look()));
        let share = room.share(client(3));
        assert_eq!((share.held, share.most, share.others_wait), (5, 8, false));
    }
}
