//! The body of a response that settles limits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::cost::End;
use super::observer::{MAX_UNREAD, Observer};
use super::open_response::OpenResponse;
use super::pending::{LimitCost, Pending};
use super::step::Steps;
use crate::body::retain_trailers;
use crate::proxy::grpc;
use crate::socket::LazyTimer;
use crate::time::monotonic;
use crate::upstream::{BodyError, PolledFrame, ResponseBody, ServerEnd};
use crate::usage::{Dialect, stop_event};

/// The most bytes of an event that are passed on before a stream without a budget ends, and the longest time.
const MAX_EVENT: usize = 64 * 1024;
const MAX_CUTTING: Duration = Duration::from_secs(1);
/// What a client gets at the end of a stream whose units are used up.
const STOPPED: &str = "the rate limit of this request is used up";

/// A response body that settles limits at its end. Its parts are passed on unchanged, and read after that.
pub(in crate::proxy) struct SettledBody {
    /// None once the exchange with the server is cancelled.
    body: Option<Box<ResponseBody>>,
    /// None once a task has taken it.
    response: Option<OpenResponse>,
    state: State,
    /// Whether unread parts have been written, since the last poll was pending for that.
    is_written: bool,
    /// The steps that take more units, if a limit stops streams.
    steps: Option<Steps>,
    timer: LazyTimer,
    /// Bytes that were passed on since it was last checked whether a step is due; 0 without steps.
    unchecked: usize,
    /// Whether the exchange with the server was cancelled.
    is_cancelled: bool,
    /// Whether the status of a gRPC call may be in the trailers: then they are held until the units are settled.
    awaits_grpc_status: bool,
}

type Ended = Option<Result<Frame<Bytes>, BodyError>>;

enum State {
    /// Parts of the server are passed on.
    Passing,
    /// The server has ended the body, and what was passed on is not read yet.
    Ending(Ended),
    /// The trailers of a gRPC call are held until the units that their status does not charge are refunded.
    Refunding(Pin<Box<dyn Future<Output = OpenResponse>>>, Frame<Bytes>),
    /// The units are used up: the rest of the present event is passed on until this time, of which so many bytes have been.
    Cutting(Dialect, usize, Instant),
    /// The units are used up, and the last event follows.
    Stopping(Dialect),
    /// The units are used up, in a stream that can't have another event.
    Aborting,
    /// Nothing follows.
    Ended,
}

impl SettledBody {
    /// A body whose limits are settled at its end.
    pub(super) fn new(
        body: Box<ResponseBody>,
        pending: Pending,
        observer: Observer,
        awaits_grpc_status: bool,
    ) -> Self {
        let steps = Steps::of(&pending);
        let response = OpenResponse::new(pending, observer);
        Self {
            body: Some(body),
            response: Some(response),
            state: State::Passing,
            is_written: false,
            steps,
            timer: LazyTimer::default(),
            unchecked: 0,
            is_cancelled: false,
            awaits_grpc_status,
        }
    }

    /// The body as it arrives from the server.
    pub fn upstream_body(&self) -> Option<&ResponseBody> {
        self.body.as_deref()
    }

    /// Continues to send the request's body. Fails if the client has aborted the request.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        self.body.as_mut().map_or(Ok(()), |body| body.poll_upload(cx))
    }

    /// The server's end of the tunnel, if the server has switched protocols, and what the tunnel settles.
    pub fn into_tunnel(mut self) -> Option<(ServerEnd, Pending)> {
        let (body, response) = (self.body.take()?, self.response.take()?);
        Some((body.into_tunnel()?, response.pending))
    }

    /// Whether the stream was ended since its units were used up.
    pub fn is_stopped(&self) -> bool {
        self.is_cancelled
    }

    /// Whether nothing of the response is missing once all that was polled is sent.
    pub fn is_whole(&self) -> bool {
        match &self.state {
            State::Ending(ended) => !matches!(ended, Some(Err(_))),
            State::Refunding(..) | State::Ended => true,
            State::Passing | State::Cutting(..) => self.body.as_ref().is_some_and(|body| body.is_whole()),
            State::Stopping(_) | State::Aborting => false,
        }
    }

    /// Settles the limits if they are not settled yet: the body is not polled any more. Returns what they have charged.
    pub fn finish(&mut self) -> Vec<LimitCost> {
        let is_whole = self.is_whole();
        let (mut is_denied, mut status) = (false, None);
        let state = std::mem::replace(&mut self.state, State::Ended);
        if let State::Refunding(refunding, _) = state {
            tokio::task::spawn_local(refunding);
            return Vec::new();
        }
        let Some(mut response) = self.response.take() else { return Vec::new() };
        match state {
            State::Ending(Some(Ok(trailers))) => status = self.read_trailers(&mut response, &trailers),
            State::Cutting(..) | State::Stopping(_) | State::Aborting => is_denied = true,
            _ => {}
        }
        let step = self.steps.as_mut().and_then(Steps::take);
        let end = if is_whole { End::Whole } else { End::Early };
        let reads_on = !is_whole && !is_denied && response.pending.is_open() && response.reads_on();
        let rest = self.body.take().filter(|_| reads_on);
        if step.is_none() && status.is_none() && rest.is_none() {
            response.settle(end);
            return response.pending.charged();
        }
        let charged = response.pending.charged();
        tokio::task::spawn_local(async move {
            if let Some(step) = step {
                step.wait(&mut response).await;
            }
            match (status, rest) {
                (Some(status), _) => drop(refund(response, status).await),
                (None, Some(rest)) => response.read_on(rest).await,
                (None, None) => response.settle(end),
            }
        });
        charged
    }

    /// Reads the trailers of a response; returns the status of its gRPC call if that decides what is charged.
    fn read_trailers(&self, response: &mut OpenResponse, frame: &Frame<Bytes>) -> Option<u16> {
        let trailers = frame.trailers_ref()?;
        response.trailers = Some(trailers.clone());
        grpc::http_status(trailers.get("grpc-status")?.as_bytes()).filter(|_| self.awaits_grpc_status)
    }

    /// Asks to be polled again once what was passed on has been written.
    fn wait_for_write(&mut self, cx: &Context<'_>) -> PolledFrame {
        self.is_written = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether something is to be done once what was passed on has been written.
    fn has_unread(&self) -> bool {
        self.unchecked > 0 || self.response.as_ref().is_some_and(|response| response.observer.has_unread())
    }

    /// Reads what was passed on, and takes more units if it has cost more than was taken.
    fn read(&mut self) {
        let Some(response) = &mut self.response else { return };
        response.observer.read();
        self.unchecked = 0;
        if let Some(steps) = self.steps.as_mut().filter(|_| matches!(self.state, State::Passing)) {
            steps.start(response);
        }
    }

    /// Polls the step that takes more units. Ends the stream if it is denied.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(steps), Some(response)) = (&mut self.steps, &mut self.response) else {
            return Poll::Ready(());
        };
        let is_passing = matches!(self.state, State::Passing);
        loop {
            match ready!(steps.poll(response, cx)) {
                Some(false) if is_passing => break,
                // Another step may be due at once: parts were passed on while this one waited, and none may follow for long.
                Some(true) if is_passing => steps.start(response),
                None if is_passing && steps.is_time_over(cx) => steps.start(response),
                _ => return Poll::Ready(()),
            }
        }
        response.observer.read();
        let has_length = self.body.as_ref().is_some_and(|body| body.size_hint().exact().is_some());
        self.state = match response.observer.dialect().filter(|_| !has_length) {
            Some(dialect) if response.observer.is_between_events() => State::Stopping(dialect),
            Some(dialect) => State::Cutting(dialect, 0, monotonic() + MAX_CUTTING),
            None => State::Aborting,
        };
        Poll::Ready(())
    }

    /// The next part of the server.
    fn poll_passing(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let is_full = self.response.as_ref().is_some_and(|response| response.observer.is_full());
        if is_full || self.unchecked >= MAX_UNREAD {
            return self.wait_for_write(cx);
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending if self.has_unread() => self.wait_for_write(cx),
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                if let (Some(response), Some(data)) = (&mut self.response, frame.data_ref()) {
                    response.add(data);
                    self.unchecked += if self.steps.is_some() { data.len() } else { 0 };
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(ended) => {
                self.state = State::Ending(ended);
                if self.has_unread() { self.wait_for_write(cx) } else { self.poll_end(cx) }
            }
        }
    }

    /// The end of the body, once all of it is read and no step is under way.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let (State::Ending(ended), Some(mut response)) =
            (std::mem::replace(&mut self.state, State::Ended), self.response.take())
        else {
            return Poll::Ready(None);
        };
        let ended = match ended {
            Some(Ok(mut trailers)) => {
                let status = self.read_trailers(&mut response, &trailers);
                let hidden = response.pending.hidden();
                if hidden.has_trailers() {
                    retain_trailers(&mut trailers, |name| !hidden.has_trailer(name));
                }
                if let Some(status) = status {
                    // The trailers come once the units are refunded, so that the client's next call finds them.
                    self.state = State::Refunding(Box::pin(refund(response, status)), trailers);
                    return self.poll_refunding(cx);
                }
                response.settle(End::Whole);
                let is_empty = trailers.trailers_ref().is_some_and(http::HeaderMap::is_empty);
                (!is_empty).then_some(Ok(trailers))
            }
            Some(Err(error)) => {
                response.settle(End::Early);
                Some(Err(error))
            }
            None => {
                response.settle(End::Whole);
                None
            }
        };
        self.response = Some(response);
        Poll::Ready(ended)
    }

    fn poll_refunding(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let State::Refunding(refunding, _) = &mut self.state else { return Poll::Ready(None) };
        let response = ready!(refunding.as_mut().poll(cx));
        self.response = Some(response);
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Refunding(_, trailers) => Poll::Ready(Some(Ok(trailers))),
            _ => Poll::Ready(None),
        }
    }

    /// The rest of the event that has begun when the units were used up.
    fn poll_cutting(
        &mut self,
        (dialect, passed, end): (Dialect, usize, Instant),
        cx: &mut Context<'_>,
    ) -> PolledFrame {
        let (Some(body), Some(response)) = (&mut self.body, &mut self.response) else {
            return Poll::Ready(None);
        };
        let data = match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => frame.into_data().unwrap_or_default(),
            Poll::Ready(ended) => {
                self.state = State::Ending(ended);
                return self.poll_end(cx);
            }
            Poll::Pending if self.timer.wait_until(end, cx).is_ready() => return self.stop(None),
            Poll::Pending => return Poll::Pending,
        };
        let event_end = response.observer.read_event(&data);
        self.state = match event_end {
            Some(_) => State::Stopping(dialect),
            None if passed + data.len() > MAX_EVENT => State::Aborting,
            None => State::Cutting(dialect, passed + data.len(), end),
        };
        let data = data.slice(..event_end.unwrap_or(data.len()));
        response.bytes += data.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    /// Ends the stream: what was seen of it is what it costs.
    fn stop(&mut self, dialect: Option<Dialect>) -> PolledFrame {
        self.state = State::Ended;
        let Some(response) = &mut self.response else { return Poll::Ready(None) };
        let sequence = response.observer.so_far().map_or(0, |observed| observed.next_sequence);
        response.settle(End::Early);
        if let Some(body) = self.body.take() {
            body.cancel();
            self.is_cancelled = true;
        }
        Poll::Ready(Some(match dialect {
            Some(dialect) => Ok(Frame::data(stop_event(dialect, STOPPED, sequence))),
            None => Err(BodyError::Stopped),
        }))
    }
}

/// Refunds the units that a call with this status is not charged, and settles the others.
async fn refund(mut response: OpenResponse, status: u16) -> OpenResponse {
    response.pending.set_status(status);
    let _ = response.pending.respond().await;
    response.settle(End::Whole);
    response
}

impl Body for SettledBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = &mut *self;
        if std::mem::take(&mut this.is_written) {
            this.read();
        }
        let is_stepping = this.poll_step(cx).is_pending();
        match this.state {
            State::Passing => this.poll_passing(cx),
            // The units that are being taken are a part of what is settled.
            State::Ending(_) if is_stepping => Poll::Pending,
            State::Ending(_) => this.poll_end(cx),
            State::Refunding(..) => this.poll_refunding(cx),
            State::Cutting(dialect, passed, end) => this.poll_cutting((dialect, passed, end), cx),
            State::Stopping(dialect) => this.stop(Some(dialect)),
            State::Aborting => this.stop(None),
            State::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Ended => true,
            // Polled again, so that its limits are settled before its end is written.
            State::Passing => self.response.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.body, &self.state) {
            (Some(body), State::Passing) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl Drop for SettledBody {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl std::fmt::Debug for SettledBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettledBody").field("body", &self.body).finish_non_exhaustive()
    }
}
