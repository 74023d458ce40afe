//! Limits whose cost the response decides, in the library.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate::limits::{Allowed, Limiter, RateLimitLayer};

use super::layer::respond;
use super::redis::{READY, wait_connected, with_redis};
use super::setup::{allowed, check, limited, limiter, request, status};
use crate::support::RedisServer;

const LIMIT: &str = "algorithm = \"fixed_window\"\nrate = \"20/day\"\nkey = \"header:x-key\"\n\
                     cost = { reserve = 1, settle = \"header:x-cost\" }";

/// A request that reserves a unit, of a key with so many units left.
async fn admit(limiter: &Limiter, left: u64) -> Allowed {
    let request = allowed(check(limiter, "/", &[("x-key", "a")]).await);
    assert_eq!(remaining(&request), left - 1);
    request
}

fn remaining(request: &Allowed) -> u64 {
    request.limits().find(|limit| limit.name == "one").unwrap().remaining
}

fn settle(request: &mut Allowed, units: u64) {
    request.settle_units(|limit| (limit == "one").then_some(units));
}

/// Settles requests in every way; 20 units are left before.
async fn settle_requests(limiter: &Limiter) {
    let mut request = admit(limiter, 20).await;
    request.settle(StatusCode::OK).await;
    settle(&mut request, 4);
    // Once only.
    settle(&mut request, 9);
    // A status that is not charged.
    let mut request = admit(limiter, 16).await;
    request.settle(StatusCode::BAD_REQUEST).await;
    assert_eq!(remaining(&request), 16);
    drop(request);
    // Without a cost the estimate stays, also where the status is not known.
    let mut request = admit(limiter, 16).await;
    request.settle(StatusCode::OK).await;
    request.settle_units(|_| None);
    drop(admit(limiter, 15).await);
    let mut request = admit(limiter, 14).await;
    request.settle(StatusCode::BAD_GATEWAY).await;
    assert_eq!(remaining(&request), 13);
    drop(request);
    // A cost that is known is charged whatever the status is.
    for code in [None, Some(StatusCode::BAD_REQUEST), Some(StatusCode::BAD_GATEWAY)] {
        let mut request = allowed(check(limiter, "/", &[("x-key", "a")]).await);
        if let Some(code) = code {
            request.settle(code).await;
        }
        settle(&mut request, 2);
    }
    let mut request = admit(limiter, 7).await;
    settle(&mut request, 0);
    // More than is left.
    let mut request = admit(limiter, 7).await;
    settle(&mut request, 50);
    drop(request);
    assert_eq!(status(&check(limiter, "/", &[("x-key", "a")]).await), 429);
    drop(admit_other(limiter).await);
}

async fn admit_other(limiter: &Limiter) -> Allowed {
    allowed(check(limiter, "/", &[("x-key", "b")]).await)
}

#[tokio::test]
async fn units_are_settled_at_what_the_response_has_cost() {
    settle_requests(&limiter(&limited(LIMIT))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_in_redis_are_settled_by_the_thread_of_the_limiter() {
    let redis = RedisServer::start();
    let limiter = limiter(&with_redis(&redis, &format!("{READY}{}", limited(LIMIT))));
    wait_connected(&limiter).await;
    settle_requests(&limiter).await;
}

/// The slot of another limit makes the thread of the limiter decide in the in-process store.
#[tokio::test]
async fn units_beside_slots_are_settled() {
    let file = format!(
        "default_limits = [\"slots\"]\n[limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 9\nkey = \"global\"\n{}",
        limited(LIMIT)
    );
    settle_requests(&limiter(&file)).await;
}

#[tokio::test]
async fn the_layer_settles_costs_in_headers() {
    let settling = limited(LIMIT);
    let kept = settling.replace("[[routes]]", "keep_cost_header = true\n[[routes]]");
    for (file, shown) in [(settling, None), (kept, Some("5"))] {
        let layer = RateLimitLayer::new(limiter(&file));
        // The cost of the second is unknown.
        for (values, left) in [(["5", "5"], "19"), (["5", "6"], "14"), (["0", "0"], "13")] {
            let make = move || {
                let [one, other] = values;
                let response = Response::builder().header("x-cost", one).header("x-cost", other);
                response.body(Full::<Bytes>::default()).unwrap()
            };
            let response = respond(&layer, request("/", &[("x-key", "a")]), make).await;
            assert_eq!(response.headers()["x-ratelimit-remaining"], left);
            let header = response.headers().get("x-cost").map(|value| value.to_str().unwrap());
            assert_eq!(header, shown.map(|_| values[0]), "{values:?}");
        }
        let response =
            respond(&layer, request("/", &[("x-key", "a")]), || Response::new(Full::<Bytes>::default()));
        assert_eq!(response.await.headers()["x-ratelimit-remaining"], "13");
    }
}
