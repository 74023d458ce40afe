//! Tests of attempts over HTTP/1.1 and HTTP/2: with bodies that arrive while they are sent, and with new connections.

use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_immediate;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Frame, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::super::detached::ResponseStream;
use super::super::spec::{HostRule, UpstreamSpec};
use super::*;
use crate::body::{BodySender, RequestBody, body_channel};
use crate::config;
use crate::http1::RequestHead;
use crate::http1::names::HOST;
use crate::overload::OverloadSpec;
use crate::socket::TransferRate;
use crate::time::{Nanos, cached_now};

type Attempted = Result<(ResponseHead, ResponseStream, Option<Nanos>), FailedAttempt>;

/// Spawns tasks of HTTP/2 connections on this thread.
#[derive(Clone)]
struct OnThisThread;

impl<F: Future + 'static> Executor<F> for OnThisThread {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(async move {
            task.await;
        });
    }
}

/// Responds to `/early` at once, never to `/never`, and to others when their bodies have ended.
async fn respond(
    request: Request<Incoming>,
    arrived: Rc<Notify>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    arrived.notify_one();
    match request.uri().path() {
        "/early" => {}
        "/never" => std::future::pending().await,
        _ => drop(request.into_body().collect().await),
    }
    Ok(Response::new(Empty::new()))
}

/// A server, and what it notifies of each request.
async fn serve(is_http2: bool) -> (String, Rc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let arrived = Rc::new(Notify::new());
    let told = Rc::clone(&arrived);
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (stream, told) = (TokioIo::new(stream), Rc::clone(&told));
            let service = service_fn(move |request| respond(request, Rc::clone(&told)));
            tokio::task::spawn_local(async move {
                // Clients end their connections as they like.
                let _ = match is_http2 {
                    true => http2::Builder::new(OnThisThread).serve_connection(stream, service).await,
                    false => http1::Builder::new().serve_connection(stream, service).await,
                };
            });
        }
    });
    (url, arrived)
}

/// A request with a body that arrives from the client, to this path of a server with `overload`. `act` gets the body's other end
/// when the server has the head.
async fn attempted<T>(
    (is_http2, path): (bool, &'static str),
    total_timeout: Option<Duration>,
    act: impl FnOnce(BodySender) -> T,
) -> (Attempted, T) {
    let (url, arrived) = serve(is_http2).await;
    let spec = UpstreamSpec {
        is_http2,
        overload: Some(OverloadSpec::default()),
        ..config::defaults::upstream("u", vec![config::defaults::server(&url)])
    };
    let upstream = Upstream::new(SharedUpstream::new(&spec), UpstreamCounts::default(), &Arc::default());
    let endpoints = upstream.endpoints();
    let admission = AdmissionRequest { key: 1, class: Class::Normal, route: 0 };
    let forward = ForwardOptions {
        client: Ipv4Addr::LOCALHOST.into(),
        host: &HostRule::Upstream,
        policy: &spec.forward_policy(),
        is_reclaimable: false,
        polls_upload: true,
        hash_key: None,
        admission: Some(&admission),
    };
    let attempts = Attempts::new(None, total_timeout);
    let options = AttemptOptions::new(forward, &attempts, &endpoints, None);
    let (sender, receiver) = body_channel(None, TransferRate::new(None));
    let mut head = RequestHead::new(Method::POST, path.parse().unwrap());
    head.fields.set(HOST, b"u");
    let body = RequestBody::received(receiver);
    let mut request = UpstreamRequest { head: Box::new(head), body, interim: None };
    let attempt = attempt(&endpoints.pools[0], None, &mut request, &options, None);
    tokio::join!(attempt, async {
        arrived.notified().await;
        act(sender)
    })
}

/// Ends a body, and returns the time just before that.
fn end(body: &BodySender) -> Instant {
    let now = monotonic();
    body.send(Frame::data(Bytes::from_static(b"end")), Some(0), true);
    now
}

#[tokio::test]
async fn a_body_that_arrives_is_no_part_of_the_time_of_the_server() {
    let test = async {
        for is_http2 in [false, true] {
            let (attempted, ended_at) = attempted((is_http2, "/"), None, |body| end(&body)).await;
            let Ok((_, _, Some(latency))) = attempted else { panic!("not measured, HTTP/2: {is_http2}") };
            assert!(Duration::from(latency) <= monotonic() - ended_at, "HTTP/2: {is_http2}");
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_response_before_the_end_of_the_body_is_not_measured() {
    let test = async {
        for is_http2 in [false, true] {
            // The other end stays, so that the body does not end.
            let (attempted, _body) = attempted((is_http2, "/early"), None, |body| body).await;
            assert!(matches!(attempted, Ok((_, _, None))), "HTTP/2: {is_http2}");
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_timeout_says_whether_the_body_had_to_arrive() {
    let timeout_of = async |is_http2, total_timeout, ends| {
        let act = |body: BodySender| {
            if ends {
                end(&body);
            }
            // From now on the clock goes to the next timeout.
            tokio::time::pause();
            body
        };
        let (attempted, _body) = attempted((is_http2, "/never"), total_timeout, act).await;
        tokio::time::resume();
        let Err(FailedAttempt { error: ForwardError::ResponseTimeout(_), is_uploading, .. }) = attempted
        else {
            panic!("no timeout, HTTP/2: {is_http2}, ends: {ends}")
        };
        is_uploading
    };
    let test = async {
        for is_http2 in [false, true] {
            let total_timeout = Some(Duration::from_secs(90));
            assert!(timeout_of(is_http2, total_timeout, false).await, "HTTP/2: {is_http2}");
            assert!(!timeout_of(is_http2, None, true).await, "HTTP/2: {is_http2}");
        }
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn the_clock_is_read_after_connecting() {
    let test = async {
        for is_http2 in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("s");
            let address = SockAddr::unix(&path).unwrap();
            let socket = || Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            let listener = socket();
            listener.bind(&address).unwrap();
            listener.listen(1).unwrap();
            // While the queue of the listener is full, no connection can be made.
            let in_queue = || {
                let waiting = socket();
                waiting.set_nonblocking(true).unwrap();
                waiting.connect(&address).ok().map(|()| waiting)
            };
            let _queue: Vec<Socket> = std::iter::from_fn(in_queue).collect();
            let server = config::defaults::server(&format!("unix:{}", path.display()));
            let spec = UpstreamSpec { is_http2, ..config::defaults::upstream("u", vec![server]) };
            let upstream =
                Upstream::new(SharedUpstream::new(&spec), UpstreamCounts::default(), &Arc::default());
            let endpoints = upstream.endpoints();
            let mut checkout =
                pin!(endpoints.pools[0].checkout(None, Ipv4Addr::LOCALHOST.into(), false, None));
            assert!(poll_immediate(&mut checkout).await.is_none());
            // Another thread, since the last time is known on each.
            let freed_at = std::thread::spawn(monotonic).join().unwrap();
            let _first = listener.accept().unwrap();
            checkout.await.unwrap();
            assert!(cached_now() >= freed_at, "HTTP/2: {is_http2}");
        }
    };
    LocalSet::new().run_until(test).await;
}
