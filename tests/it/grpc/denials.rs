//! What clients of gRPC hear of a refusal beside its code.

use prost::Message as _;
use tonic::Status;
use tonic_types::{StatusExt as _, pb};

use super::*;

/// A proxy with a limit of one call an hour, routes that refuse by themselves, and these lines.
fn refusing(lines: &str) -> Tidegate {
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

/// What the client of this library makes of a refused call.
async fn refusal(proxy: &Tidegate, method: &str) -> Status {
    GrpcClient::connect(url(proxy), None).await.unary(method, "").await.unwrap_err()
}

fn header<'s>(status: &'s Status, name: &str) -> Option<&'s str> {
    status.metadata().get(name).map(|value| value.to_str().unwrap())
}

/// How long to wait, as the details have it.
fn delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

/// Checks that the details say the same as the headers.
#[track_caller]
fn assert_details_repeat(status: &Status) {
    let details = pb::Status::decode(status.details()).unwrap();
    assert_eq!((details.code, &*details.message), (status.code() as i32, status.message()));
    assert_eq!(details.details.len(), 1, "{details:?}");
    let seconds = header(status, "retry-after").unwrap().parse().unwrap();
    assert_eq!(delay(status), Some(Duration::from_secs(seconds)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_details_say_when_to_come_again() {
    let proxy = refusing("");
    // The answer of the route is none of gRPC's, and spends the limit.
    refusal(&proxy, "One").await;
    let status = refusal(&proxy, "One").await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(delay(&status).is_some_and(|delay| (3500..=3600).contains(&delay.as_secs())), "{status:?}");
    assert_details_repeat(&status);
    let status = refusal(&proxy, "Later").await;
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "later"));
    assert_eq!(delay(&status), Some(Duration::from_secs(7)));
    assert_details_repeat(&status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn there_are_no_details_where_nobody_knows_when() {
    let proxy = refusing("");
    for (method, pushback) in [("Never", Some("-1")), ("Date", None), ("Nowhere", None)] {
        let status = refusal(&proxy, method).await;
        assert_eq!((status.details(), header(&status, "grpc-retry-pushback-ms")), (&b""[..], pushback));
        assert!(!status.metadata().contains_key("grpc-status-details-bin"), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_operators_own_words_come_as_they_were_written() {
    let proxy = refusing("[answers]\ndenied = { body = \" 100 % für heute\\nvorbei; {retry_after} s\\n\" }");
    refusal(&proxy, "One").await;
    let status = refusal(&proxy, "One").await;
    let wait = header(&status, "retry-after").unwrap();
    assert_eq!(status.message(), format!("100 % für heute\nvorbei; {wait} s"));
    assert_details_repeat(&status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_answer_becomes_a_short_message() {
    // Each character takes three bytes, and escaped nine.
    let body = "€".repeat(20_000);
    let proxy = refusing(&format!("[answers]\ndenied = {{ body = \"{body}\" }}"));
    refusal(&proxy, "One").await;
    let status = refusal(&proxy, "One").await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.message(), "€".repeat(1024 / 3));
    assert_details_repeat(&status);
}
