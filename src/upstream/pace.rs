//! How long a client may take to send a request body.

use std::rc::Rc;

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
