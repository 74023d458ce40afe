//! Responses that the proxy returns to a client's connection.

use crate::http1::ResponseHead;

use super::{ReplyBody, Tunnel};

/// A response to a client.
#[derive(Debug)]
pub struct ProxyResponse<B = ReplyBody> {
    /// The head. `Connection: close` closes the connection after the response. Its only framing field may be
    /// `Content-Length`: the connection adds `Transfer-Encoding` if it needs it.
    pub head: ResponseHead,
    /// The body.
    pub body: B,
    /// Whether the request was refused because all slots of a limit or all connections of an upstream are in use.
    pub is_over_capacity: bool,
    /// Whether the client gets no response: its connection is closed, or over HTTP/2 its stream is reset.
    pub closes: bool,
    /// The tunnel that uses the connection after a response that switches protocols.
    pub tunnel: Option<Box<Tunnel>>,
}

impl<B> ProxyResponse<B> {
    /// A response with this body.
    pub(super) fn new(head: ResponseHead, body: B) -> Self {
        Self { head, body, is_over_capacity: false, closes: false, tunnel: None }
    }
}
