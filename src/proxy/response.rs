//! Responses as the proxy gives them to a client's connection.

use crate::http1::ResponseHead;

use super::{ReplyBody, Tunnel};

/// A response to a client.
#[derive(Debug)]
pub struct ProxyResponse<B = ReplyBody> {
    /// Its head. `Connection: close` in it means that the connection ends after the response. Of the fields that frame a
    /// body it has `Content-Length` at most.
    pub head: ResponseHead,
    /// Its body.
    pub body: B,
    /// What its connection goes on with behind the head, where that has switched protocols.
    pub tunnel: Option<Box<Tunnel>>,
}

impl<B> ProxyResponse<B> {
    /// A response with this body.
    pub(super) fn new(head: ResponseHead, body: B) -> Self {
        Self { head, body, tunnel: None }
    }

    /// The same with another body.
    pub(super) fn map<C>(self, convert: impl FnOnce(B) -> C) -> ProxyResponse<C> {
        ProxyResponse { head: self.head, body: convert(self.body), tunnel: self.tunnel }
    }
}
