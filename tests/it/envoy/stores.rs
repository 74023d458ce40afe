//! Several proxies on one Redis, and what happens without it.

use prost::Message as _;
use tonic::Code;

use super::messages::OK;
use super::setup::{METHOD, Service, rate_limit_request, should_rate_limit};
use crate::support::{RedisServer, eventually};

fn rules(on_failure: &str) -> String {
    format!(
        "[limits.many]\nalgorithm = \"fixed_window\"\nrate = \"90/hour\"\nkey = \"descriptor:user\"\n\
         on_store_failure = \"{on_failure}\"\n\
         [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"many\"]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_proxies_on_one_redis_are_never_over() {
    let redis = RedisServer::start();
    let services: Vec<Service> = (0..3).map(|_| Service::start_with(&redis, &rules("local"))).collect();
    let mut asking = Vec::new();
    for service in &services {
        for _ in 0..4 {
            let client = service.client().await;
            asking.push(tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..30 {
                    allowed += u32::from(
                        should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await.overall_code
                            == OK,
                    );
                }
                allowed
            }));
        }
    }
    let mut allowed = 0;
    for one in asking {
        allowed += one.await.unwrap();
    }
    assert_eq!(allowed, 90);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_frozen_redis_leaves_the_share_of_this_process() {
    let redis = RedisServer::start();
    let service = Service::start_with(&redis, &rules("local"));
    let client = service.client().await;
    assert_eq!(should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await.overall_code, OK);
    redis.pause();
    let mut allowed = 1;
    for _ in 0..120 {
        allowed += u32::from(
            should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await.overall_code == OK,
        );
    }
    redis.resume();
    // What was sent to the frozen server may be counted in both places, so it is not more.
    assert!((60..=90).contains(&allowed), "{allowed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_that_denies_without_its_store_is_unavailable() {
    let mut redis = RedisServer::start();
    let service = Service::start_with(&redis, &rules("deny"));
    let client = service.client().await;
    assert_eq!(should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await.overall_code, OK);
    redis.kill();
    let error = client.unary(METHOD, rate_limit_request("d", &["user=a"]).encode_to_vec()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::Unavailable, "the store that counts limits is unavailable")
    );
    let descriptor = super::setup::json_descriptor("user=a");
    let (status, _) = service.json(&serde_json::json!({ "domain": "d", "descriptors": [descriptor] }));
    assert_eq!(status, 503);
    // Descriptors without limits need no store.
    assert_eq!(should_rate_limit(&client, &rate_limit_request("d", &["other=a"])).await.overall_code, OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reload_keeps_the_counts_and_changes_the_rules() {
    let service = Service::start(&rules("local"));
    let client = service.client().await;
    let left = async |client| {
        should_rate_limit(client, &rate_limit_request("d", &["user=a"])).await.statuses[0].limit_remaining
    };
    assert_eq!(left(&client).await, 89);
    let changed = rules("local").replace("90/hour", "50/hour");
    service.proxy.reload(&super::setup::file(&changed));
    assert_eq!(left(&client).await, 48);
    // A listener that serves something else afterwards does so for new connections.
    service.proxy.reload(&super::setup::file(&changed).replace("envoy-ratelimit", "proxy"));
    eventually("the routes are served", || {
        crate::support::get(service.address, "/healthcheck", &[]).status() == 404
    });
}

#[test]
fn decisions_are_counted() {
    let service = Service::of(crate::support::Tidegate::start(&super::setup::file(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n{}[[descriptors]]\ndomain = \"d\"\nmatch = [\"bad\"]\nblock = true\n",
        rules("local")
    ))));
    assert!(
        service.allows("d", &["user=a"])
            && service.allows("d", &["user=b"])
            && !service.allows("d", &["bad=1"])
    );
    service.json(&serde_json::json!({}));
    let count = |verdict: &str| {
        let labels = format!("{{interface=\"envoy_ratelimit\",outcome=\"{verdict}\"}}");
        service.proxy.metric(&format!("tidegate_interface_requests_total{labels}"))
    };
    assert_eq!((count("allowed"), count("denied"), count("error")), (2, 1, 1));
    assert_eq!(service.proxy.decisions("many", "allowed"), 2);
}
