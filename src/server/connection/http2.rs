//! HTTP/2: many requests at once on one connection.
//!
//! Its library answers pings and settings one at a time, bounds what a head may be in all its parts, and gives up on a
//! client that takes back too many requests before they are looked at. What it leaves open is bounded here: how long
//! a connection may do nothing, how long a client may leave an answer unread, how many requests it may take back, and how
//! many frames it may send that bring nothing ([`metered`](super::frame_flood)).

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Instant;

use super::frame_flood::FrameFloodGuard;
use super::stream_tracker::StreamTracker;
use crate::proxy::{ActiveProxy, ClientConnection, Connect, ProxyResponse};
use crate::server::ListenerSpec;
use crate::server::drain::ConnectionTracker;
use crate::socket::{BufferedStream, LazyTimer, TimedStream};
use crate::time::monotonic;
use crate::tls::Transport;

/// Requests at once on a connection.
const MAX_STREAMS: u32 = 128;
/// Bytes of a request's body that a client may send ahead of the server that they go to.
const STREAM_WINDOW: u32 = 128 * 1024;
/// The same of all requests of a connection together.
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Bytes of an answer that wait for a client to read them.
const MAX_UNREAD: usize = 64 * 1024;
/// Requests that a client may spoil or take back before anybody has looked at them.
const MAX_SPOILT: usize = 20;
/// The largest head: more of it would be more headers than can be held.
const MAX_HEAD: usize = 512 * 1024;
/// How long a client may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection that is told to end, and has no request, waits for the client to answer that it has heard.
const GOODBYE: Duration = Duration::from_secs(1);
/// The same if it has had one so lately: the client may still be taking its answer, of which the end waits for room, and
/// can't have heard before.
const LAST_WORDS: Duration = Duration::from_secs(5);

fn protocol(spec: &ListenerSpec, streams: StreamTracker) -> http2::Builder<StreamTracker> {
    let mut protocol = http2::Builder::new(streams);
    protocol
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_UNREAD)
        .max_pending_accept_reset_streams(MAX_SPOILT)
        .max_local_error_reset_streams(MAX_SPOILT)
        .max_header_list_size(u32::try_from(spec.max_header_bytes.min(MAX_HEAD)).unwrap_or(u32::MAX))
        .enable_connect_protocol()
        .timer(TokioTimer::new())
        // Finds clients that have vanished while an answer is on its way.
        .keep_alive_interval(spec.idle_timeout)
        .keep_alive_timeout(PING_TIMEOUT);
    protocol
}

/// Serves a connection until either end closes it.
pub(super) async fn serve(
    stream: BufferedStream<Transport>,
    spec: &ListenerSpec,
    peer: ClientConnection,
    live: &Rc<ActiveProxy>,
    open: &ConnectionTracker,
) -> Result<(), Box<dyn Error>> {
    let peer = Rc::new(peer.over_http2(spec.max_headers));
    let (stream, read) = stream.into_parts();
    // A client has always something to send, such as how much more it would take: when the connection is closed its
    // socket reads on, or a reset would take the last responses along.
    let stream = TimedStream::new(stream, read, spec.idle_timeout).lingering();
    let activity = Rc::clone(stream.activity());
    let streams = StreamTracker::new(spec.idle_timeout, spec.min_body_rate);
    let beginning = streams.clone();
    let live = Rc::clone(live);
    let service = service_fn(move |request: Request<Incoming>| {
        let (proxy, peer, progress) = (live.now(), Rc::clone(&peer), beginning.begin());
        // Apart, because it is large, and on its way into a task of its own it is moved several times.
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            let protocol = head.extensions.remove::<Protocol>();
            let connect = head.extensions.remove::<OnUpgrade>().map(|stream| Connect { protocol, stream });
            let ProxyResponse { head, body, .. } =
                proxy.handle(&peer, Box::new(head.into()), body.into(), connect).await;
            Ok::<_, Infallible>(head.into_response(progress.answer(body)))
        })
    });
    let io = TokioIo::new(FrameFloodGuard::new(stream));
    let connection = protocol(spec, streams.clone()).serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut alarm = LazyTimer::default();
    let (mut ending, mut look_at) = (None::<Instant>, monotonic() + spec.idle_timeout);
    poll_fn(|cx| {
        if open.is_draining() && ending.is_none() {
            ending = Some(monotonic());
            look_at = monotonic();
            connection.as_mut().graceful_shutdown();
        }
        loop {
            if let Poll::Ready(end) = connection.as_mut().poll(cx) {
                return Poll::Ready(end.map_err(Into::into));
            }
            open.set_idle(streams.idle_since().is_some() && !activity.is_writing());
            if streams.are_abused() {
                return Poll::Ready(Err("it takes back most of what it asks for".into()));
            }
            if alarm.wait_until(look_at, cx).is_pending() {
                return Poll::Pending;
            }
            // Looked at only now and then, so that requests need not touch the timer.
            let now = monotonic();
            let idle_since = streams.idle_since();
            let span = match ending {
                None => spec.idle_timeout,
                Some(ending) if idle_since.is_some_and(|since| since + LAST_WORDS > ending) => LAST_WORDS,
                Some(_) => GOODBYE,
            };
            let idle_since = idle_since.map(|since| ending.map_or(since, |ending| ending.max(since)));
            // What waits to be written, when all requests are done, is the last of their answers, and has its own time.
            let idle_since = idle_since.filter(|_| !activity.is_writing());
            look_at = idle_since.unwrap_or(now) + span;
            if look_at <= now {
                if ending.is_some() {
                    return Poll::Ready(Err("the client does not end it".into()));
                }
                ending = Some(now);
                look_at = now + GOODBYE;
                connection.as_mut().graceful_shutdown();
            }
        }
    })
    .await
}
