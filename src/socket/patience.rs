//! How long a read or a write may wait, and what it may bring.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::heads::Heads;
use super::rate::{RATE_GRACE, TransferRate};
use crate::time::recent;

/// How long a client waits with its next request before its connection rests.
pub(super) const REST_AFTER: Duration = Duration::from_millis(500);

/// What a socket's reader may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As long as it takes: nothing is owed to us.
    Unbounded,
    /// The same, but a client that closes its sending side is taken to be gone.
    UntilItEnds,
    /// Each read may take this long.
    Each(Duration),
    /// Until this instant, however much is read.
    Until(Instant),
    /// Until the instant; the first byte changes that to `Each` byte by then: a head has this long to be whole.
    HeadStartsBy(Instant, Duration),
}

/// Whether a client's connection has nothing to do, so that nothing but its socket need be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It has not been asked for anything, or that is known already.
    No,
    /// From then on, if the next head has not begun.
    From(Instant),
    /// Now.
    Now,
}

/// How patient a socket is; shared with whoever knows what it is used for at the moment.
#[derive(Debug)]
pub struct Patience {
    pub(super) reading: Cell<Reading>,
    pub(super) writing: Duration,
    /// How fast the body of the present request comes; counted while reads are [`Reading::Each`].
    receiving: Cell<TransferRate>,
    /// How fast the present response is taken.
    sending: Cell<TransferRate>,
    /// When the socket's task will be woken to look at the time; none if it will not.
    pub(super) alarm: Cell<Option<Instant>>,
    /// When all patience ends, whatever is read or written until then.
    pub(super) limit: Cell<Option<Instant>>,
    /// What may come before an answer, while one is waited for.
    pub(super) heads: Cell<Option<Heads>>,
    /// Whether this is a client: one that has asked may close its sending side, and still get its answer.
    is_client: bool,
    /// Whether it has done so, which the reader has not been told.
    pub(super) has_ended: Cell<bool>,
    /// Whether everything that was read has been taken, and more is waited for.
    pub(super) is_starved: Cell<bool>,
    /// Whether a write waits for the other side to read.
    pub(super) is_writing: Cell<bool>,
    /// Whether a body is on its way that has not come to its end.
    is_unfinished: Cell<bool>,
    /// Whether the connection should end after the present answer.
    is_last: Cell<bool>,
    /// Whether nothing more is read of it: a body that has not come to its end never will.
    is_gone: Cell<bool>,
    rest: Cell<Rest>,
    /// When a read brought something, or the end; none if that has not been yet.
    pub(super) heard: Cell<Option<Instant>>,
}

impl Patience {
    /// Patience for reads as told, and for each write as long as `writing`.
    #[must_use]
    pub fn new(reading: Reading, writing: Duration) -> Rc<Self> {
        Rc::new(Self::with(reading, writing, false))
    }

    /// The same for a client's socket: one that closes its sending side after its request still gets the answer,
    /// unless it takes none of it for two seconds; and what else a client sends while its connection is being
    /// closed is read for a while, because a socket that is closed over unread bytes takes the answer with it.
    #[must_use]
    pub fn of_client(reading: Reading, writing: Duration) -> Rc<Self> {
        Rc::new(Self::with(reading, writing, true))
    }

    fn with(reading: Reading, writing: Duration, is_client: bool) -> Self {
        Self {
            reading: Cell::new(reading),
            writing,
            receiving: Cell::new(TransferRate::new(None)),
            sending: Cell::new(TransferRate::new(None)),
            alarm: Cell::new(None),
            limit: Cell::new(None),
            heads: Cell::new(None),
            is_client,
            has_ended: Cell::new(false),
            is_starved: Cell::new(false),
            is_writing: Cell::new(false),
            is_unfinished: Cell::new(false),
            is_last: Cell::new(false),
            is_gone: Cell::new(false),
            rest: Cell::new(Rest::No),
            heard: Cell::new(None),
        }
    }

    /// When a read last brought something; none if none has.
    #[must_use]
    pub fn heard(&self) -> Option<Instant> {
        self.heard.get()
    }

    /// A request begins, whose body and response have this minimum rate in bytes per second, if any.
    pub fn begin_transfers(&self, min_rate: Option<NonZeroU32>) {
        self.receiving.set(TransferRate::new(min_rate));
        self.sending.set(TransferRate::new(min_rate));
    }

    /// The present response may be taken as slowly as its reader likes.
    pub fn exempt_response(&self) {
        self.sending.set(TransferRate::new(None));
    }

    /// How much longer the body of the present request may be waited for, with this grace; none without a minimum rate.
    #[must_use]
    pub fn receiving_allowance(&self, grace: Duration) -> Option<Duration> {
        self.receiving.get().allowance(grace)
    }

    /// How long the present read of a body may take, of which each may take `span`.
    pub(super) fn receiving_within(&self, span: Duration) -> Duration {
        self.receiving_allowance(RATE_GRACE).map_or(span, |allowance| allowance.min(span))
    }

    /// How long the present write may take.
    pub(super) fn sending_within(&self) -> Duration {
        self.sending.get().allowance(RATE_GRACE).map_or(self.writing, |allowance| allowance.min(self.writing))
    }

    /// A read has brought so many bytes after so long a wait.
    pub(super) fn has_received(&self, bytes: usize, wait: Duration) {
        let mut rate = self.receiving.get();
        if rate.is_bounded() && self.is_amid_body() {
            rate.add_bytes(bytes);
            rate.add_wait(wait);
            self.receiving.set(rate);
        }
    }

    /// So many bytes were written.
    pub(super) fn has_sent(&self, bytes: usize) {
        let mut rate = self.sending.get();
        if rate.is_bounded() {
            rate.add_bytes(bytes);
            self.sending.set(rate);
        }
    }

    /// A write has waited for so long.
    pub(super) fn has_waited_to_send(&self, wait: Duration) {
        let mut rate = self.sending.get();
        rate.add_wait(wait);
        self.sending.set(rate);
    }

    /// Changes what reads wait for, from now on.
    pub fn set(&self, reading: Reading) {
        self.reading.set(reading);
    }

    /// The same, and says what they have waited for until now.
    pub fn replace(&self, reading: Reading) -> Reading {
        self.reading.replace(reading)
    }

    /// A client has got its answer just now, `now`: its next head must begin within `idle`, and then has `header` to be
    /// whole. Before that, the connection comes to rest.
    pub fn await_next(&self, now: Instant, idle: Duration, header: Duration) {
        self.reading.set(Reading::HeadStartsBy(now + idle, header));
        self.rest.set(Rest::From(now + REST_AFTER));
    }

    /// The next head has begun, if it is waited for.
    pub(super) fn begin_head(&self, now: Instant) {
        if let Reading::HeadStartsBy(_, span) = self.reading.get() {
            self.reading.set(Reading::Until(now + span));
        }
    }

    /// From when on the connection rests, if it has not to end before.
    pub(super) fn rests_from(&self) -> Option<Instant> {
        match (self.rest.get(), self.reading.get()) {
            (Rest::From(from), Reading::HeadStartsBy(by, _)) => (from < by).then_some(from),
            _ => None,
        }
    }

    /// Nothing has come, and nothing waits to be written.
    pub(super) fn rest(&self) {
        self.rest.set(Rest::Now);
    }

    /// Whether the connection rests: the next head has not begun for a while, and all answers are written. Then closing
    /// the stream leaves the socket open, so that whoever used the stream can be done with it.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.rest.get() == Rest::Now && self.awaits_head()
    }

    /// The connection rests no more, or does not yet.
    pub fn stir(&self) {
        self.rest.set(Rest::No);
    }

    /// Whether the next head is waited for.
    #[must_use]
    pub fn awaits_head(&self) -> bool {
        matches!(self.reading.get(), Reading::HeadStartsBy(..))
    }

    /// Whether a head has begun that is not whole.
    #[must_use]
    pub fn is_reading_head(&self) -> bool {
        matches!(self.reading.get(), Reading::Until(_))
    }

    /// Whether a request is under way: its head is whole, and its answer is not.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        !matches!(self.reading.get(), Reading::HeadStartsBy(..) | Reading::Until(_))
    }

    /// If the next head is waited for: no longer than until then.
    pub fn hasten(&self, by: Instant) {
        if let Reading::HeadStartsBy(at, span) = self.reading.get() {
            self.reading.set(Reading::HeadStartsBy(at.min(by), span));
        }
    }

    /// Whether nothing is owed at the moment.
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.reading.get() == Reading::Unbounded
    }

    /// Whatever is read or written, it ends then, if that is given.
    pub fn set_limit(&self, limit: Option<Instant>) {
        self.limit.set(limit);
    }

    /// The earlier of a deadline and the limit.
    pub(super) fn within_limit(&self, deadline: Option<Instant>) -> Option<Instant> {
        match (deadline, self.limit.get()) {
            (Some(deadline), Some(limit)) => Some(deadline.min(limit)),
            (deadline, limit) => deadline.or(limit),
        }
    }

    /// An answer is waited for: before its head is whole no more than so many bytes and a hundred interim responses
    /// may be read.
    pub fn expect_answer(&self, bytes: usize) {
        self.heads.set(Some(Heads::new(bytes)));
    }

    /// The head of the answer is there, and as much may come as will.
    pub fn has_answer(&self) {
        self.heads.set(None);
    }

    /// Whether an answer is waited for of which not a byte has come.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.heads.get().is_some_and(|heads| heads.is_untouched())
    }

    /// Whether a write waits for the other side to read.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.is_writing.get()
    }

    /// Whether a body is on its way that has not come to its end, from now on.
    pub fn set_unfinished(&self, is_unfinished: bool) {
        self.is_unfinished.set(is_unfinished);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished.get()
    }

    /// Everything that was read has been taken, and more is waited for. Says whether more can't come.
    pub fn starve(&self) -> bool {
        self.is_starved.set(true);
        self.has_ended.get()
    }

    /// The connection should end after the present answer.
    pub fn set_last(&self) {
        self.is_last.set(true);
    }

    /// Whether it should.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.is_last.get()
    }

    /// Whether nothing more is read of the connection, from now on.
    pub fn set_gone(&self, is_gone: bool) {
        self.is_gone.set(is_gone);
    }

    /// Whether nothing more is read of the connection.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    /// Whether a body is read.
    pub(super) fn is_amid_body(&self) -> bool {
        matches!(self.reading.get(), Reading::Each(_))
    }

    /// Whether the reader must not hear yet that the other side has closed its sending side: all of a request is
    /// there, or what has been read may be all of it, and its answer is under way.
    pub(super) fn hides_end(&self) -> bool {
        self.is_client
            && match self.reading.get() {
                Reading::Unbounded => true,
                Reading::Each(_) => !self.is_starved.get(),
                Reading::UntilItEnds | Reading::Until(_) | Reading::HeadStartsBy(..) => false,
            }
    }

    /// Whether what a client still sends is worth reading when its connection is being closed: the rest of a body
    /// or of a head, or what is there already.
    pub(super) fn is_sending(&self) -> bool {
        self.is_client && (self.is_unfinished.get() || matches!(self.reading.get(), Reading::Until(_)))
    }

    pub(super) fn is_client(&self) -> bool {
        self.is_client
    }

    /// Whether the socket must be read again, because what it waits for has changed since it was last read: the
    /// next head must be there by a time at which nothing wakes the socket's task, or nobody has to be spared the
    /// end any more.
    #[must_use]
    pub fn is_unwatched(&self) -> bool {
        if self.has_ended.get() {
            return !self.hides_end();
        }
        let Reading::HeadStartsBy(by, _) = self.reading.get() else { return false };
        let by = self.rests_from().unwrap_or(by);
        self.alarm.get().is_none_or(|at| at > by || at <= recent())
    }
}

#[cfg(test)]
mod tests;
