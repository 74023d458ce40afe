//! The protocol: errors of gRPC, JSON over HTTP/1.1 and HTTP/2, deadlines.

use bytes::Bytes;
use prost::Message as _;
use serde_json::json;
use tonic::{Code, Request};

use super::messages::OK;
use super::setup::{METHOD, Service, json_descriptor, rate_limit_request, should_rate_limit};
use crate::support::{Http2, curl, get};

const RULES: &str = "[limits.one]\nkey = \"descriptor:user\"\nalgorithm = \"fixed_window\"\nrate = \"1/hour\"\n\
                     [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"one\"]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn invalid_calls_get_an_error_that_says_why() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let mut negative = rate_limit_request("d", &["user=a"]);
    negative.descriptors[0].is_negative_hits = true;
    for (message, text) in [
        (rate_limit_request("", &["user=a"]).encode_to_vec(), "the domain is empty"),
        (rate_limit_request("d", &[]).encode_to_vec(), "there are no descriptors"),
        (rate_limit_request("d", &["user=a"; 101]).encode_to_vec(), "there are more than 100 descriptors"),
        (
            negative.encode_to_vec(),
            "descriptor 0: negative hits are not supported: units can't be given back",
        ),
    ] {
        let error = client.unary(METHOD, message).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::InvalidArgument, text));
    }
    let error = client.unary(METHOD, Bytes::from_static(b"\x0a\x05a")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("the message is not valid: "), "{}", error.message());
    let error = client.unary(METHOD, vec![0; 70 * 1024]).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::ResourceExhausted, "a message has at most 64 KiB"));
    let error = client.unary("/envoy.service.ratelimit.v3.RateLimitService/Other", vec![]).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    // A descriptor without entries matches no rule, as in the reference.
    let mut empty = rate_limit_request("d", &["user=a"]);
    empty.descriptors[0].entries.clear();
    assert_eq!(should_rate_limit(&client, &empty).await.overall_code, OK);
    // The connection serves on.
    assert_eq!(should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await.overall_code, OK);
}

#[test]
fn compressed_messages_are_not_supported() {
    let service = Service::start(RULES);
    let request = http::Request::post("http://a/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let response = Http2::connect(service.address).ask(request, b"\x01\0\0\0\x01x");
    let status = response.response.headers().get("grpc-status").unwrap();
    assert_eq!((response.status(), status.as_bytes()), (200, &b"12"[..]));
}

#[test]
fn json_has_the_verdict_as_its_status() {
    let service = Service::start(RULES);
    let request = json!({ "domain": "d", "descriptors": [json_descriptor("user=a")] });
    let (status, response) = service.json(&request);
    let first = &response["statuses"][0];
    assert_eq!((status, &response["overallCode"], &first["code"]), (200, &json!("OK"), &json!("OK")));
    assert_eq!(first["currentLimit"], json!({ "name": "one", "requestsPerUnit": 1, "unit": "HOUR" }));
    let (status, response) = service.json(&request);
    assert_eq!((status, &response["overallCode"]), (429, &json!("OVER_LIMIT")));
    assert_eq!(service.json(&json!({ "domain": "d" })).0, 400);
    assert_eq!(service.json(&json!({ "domains": "d" })).0, 400);
    let wrong = get(service.address, "/json", &[]);
    assert_eq!((wrong.status(), wrong.header("allow")), (405, Some("POST")));
    assert_eq!(get(service.address, "/other", &[]).status(), 404);
    let url = format!("http://{}/json", service.address);
    let text = request.to_string();
    let (_, over_http2, _) = curl(&["--http2-prior-knowledge", "-d", &text, &url]);
    assert_eq!(over_http2.status(), 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_deadline_that_has_passed_is_an_error() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let mut request = Request::new(Bytes::from(rate_limit_request("d", &["user=a"]).encode_to_vec()));
    request.metadata_mut().insert("grpc-timeout", "10S".parse().unwrap());
    client.unary_with(METHOD, request).await.unwrap();
}
