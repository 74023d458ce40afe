//! Bounds how many requests start in one turn of a worker's event loop, fairly by client.
//!
//! A task that becomes ready runs after all that are ready already. HTTP/2 and pipelining allow a client to send hundreds of
//! requests at once. If all of them started, a turn would be long, and everything else that the worker has to read would
//! wait for its end: the requests of others, and the replies of Redis. So only some start in a turn. The others wait, and
//! each further turn is shared equally by the clients that have requests waiting, however many connections they have.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::overload::Turns;

/// How many requests may start in a turn: they take about a millisecond.
const STARTS: u32 = 64;
/// How many of them may be those of one connection while others wait.
const STARTS_OF_CONNECTION: u32 = 16;

/// The requests that start on one worker.
#[derive(Debug)]
pub(super) struct StartQueue {
    /// How many may still start in this turn; none while any wait.
    left: Cell<u32>,
    waiting: RefCell<Turns<IpAddr, Rc<QueuePlace>>>,
    /// The number of the next connection that waits.
    next_number: Cell<u64>,
    /// Notified when a request has to wait.
    exhausted: Notify,
}

/// The place of a connection in the queue.
#[derive(Default)]
struct QueuePlace {
    /// How many of its requests may start; none while it waits.
    starts: Cell<u32>,
    waker: Cell<Option<Waker>>,
}

/// One connection's access to the queue.
#[derive(Debug)]
pub(super) struct Starter {
    queue: Rc<StartQueue>,
    client: IpAddr,
    /// While it waits, and until it has used the starts that it got.
    place: Option<Rc<QueuePlace>>,
}

impl StartQueue {
    pub fn new() -> Self {
        Self {
            left: Cell::new(STARTS),
            waiting: RefCell::default(),
            next_number: Cell::new(0),
            exhausted: Notify::new(),
        }
    }

    /// The access of a connection of this client.
    pub fn starter(self: &Rc<Self>, client: IpAddr) -> Starter {
        Starter { queue: Rc::clone(self), client, place: None }
    }

    /// Adds a connection of this client that waits.
    fn push(&self, client: IpAddr) -> Rc<QueuePlace> {
        let place = Rc::<QueuePlace>::default();
        let number = self.next_number.replace(self.next_number.get() + 1);
        self.waiting.borrow_mut().push(client, number, Rc::clone(&place));
        self.exhausted.notify_one();
        place
    }

    /// Lets requests start that wait, a number in each turn; never returns.
    pub async fn run(&self) {
        loop {
            self.exhausted.notified().await;
            loop {
                // A task continues after this when all that were ready have run, and the sockets were looked at.
                tokio::task::yield_now().await;
                if !self.start_turn() {
                    break;
                }
            }
        }
    }

    /// Distributes the starts of a new turn; returns whether all of them are taken.
    fn start_turn(&self) -> bool {
        let (mut waiting, mut left) = (self.waiting.borrow_mut(), STARTS);
        while left > 0
            && let Some((_, place)) = waiting.pop_next()
        {
            if Rc::strong_count(&place) == 1 {
                // Its connection was closed.
                continue;
            }
            let starts = STARTS_OF_CONNECTION.min(left);
            left -= starts;
            place.starts.set(starts);
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
        self.left.set(left);
        left == 0
    }
}

impl std::fmt::Debug for QueuePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("starts", &self.starts).finish_non_exhaustive()
    }
}

impl Starter {
    /// Ready if a request may start; otherwise its connection waits for its turn.
    #[inline]
    pub fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.place.is_none() && take(&self.queue.left) {
            return Poll::Ready(());
        }
        self.poll_place(cx)
    }

    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { queue, client, place } = self;
        let waiting = place.get_or_insert_with(|| queue.push(*client));
        if !take(&waiting.starts) {
            waiting.waker.set(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        if waiting.starts.get() == 0 {
            *place = None;
        }
        Poll::Ready(())
    }
}

/// Takes one of these, if there is one.
fn take(starts: &Cell<u32>) -> bool {
    let left = starts.get().checked_sub(1);
    starts.set(left.unwrap_or(0));
    left.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 100 requests start now.
    fn started(starter: &mut Starter) -> usize {
        let cx = &mut Context::from_waker(Waker::noop());
        (0..100).take_while(|_| starter.poll_start(cx).is_ready()).count()
    }

    fn client(number: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, number])
    }

    #[test]
    fn clients_have_equal_parts_of_a_turn_however_many_connections_they_have() {
        let queue = Rc::new(StartQueue::new());
        let mut many: Vec<Starter> = (0..8).map(|_| queue.starter(client(1))).collect();
        let mut one = queue.starter(client(2));
        assert_eq!(many.iter_mut().map(started).collect::<Vec<_>>(), [64, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(started(&mut one), 0);
        assert!(queue.start_turn());
        assert_eq!(many.iter_mut().map(started).collect::<Vec<_>>(), [16, 16, 16, 0, 0, 0, 0, 0]);
        assert_eq!(started(&mut one), 16);
    }

    #[test]
    fn what_no_connection_waits_for_is_left_to_all() {
        let queue = Rc::new(StartQueue::new());
        let [mut first, mut second] = [1, 2].map(|number| queue.starter(client(number)));
        assert_eq!((started(&mut first), started(&mut second)), (64, 0));
        drop(first);
        assert!(!queue.start_turn());
        assert_eq!(started(&mut second), 64);
    }
}
