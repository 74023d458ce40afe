//! Messages and details of gRPC calls that are denied or answered locally.

use prost::Message as _;
use tonic::Status;
use tonic_types::{StatusExt as _, pb};

use super::*;

/// A proxy with a limit of one call an hour, local error responses, and these lines.
fn denying(lines: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.one]\nrate = \"1/hour\"\n{lines}\n\
         [[routes]]\npath = \"/test.Calls/One\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/test.Calls/Never\"\nrespond = {{ status = 429 }}\n\
         [[routes]]\npath = \"/test.Calls/Later\"\nrespond = {{ status = 503, body = \"later\" }}\n\
         response_headers = {{ set = {{ retry-after = \"7\" }} }}\n\
         [[routes]]\npath = \"/test.Calls/Date\"\nrespond = {{ status = 503, body = \"then\" }}\n\
         response_headers = {{ set = {{ retry-after = \"Fri, 31 Dec 1999 23:59:59 GMT\" }} }}\n"
    ))
}

/// The status that tonic reports for a call.
async fn status_of(proxy: &Tidegate, method: &str) -> Status {
    GrpcClient::connect(url(proxy), None).await.unary(method, "").await.unwrap_err()
}

fn header<'s>(status: &'s Status, name: &str) -> Option<&'s str> {
    status.metadata().get(name).map(|value| value.to_str().unwrap())
}

/// The retry delay in the status details.
fn delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

/// Asserts that the status details repeat the headers.
#[track_caller]
fn assert_details_repeat(status: &Status) {
    let details = pb::Status::decode(status.details()).unwrap();
    assert_eq!((details.code, &*details.message), (status.code() as i32, status.message()));
    assert_eq!(details.details.len(), 1, "{details:?}");
    let seconds = header(status, "retry-after").unwrap().parse().unwrap();
    assert_eq!(delay(status), Some(Duration::from_secs(seconds)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_details_have_the_retry_delay() {
    let proxy = denying("");
    // The response of the route is not gRPC, but is counted.
    status_of(&proxy, "One").await;
    let status = status_of(&proxy, "One").await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(delay(&status).is_some_and(|delay| (3500..=3600).contains(&delay.as_secs())), "{status:?}");
    assert_details_repeat(&status);
    let status = status_of(&proxy, "Later").await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "later"));
    assert_eq!(delay(&status), Some(Duration::from_secs(7)));
    assert_details_repeat(&status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn there_are_no_status_details_without_a_retry_delay() {
    let proxy = denying("");
    for (method, pushback) in [("Never", Some("-1")), ("Date", None), ("Nowhere", None)] {
        let status = status_of(&proxy, method).await;
        assert_eq!((status.details(), header(&status, "grpc-retry-pushback-ms")), (&b""[..], pushback));
        assert!(!status.metadata().contains_key("grpc-status-details-bin"), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_configured_body_becomes_the_grpc_message() {
    let proxy = denying("[answers]\ndenied = { body = \" 100 % für heute\\nvorbei; {retry_after} s\\n\" }");
    status_of(&proxy, "One").await;
    let status = status_of(&proxy, "One").await;
    let wait = header(&status, "retry-after").unwrap();
    assert_eq!(status.message(), format!("100 % für heute\nvorbei; {wait} s"));
    assert_details_repeat(&status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_body_is_truncated_in_the_grpc_message() {
    // Each character takes three bytes, and escaped nine.
    let body = "€".repeat(20_000);
    let proxy = denying(&format!("[answers]\ndenied = {{ body = \"{body}\" }}"));
    status_of(&proxy, "One").await;
    let status = status_of(&proxy, "One").await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "€".repeat(1024 / 3));
    assert_details_repeat(&status);
}
