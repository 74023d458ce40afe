//! How many connections a process may have to one address, and who is next when they are all in use.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// Stands for one worker, which is told by it that others wait for connections that it keeps.
pub type WorkerBell = Arc<Notify>;

/// Room for connections to one address, shared by all workers. It is locked when a connection comes or goes; a
/// request that goes over one that was kept only looks whether somebody waits.
#[derive(Debug)]
pub(super) struct Room {
    most: usize,
    line: Mutex<Line>,
    /// How many wait, for those who look without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Line {
    /// Connections that are open, or about to be.
    open: usize,
    /// Those who wait, first come first.
    waiters: VecDeque<Waiter>,
    /// The number of the next one.
    next: u64,
}

/// Somebody who waits for a connection.
#[derive(Debug)]
pub(super) struct Waiter {
    pub number: u64,
    worker: WorkerBell,
    tell: oneshot::Sender<Grant>,
}

/// What ends a wait.
#[derive(Debug)]
pub(super) enum Grant {
    /// There is room for a new connection.
    Place(Place),
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
pub(super) struct Place(Arc<Room>);

impl Room {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, line: Mutex::default(), waiting: AtomicUsize::new(0) })
    }

    /// A place, if one is free and nobody waits for it.
    pub fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut line = self.line.lock();
        let is_free = line.open < self.most && line.waiters.is_empty();
        is_free.then(|| {
            line.open += 1;
            Place(Arc::clone(self))
        })
    }

    /// A place in any case.
    pub fn enter_over(self: &Arc<Self>) -> Place {
        self.line.lock().open += 1;
        Place(Arc::clone(self))
    }

    /// Whether [`Room::enter`] would give a place.
    pub fn is_free(&self) -> bool {
        let line = self.line.lock();
        line.open < self.most && line.waiters.is_empty()
    }

    /// Connections that are open, or about to be.
    pub fn open(&self) -> usize {
        self.line.lock().open
    }

    /// Whether anybody waits.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Joins the line at its end, under a number.
    pub fn wait(self: &Arc<Self>, worker: &WorkerBell) -> (u64, oneshot::Receiver<Grant>) {
        let (tell, told) = oneshot::channel();
        let mut line = self.line.lock();
        let number = line.next;
        line.next += 1;
        if line.open < self.most && line.waiters.is_empty() {
            // A place came free since this one looked.
            line.open += 1;
            drop(line);
            // It can't fail: the receiver is still here.
            let _ = tell.send(Grant::Place(Place(Arc::clone(self))));
            return (number, told);
        }
        line.waiters.push_back(Waiter { number, worker: Arc::clone(worker), tell });
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
    pub fn next_for(&self, worker: &WorkerBell) -> Next {
        let mut line = self.line.lock();
        let Some(first) = line.waiters.front() else { return Next::Nobody };
        if !Arc::ptr_eq(&first.worker, worker) {
            return Next::Elsewhere;
        }
        let first = line.waiters.pop_front();
        self.count(&line);
        first.map_or(Next::Nobody, Next::Here)
    }

    fn count(&self, line: &Line) {
        self.waiting.store(line.waiters.len(), Ordering::Relaxed);
    }
}

impl Waiter {
    /// Ends the wait; says whether there was still somebody.
    pub fn tell(self, grant: Grant) -> bool {
        self.tell.send(grant).is_ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let room = &self.0;
        let mut line = room.line.lock();
        let next = if line.open > room.most { None } else { line.waiters.pop_front() };
        if next.is_none() {
            line.open -= 1;
        }
        room.count(&line);
        drop(line);
        if let Some(next) = next {
            // If nobody is there to take it, it is dropped here, and goes to the one after.
            let _ = next.tell(Grant::Place(Place(Arc::clone(room))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_go_to_the_first_in_line() {
        let (room, worker) = (Room::new(2), WorkerBell::default());
        let one = room.enter().unwrap();
        let _two = room.enter().unwrap();
        assert!(room.enter().is_none() && !room.is_free() && !room.is_awaited());
        let (_, mut first) = room.wait(&worker);
        let (number, second) = room.wait(&worker);
        let (_, mut third) = room.wait(&worker);
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
        drop(room.wait(&worker));
        assert_eq!(room.open(), 1);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        let (room, worker) = (Room::new(1), WorkerBell::default());
        let place = room.enter().unwrap();
        let (number, _told) = room.wait(&worker);
        assert!(room.is_awaited());
        drop(place);
        // It belongs to the one who waits, even before that one has taken it.
        assert!(room.enter().is_none());
        room.leave(number);
    }

    #[test]
    fn a_connection_goes_to_its_own_worker_and_a_place_to_any() {
        let (room, here, there) = (Room::new(1), WorkerBell::default(), WorkerBell::default());
        let place = room.enter().unwrap();
        assert!(matches!(room.next_for(&here), Next::Nobody));
        let (_, mut first) = room.wait(&there);
        let (number, mut second) = room.wait(&here);
        assert!(matches!(room.next_for(&here), Next::Elsewhere));
        drop(place);
        let Ok(Grant::Place(_place)) = first.try_recv() else { panic!() };
        let Next::Here(waiter) = room.next_for(&here) else { panic!() };
        assert_eq!(waiter.number, number);
        assert!(waiter.tell(Grant::Handed));
        assert!(matches!(second.try_recv(), Ok(Grant::Handed)));
    }
}
