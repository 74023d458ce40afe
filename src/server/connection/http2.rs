//! A client's connection over HTTP/2: many requests at once.
//!
//! hyper and h2 respond to PING and SETTINGS frames one at a time, bound every part of a head, and close a connection whose
//! client resets too many streams before they are read. This module adds the limits that they lack: how long a connection may
//! be idle, how long a client may leave a response unread, how many requests it may cancel, and how many control frames it
//! may send ([`frame_flood`](super::frame_flood)).
//!
//! Inside the proxy every request has the form of HTTP/1.1: `proxy::http2` converts it on its way in, `upstream::http2` on its
//! way out, and `proxy::grpc` converts rejections of gRPC calls last. A connection has no read timeouts, its streams have: each
//! is a task (`server::connection::stream_tracker`) that ends when a part of its response waits too long for the client; a
//! stalled request body is noticed by `RequestBody`. A connection without streams gets GOAWAY after `idle_timeout`. hyper and
//! h2 enforce the other bounds, set in `server::connection::http2`. The memory of a connection is bounded by its window (512
//! KiB), as much for buffered small bodies, 64 KiB for each of 128 responses, and heads. `FrameFloodGuard`, between socket and
//! hyper, reads frame headers, charges frames that carry no data, and after 64 KiB in one go yields, since h2 reads as long as
//! there is input. From a HEADERS frame on whose request may not start yet (`server::start_queue`) it holds back what it has read.
//! `server::head_budget` bounds the memory of heads until their responses, since a byte of HPACK can stand for 4 KiB: a request
//! beyond it is refused, and not held back, because frames of other streams would wait behind it.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::Reason;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::Instant;

use super::frame_flood::FrameFloodGuard;
use super::stream_tracker::{StreamProgress, StreamTracker, TrackedBody};
use crate::body::{StreamBody, UnreadBodies};
use crate::boxed::rare;
use crate::http1::RequestHead;
use crate::proxy::{ActiveProxy, ClientConnection, Connect, Proxy, ProxyResponse};
use crate::server::drain::ConnectionTracker;
use crate::server::head_budget::HeadBudget;
use crate::server::refusal_pacer::RefusalPacer;
use crate::server::spec::{ListenerSpec, Service};
use crate::socket::{BufferedStream, LazyTimer, TimedStream};
use crate::time::monotonic;
use crate::tls::Transport;

/// Requests at once on a connection.
const MAX_STREAMS: u32 = 128;
/// Bytes of a request body that a client may send before they are read (flow control).
const STREAM_WINDOW: u32 = 128 * 1024;
/// Bytes of all request bodies of a connection that a client may send before they are read.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes of a response that are buffered until the client reads them.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// Streams that may be reset, by the client or because of its errors, before they are accepted.
const MAX_PENDING_RESETS: usize = 20;
/// The largest head, in bytes.
const MAX_HEAD: usize = 512 * 1024;
/// How long a client may take to acknowledge a PING.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an idle connection waits for the acknowledgement of the PING after GOAWAY.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait for that acknowledgement after a recent request: its response may still be blocked on flow control, with the PING
/// behind it.
const RECENT_GOAWAY_TIMEOUT: Duration = Duration::from_secs(5);

/// What all requests of a connection share.
struct StreamContext {
    client: ClientConnection,
    service: Service,
    pacer: Rc<RefusalPacer>,
    heads: HeadBudget,
}

impl StreamContext {
    fn new(client: ClientConnection, service: Service, tracker: &ConnectionTracker) -> Self {
        Self { client, service, pacer: Rc::clone(tracker.pacer()), heads: tracker.head_budget() }
    }
}

/// When an idle connection is shut down, and when one that was shut down is closed.
struct IdleCheck {
    idle_timeout: Duration,
    /// When GOAWAY was sent, if it was.
    goaway_sent: Option<Instant>,
    /// When to check next. Checked periodically, so that requests need not reset the timer.
    next: Instant,
    timer: LazyTimer,
}

/// The action on a connection, by how long it has been idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleAction {
    Keep,
    SendGoaway,
    Close,
}

fn protocol(spec: &ListenerSpec, streams: StreamTracker) -> http2::Builder<StreamTracker> {
    let mut protocol = http2::Builder::new(streams);
    protocol
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_PENDING_RESETS)
        .max_header_list_size(u32::try_from(spec.max_header_bytes.min(MAX_HEAD)).unwrap_or(u32::MAX))
        .enable_connect_protocol()
        .timer(TokioTimer::new())
        // Detects clients that have vanished while a response is being sent.
        .keep_alive_interval(spec.idle_timeout)
        .keep_alive_timeout(PING_TIMEOUT);
    protocol
}

/// Serves a connection until either side closes it. Fails when the connection fails, and when the client abuses it or does not
/// close it after GOAWAY.
pub(super) async fn serve(
    stream: BufferedStream<Transport>,
    client: ClientConnection,
    spec: &ListenerSpec,
    proxy: &Rc<ActiveProxy>,
    tracker: &ConnectionTracker,
) -> Result<(), Box<dyn Error>> {
    let (drain, draining) = watch::channel(false);
    let starter = tracker.starter(client.ip(), &proxy.current());
    let client = client.over_http2(spec.max_headers).with_drain(draining);
    let context = Rc::new(StreamContext::new(client, spec.service, tracker));
    let (stream, read) = stream.into_parts();
    // A client always has something to send, such as WINDOW_UPDATE frames: without lingering, closing the socket would
    // reset the connection, and the client could lose the last responses.
    let stream = TimedStream::new(stream, read, spec.idle_timeout).lingering();
    let activity = Rc::clone(stream.activity());
    let streams = StreamTracker::new(spec.idle_timeout, spec.min_body_rate);
    let (counted, proxy) = (streams.clone(), Rc::clone(proxy));
    let unread = Rc::new(UnreadBodies::default());
    let unread_bodies = Rc::clone(&unread);
    let serve = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|body| StreamBody::new(body, Rc::clone(&unread)));
        // Boxed because it is large, and hyper moves it several times on its way into a task.
        Box::pin(respond(Rc::clone(&context), proxy.current(), counted.start(), request))
    });
    let io = TokioIo::new(FrameFloodGuard::new(stream, starter));
    let mut connection = pin!(protocol(spec, streams.clone()).serve_connection(io, serve));
    let mut check = IdleCheck::new(spec.idle_timeout);
    poll_fn(|cx| {
        if tracker.is_draining() && check.goaway_sent.is_none() {
            check.start_shutdown();
            drain.send_replace(true);
            connection.as_mut().graceful_shutdown();
        }
        unread_bodies.poll(cx);
        loop {
            if let Poll::Ready(closed) = connection.as_mut().poll(cx) {
                return Poll::Ready(closed.map_err(Into::into));
            }
            tracker.set_idle(streams.idle_since().is_some() && !activity.is_writing());
            if streams.has_rapid_resets() {
                return Poll::Ready(Err("rapid reset: client cancelled most of its streams".into()));
            }
            if check.poll_due(cx).is_pending() {
                return Poll::Pending;
            }
            match check.action(streams.idle_since(), activity.is_writing()) {
                IdleAction::Keep => {}
                IdleAction::SendGoaway => connection.as_mut().graceful_shutdown(),
                IdleAction::Close => {
                    return Poll::Ready(Err("client did not close after GOAWAY".into()));
                }
            }
        }
    })
    .await
}

/// Passes a request to the proxy, or to the service of the listener.
///
/// # Errors
/// The reason for which the stream is reset.
async fn respond(
    context: Rc<StreamContext>,
    proxy: Rc<Proxy>,
    progress: Rc<StreamProgress>,
    request: Request<StreamBody>,
) -> Result<Response<TrackedBody>, h2::Error> {
    let StreamContext { client, service, pacer, heads } = &*context;
    let (mut head, body) = request.into_parts();
    let protocol = head.extensions.remove::<Protocol>();
    let connect = head.extensions.remove::<OnUpgrade>().map(|stream| Connect { protocol, stream });
    let (head, body) = (Box::new(RequestHead::from(head)), body.into());
    // It is not processed, so the client may send it again (RFC 9113 §8.7).
    let Some(permit) = heads.hold(head.fields.memory()) else {
        progress.refuse();
        return Err(Reason::REFUSED_STREAM.into());
    };
    let response = match service {
        Service::Proxy => crate::proxy::serve(&proxy, client, head, body, connect).await,
        Service::EnvoyRatelimit => rare(crate::ratelimit_service::serve(&proxy, client, head, body)).await,
    };
    drop(permit);
    let ProxyResponse { head, body, is_over_capacity, closes, .. } = response;
    if is_over_capacity && let Some(end) = pacer.pause_after_refusal(client.ip(), &proxy) {
        // Other requests share the connection, so that it has to be read. The client may have only so many streams open.
        tokio::time::sleep_until(end).await;
    }
    if closes {
        progress.refuse();
        // Not REFUSED_STREAM, after which a client sends its request again at once (RFC 9113 §8.7).
        return Err(Reason::ENHANCE_YOUR_CALM.into());
    }
    Ok(head.into_response(progress.track_response(body)))
}

impl IdleCheck {
    fn new(idle_timeout: Duration) -> Self {
        let next = monotonic() + idle_timeout;
        Self { idle_timeout, goaway_sent: None, next, timer: LazyTimer::default() }
    }

    /// Records that GOAWAY is sent now, because the server drains.
    fn start_shutdown(&mut self) {
        let now = monotonic();
        (self.goaway_sent, self.next) = (Some(now), now);
    }

    /// Ready when it is time for the next check.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.wait_until(self.next, cx)
    }

    /// Checks how long no stream has been open, and sets the time of the next check.
    fn action(&mut self, idle_since: Option<Instant>, is_writing: bool) -> IdleAction {
        let now = monotonic();
        let timeout = match self.goaway_sent {
            None => self.idle_timeout,
            Some(sent) if idle_since.is_some_and(|since| since + RECENT_GOAWAY_TIMEOUT > sent) => {
                RECENT_GOAWAY_TIMEOUT
            }
            Some(_) => GOAWAY_TIMEOUT,
        };
        let idle_since = idle_since
            // Bytes that are written after the last stream belong to its response, which has its own timeout.
            .filter(|_| !is_writing)
            .map(|since| self.goaway_sent.map_or(since, |sent| sent.max(since)));
        self.next = idle_since.unwrap_or(now) + timeout;
        if self.next > now {
            return IdleAction::Keep;
        }
        if self.goaway_sent.is_some() {
            return IdleAction::Close;
        }
        (self.goaway_sent, self.next) = (Some(now), now + GOAWAY_TIMEOUT);
        IdleAction::SendGoaway
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_gets_goaway_and_is_closed_if_the_client_does_not_close_it() {
        let (mut check, started) = (IdleCheck::new(75 * SECOND), monotonic());
        advance(74 * SECOND).await;
        assert_eq!(check.action(Some(started), false), IdleAction::Keep);
        assert_eq!(check.next, started + 75 * SECOND);
        advance(SECOND).await;
        assert_eq!(check.action(Some(started), false), IdleAction::SendGoaway);
        assert_eq!(check.next, monotonic() + GOAWAY_TIMEOUT);
        advance(GOAWAY_TIMEOUT).await;
        assert_eq!(check.action(Some(started), false), IdleAction::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_recent_request_has_longer_to_close_after_goaway() {
        let mut check = IdleCheck::new(75 * SECOND);
        let idle_since = monotonic();
        advance(SECOND).await;
        check.start_shutdown();
        assert_eq!(check.action(Some(idle_since), false), IdleAction::Keep);
        assert_eq!(check.next, monotonic() + RECENT_GOAWAY_TIMEOUT);
        advance(RECENT_GOAWAY_TIMEOUT).await;
        assert_eq!(check.action(Some(idle_since), false), IdleAction::Close);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_stream_or_a_pending_write_is_kept() {
        let (mut check, started) = (IdleCheck::new(75 * SECOND), monotonic());
        advance(1000 * SECOND).await;
        assert_eq!(check.action(None, false), IdleAction::Keep);
        assert_eq!(check.action(Some(started), true), IdleAction::Keep);
        check.start_shutdown();
        advance(1000 * SECOND).await;
        assert_eq!(check.action(None, false), IdleAction::Keep);
        assert_eq!(check.action(Some(started), true), IdleAction::Keep);
    }
}
