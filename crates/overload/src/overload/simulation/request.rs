//! A simulated request.

use super::super::class::Class;
use super::super::places::Place;
use super::super::queue::Ticket;

/// How a request ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It had not ended when the simulation did.
    None,
    /// A response of a server.
    Served,
    /// 503 of the proxy.
    Refused,
    /// The client gave up.
    TimedOut,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// When it came to the proxy, in seconds.
    pub arrived: f64,
    /// When its response did.
    pub ended: f64,
    /// How it ended.
    pub ending: Ending,
    /// The index of its group.
    pub group: usize,
    /// Its class.
    pub class: Class,
    /// How often its client has tried before.
    pub tries: u8,
    pub(super) key: u64,
    pub(super) route: usize,
    pub(super) proxy: usize,
    pub(super) server: usize,
    pub(super) sent: f64,
    pub(super) work: f64,
    pub(super) ticket: Option<Ticket>,
    pub(super) place: Option<Place>,
}
