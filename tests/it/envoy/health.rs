//! `grpc.health.v1`: `Check` and `Watch`.

use bytes::Bytes;
use prost::Message as _;
use tonic::Code;

use super::messages::{Health, HealthStatus, OK};
use super::setup::{Service, file, rate_limit_request, should_rate_limit};
use crate::support::{GrpcClient, Heard, Http2, Tidegate, eventually, get};

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const RULES: &str = "[limits.one]\nkey = \"descriptor:user\"\nalgorithm = \"fixed_window\"\nrate = \"1/hour\"\n\
                     [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"one\"]\n";

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const UNKNOWN: i32 = 3;

fn message(service: &str) -> Bytes {
    Health { service: service.to_owned() }.encode_to_vec().into()
}

fn status(message: Bytes) -> i32 {
    HealthStatus::decode(message).unwrap().status
}

async fn check(client: &GrpcClient, service: &str) -> i32 {
    status(client.unary(CHECK, message(service)).await.unwrap().into_inner())
}

async fn watch(client: &GrpcClient, service: &str) -> Heard {
    client.download(WATCH, message(service)).await.unwrap()
}

async fn next(watch: &mut Heard) -> i32 {
    status(watch.next().await.unwrap().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_is_checked() {
    let file = format!("shutdown_delay = \"1m\"\n{}", file(RULES));
    let service = Service::of(Tidegate::start(&file));
    let client = service.client().await;
    assert_eq!(check(&client, "").await, SERVING);
    assert_eq!(check(&client, SERVICE).await, SERVING);
    assert_eq!(check(&client, "other").await, UNKNOWN);
    let response = get(service.address, "/healthcheck", &[]);
    assert_eq!((response.status(), response.text()), (200, "OK\n"));
    // A process that stops says so first, and still responds.
    service.proxy.signal("TERM");
    eventually("it is not ready", || get(service.address, "/healthcheck", &[]).status() == 503);
    assert_eq!(check(&client, "").await, NOT_SERVING);
    assert_eq!(should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await.overall_code, OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watch_has_the_status_and_its_changes() {
    let file = format!("shutdown_delay = \"1m\"\n{}", file(RULES));
    let service = Service::of(Tidegate::start(&file));
    let client = service.client().await;
    let mut all = [watch(&client, "").await, watch(&client, SERVICE).await];
    let mut other = watch(&client, "other").await;
    for one in &mut all {
        assert_eq!(next(one).await, SERVING);
    }
    assert_eq!(next(&mut other).await, UNKNOWN);
    service.proxy.signal("TERM");
    for one in &mut all {
        assert_eq!(next(one).await, NOT_SERVING);
    }
    // The stop has not closed the calls, and one that starts now has the current status.
    assert_eq!(next(&mut watch(&client, "").await).await, NOT_SERVING);
    assert_eq!(check(&client, "").await, NOT_SERVING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watch_does_not_delay_the_end_of_a_process() {
    let file = format!("shutdown_grace = \"1m\"\n{}", file(RULES));
    let service = Service::of(Tidegate::start(&file));
    let client = service.client().await;
    let mut one = watch(&client, "").await;
    assert_eq!(next(&mut one).await, SERVING);
    let mut other = watch(&client, "other").await;
    assert_eq!(next(&mut other).await, UNKNOWN);
    service.proxy.stop();
    assert_eq!(next(&mut one).await, NOT_SERVING);
    for call in [&mut one, &mut other] {
        assert_eq!(call.next().await.unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watch_ends_with_its_listener() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let mut one = watch(&client, "").await;
    assert_eq!(next(&mut one).await, SERVING);
    service.proxy.reload("listen = \"127.0.0.1:0\"\n");
    assert_eq!(next(&mut one).await, NOT_SERVING);
    assert_eq!(one.next().await.unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_watch_ends_at_its_deadline() {
    let service = Service::start(RULES);
    let request = http::Request::post(format!("http://a{WATCH}"))
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "50m")
        .body(())
        .unwrap();
    let answer = Http2::connect(service.address).ask(request, b"\0\0\0\0\0");
    assert_eq!(answer.body, b"\0\0\0\0\x02\x08\x01");
    assert_eq!(answer.trailers.unwrap().get("grpc-status").unwrap(), "4");
}
