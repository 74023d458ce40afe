//! How long a client may take to send a request body.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::stream::ClientStream;
use crate::socket::Patience;

/// Who sees to it that a client's body comes in time.
#[derive(Debug)]
pub enum Pace {
    /// The connection's socket; it owes us nothing more once the body is there.
    Socket(Rc<Patience>),
    /// The body itself, as one stream among several on a connection.
    Stream(Box<ClientStream>),
}

impl Pace {
    /// Whether the client's connection is read no more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Socket(client) if client.is_gone())
    }

    /// Bytes that have come and are held back; none if nothing is.
    pub(super) fn held(&self) -> Option<usize> {
        if let Self::Stream(stream) = self { stream.held() } else { None }
    }

    /// How much longer the client may be waited for with this grace; none without a minimum rate.
    pub(super) fn allowance(&self, grace: Duration) -> Option<Duration> {
        match self {
            Self::Socket(patience) => patience.receiving_allowance(grace),
            Self::Stream(stream) => stream.allowance(grace),
        }
    }

    /// All of the body must have come by then, if that is given.
    pub(super) fn set_limit(&mut self, limit: Option<Instant>) {
        match self {
            Self::Socket(patience) => patience.set_limit(limit),
            Self::Stream(stream) => stream.set_limit(limit),
        }
    }
}
