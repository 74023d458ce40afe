//! The layer: with services of axum and hyper, the examples, and bodies that hold slots.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Ready, ready};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body, Frame};
use tidegate::limits::{Client as Peer, LimitedBody, Limiter, RateLimitLayer};
use tokio::net::TcpListener;
use tower_layer::Layer as _;
use tower_service::Service;

use super::setup::{PEER, limited, limiter, request};
use crate::support::{Client, assert_seconds, eventually_async};

#[path = "../../../examples/axum.rs"]
#[allow(dead_code)]
mod axum_example;
#[path = "../../../examples/hyper.rs"]
#[allow(dead_code)]
mod hyper_example;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/limits.toml");

/// A service that responds with what this function makes.
#[derive(Clone)]
struct Fixed<F>(F);

impl<F: Fn() -> Response<B>, B> Service<Request<()>> for Fixed<F> {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Ready<Result<Response<B>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok((self.0)()))
    }
}

/// The response of a limited service to a request of our peer.
pub async fn respond<B: Body<Data = Bytes> + Send + 'static>(
    layer: &RateLimitLayer,
    mut request: Request<()>,
    make: impl Fn() -> Response<B> + Clone + Send + 'static,
) -> Response<LimitedBody<B>> {
    request.extensions_mut().insert(Peer::new(PEER.parse().unwrap()));
    layer.layer(Fixed(make)).call(request).await.unwrap()
}

fn full() -> Response<Full<Bytes>> {
    Response::new(Full::from("ok"))
}

/// Serves an example on loopback.
async fn serving<F: Future<Output = std::io::Result<()>> + Send + 'static>(
    serve: impl FnOnce(TcpListener, Limiter) -> F,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Limiter::from_file(EXAMPLE).unwrap()));
    address
}

/// Sends requests to an example until the client is denied.
fn assert_denies_the_sixth(address: SocketAddr) {
    let mut client = Client::connect(address);
    for remaining in ["4", "3", "2", "1", "0"] {
        let response = client.get("/users", &[]);
        assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (200, Some(remaining)));
    }
    let denied = client.get("/users", &[]);
    assert_eq!(denied.start, "HTTP/1.1 429 Too Many Requests");
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.text().contains("the limit per-client is used up"), "{}", denied.text());
    assert_seconds(denied.header("retry-after"), 12);
    // Another connection of the same client.
    assert_eq!(Client::connect(address).get("/users", &[]).status(), 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_with_axum_denies_by_its_limits() {
    let address =
        serving(|listener, limiter| async move { axum_example::serve(listener, &limiter).await }).await;
    tokio::task::spawn_blocking(move || {
        assert_denies_the_sixth(address);
        let mut client = Client::connect(address);
        let mut sign_in = |password: &str| {
            let length = password.len();
            let head =
                format!("POST /sign-in HTTP/1.1\r\nHost: a\r\nX-User: ada\r\nContent-Length: {length}");
            client.ask(&format!("{head}\r\n\r\n{password}")).status()
        };
        for _ in 0..5 {
            assert_eq!(sign_in("correct horse"), 200, "sign-ins that succeed are not charged");
        }
        assert_eq!(["a", "b", "c", "correct horse"].map(&mut sign_in), [401, 401, 401, 429]);
        let metrics = client.get("/metrics", &[]);
        assert!(metrics.text().contains("tidegate_decisions_total{limit=\"sign-in\",outcome=\"denied\""));
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_with_hyper_denies_by_its_limits() {
    let address = serving(|listener, limiter| async move {
        hyper_example::serve(listener, RateLimitLayer::new(limiter)).await
    })
    .await;
    tokio::task::spawn_blocking(move || assert_denies_the_sixth(address)).await.unwrap();
}

#[tokio::test]
async fn a_slot_is_released_at_the_end_of_the_body() {
    let layer = RateLimitLayer::new(limiter(&limited("algorithm = \"concurrency\"\nmax_in_flight = 1")));
    let streamed = || {
        let frames = ["a", "b"].map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
        Response::new(StreamBody::new(futures_util::stream::iter(frames)))
    };
    for ends in [true, false] {
        let mut first = respond(&layer, request("/", &[]), streamed).await;
        assert_eq!(first.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert_eq!(respond(&layer, request("/", &[]), full).await.status(), 429);
        if ends {
            assert!(first.body_mut().frame().await.is_some());
            assert!(first.body_mut().frame().await.is_none());
            eventually_async("the slot is free", async || {
                respond(&layer, request("/", &[]), full).await.status() == 200
            })
            .await;
        }
        drop(first);
        eventually_async("the slot is free", async || {
            respond(&layer, request("/", &[]), full).await.status() == 200
        })
        .await;
    }
}

#[tokio::test]
async fn headers_of_the_service_are_kept_if_they_are_stricter() {
    let layer = RateLimitLayer::new(limiter(&limited("rate = \"5/day\"")));
    for (own, shown) in [("2", "2"), ("9", "3")] {
        let response = respond(&layer, request("/", &[]), move || {
            Response::builder().header("x-ratelimit-remaining", own).body(Full::<Bytes>::default()).unwrap()
        })
        .await;
        let values: Vec<_> = response.headers().get_all("x-ratelimit-remaining").iter().collect();
        assert_eq!(values, [shown]);
    }
}

#[tokio::test]
async fn a_leaky_bucket_delays_requests() {
    let layer =
        RateLimitLayer::new(limiter(&limited("algorithm = \"leaky_bucket\"\nrate = \"10/s\"\nqueue = 5")));
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(respond(&layer, request("/", &[]), full).await.status(), 200);
    }
    assert!(start.elapsed() >= Duration::from_millis(190), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_request_without_an_address_is_not_served() {
    let layer = RateLimitLayer::new(limiter(&limited("rate = \"5/day\"")));
    let response = layer.layer(Fixed(full)).call(request("/", &[])).await.unwrap();
    assert_eq!(response.status(), 500);
    let mut with_address = request("/", &[]);
    with_address.extensions_mut().insert(SocketAddr::from(([127, 0, 0, 1], 9)));
    assert_eq!(layer.layer(Fixed(full)).call(with_address).await.unwrap().status(), 200);
}

#[tokio::test]
async fn calls_of_grpc_are_settled_by_their_own_status() {
    let layer = RateLimitLayer::new(limiter(&limited("rate = \"2/day\"\ncharge_on = [401]")));
    let call = || {
        let request = Request::post("http://a/package.Service/Method").version(http::Version::HTTP_2);
        request.header("content-type", "application/grpc").body(()).unwrap()
    };
    let with_status = |status: &'static str| {
        move || {
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
            let frames = [Ok::<_, Infallible>(Frame::trailers(trailers))];
            Response::new(StreamBody::new(futures_util::stream::iter(frames)))
        }
    };
    for _ in 0..5 {
        let response = respond(&layer, call(), with_status("0")).await;
        assert!(response.into_body().collect().await.unwrap().trailers().is_some());
    }
    for remaining in ["1", "0"] {
        // 16 is UNAUTHENTICATED.
        let response = respond(&layer, call(), with_status("16")).await;
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        drop(response.into_body().collect().await);
    }
    let denied = respond(&layer, call(), with_status("0")).await;
    assert_eq!((denied.status().as_u16(), &denied.headers()["grpc-status"]), (200, &"8".parse().unwrap()));
    let body = Pin::new(&mut denied.into_body()).frame().await;
    assert!(body.is_none(), "the error is in the headers");
}

/// A service that responds with the headers of its request.
#[derive(Clone)]
struct Mirror;

impl Service<Request<()>> for Mirror {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let mut response = full();
        response.extensions_mut().insert(request.headers().clone());
        ready(Ok(response))
    }
}

#[tokio::test]
async fn services_learn_of_soft_limits() {
    let limiter = limiter(
        "[limits.few]\nrate = \"3/day\"\nwarn_at = 0.6\n[limits.plan]\nrate = \"1/day\"\nmode = \"mark\"\n\
         [[routes]]\npath = \"/soft\"\nlimits = [\"few\", \"plan\"]\n[[routes]]\npath = \"/free\"\n",
    );
    let layer = RateLimitLayer::new(limiter);
    for (target, warning, denied) in [
        ("/soft", None, None),
        ("/soft", Some("few"), Some("plan")),
        ("/free", None, None),
        ("/soft", Some("few"), Some("plan")),
    ] {
        let mut request = request(target, &[("x-ratelimit-denied", "mine"), ("x-ratelimit-warning", "mine")]);
        request.extensions_mut().insert(Peer::new(PEER.parse().unwrap()));
        let response = layer.layer(Mirror).call(request).await.unwrap();
        let got: &HeaderMap = response.extensions().get().unwrap();
        let text =
            |headers: &HeaderMap, name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(text(got, "x-ratelimit-warning").as_deref(), warning, "{target}");
        assert_eq!(text(got, "x-ratelimit-denied").as_deref(), denied, "{target}");
        assert_eq!(text(response.headers(), "x-ratelimit-warning").as_deref(), warning, "{target}");
        assert!(!response.headers().contains_key("x-ratelimit-denied"));
    }
}
