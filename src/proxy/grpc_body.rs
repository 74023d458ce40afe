//! The response body of a gRPC call whose charge depends on the status in its trailers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::grpc;
use crate::limiter::Reservation;
use crate::upstream::{BodyError, PolledFrame, ResponseBody};

/// A response body with the units that its call has reserved. The trailers are forwarded once the units that their status
/// does not charge have been refunded, so that the client's next call finds them; without trailers all stay charged.
pub(super) struct GrpcBody {
    body: ResponseBody,
    state: State,
}

enum State {
    /// No trailers have come.
    Streaming(Option<Box<Reservation>>),
    /// The trailers are held until the units are refunded.
    Settling(Pin<Box<dyn Future<Output = ()>>>, Option<Frame<Bytes>>),
}

impl GrpcBody {
    /// A body that refunds units at its end.
    pub fn new(body: ResponseBody, reservation: Box<Reservation>) -> Self {
        Self { body, state: State::Streaming(Some(reservation)) }
    }

    /// The body as it arrives from the server.
    pub fn upstream_body(&self) -> &ResponseBody {
        &self.body
    }
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        if let State::Streaming(reservation) = &mut this.state {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            let status = match &frame {
                Some(Ok(frame)) => {
                    let status = frame.trailers_ref().and_then(|trailers| trailers.get("grpc-status"));
                    status.and_then(|status| grpc::http_status(status.as_bytes()))
                }
                _ => None,
            };
            let Some((status, reservation)) = status.zip(reservation.take_if(|_| status.is_some())) else {
                return Poll::Ready(frame);
            };
            let settling = async move {
                let _ = reservation.finish(status).await;
            };
            this.state = State::Settling(Box::pin(settling), frame.and_then(Result::ok));
        }
        let State::Settling(settling, trailers) = &mut this.state else { return Poll::Ready(None) };
        if trailers.is_some() {
            ready!(settling.as_mut().poll(cx));
        }
        Poll::Ready(trailers.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Streaming(_) => self.body.is_end_stream(),
            State::Settling(_, trailers) => trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl std::fmt::Debug for GrpcBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrpcBody").field("body", &self.body).finish_non_exhaustive()
    }
}
