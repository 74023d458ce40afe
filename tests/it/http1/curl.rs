//! The limits of a first configuration, as curl sees them.

use std::time::Duration;

use crate::support::{RedisServer, Tidegate, curl, eventually, timed};

/// A burst of three requests, and one more every two seconds.
const CONFIG: &str = r#"
[limits.per-client]
rate = "3/6s"
[[routes]]
path = "/*"
limits = ["per-client"]
respond = { status = 200, body = "hello\n" }
"#;

/// Three requests pass, the fourth gets Retry-After, and one passes after that time.
fn assert_retry_after_is_accurate(proxy: &Tidegate) {
    let mut clients = (1..=u8::MAX).map(|number| format!("127.0.0.{number}"));
    // A busy machine may need longer than the limit for a unit; then another client has a full burst.
    eventually("the requests are sent in time", || is_accurate_for(proxy, &clients.next().unwrap()));
}

/// The same for one client; false if a unit may have come back between two requests.
fn is_accurate_for(proxy: &Tidegate, client: &str) -> bool {
    let ask = || curl(&["--interface", client, &proxy.url("/hello")]);
    let (responses, time) = timed(|| [(); 4].map(|()| ask()));
    if time >= Duration::from_secs(2) {
        return false;
    }
    for ((status, head, body), remaining) in responses.iter().zip(["2", "1", "0"]) {
        assert_eq!((*status, &**body), (200, "hello\n"));
        assert_eq!(head.start, "HTTP/1.1 200 OK");
        assert_eq!(head.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(head.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(head.header("retry-after"), None);
    }
    let (status, head, body) = &responses[3];
    assert_eq!(*status, 429);
    assert_eq!(head.start, "HTTP/1.1 429 Too Many Requests");
    assert_eq!(head.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(head.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(head.header("content-type"), Some("application/problem+json"));
    let wait = head.header("retry-after").unwrap();
    let detail = format!(
        "the limit per-client is used up; try again in {wait} second{}\"",
        if wait == "1" { "" } else { "s" }
    );
    assert!(body.contains(&detail), "{body}");
    let wait: u64 = wait.parse().unwrap();
    assert!((1..=2).contains(&wait), "{wait}");
    // Real time is tested: the header promises that this wait is enough.
    std::thread::sleep(Duration::from_secs(wait));
    let (responses, time) = timed(|| [ask(), ask()]);
    let [(status, head, body), (next, ..)] = responses;
    assert_eq!((status, &*body), (200, "hello\n"));
    // The unit came back within the second before; the next one follows two seconds later.
    if time >= Duration::from_secs(1) {
        return false;
    }
    assert_eq!((head.header("x-ratelimit-remaining"), next), (Some("0"), 429));
    true
}

#[test]
fn retry_after_is_accurate_with_the_memory_store() {
    assert_retry_after_is_accurate(&Tidegate::start(CONFIG));
}

#[test]
fn retry_after_is_accurate_with_redis() {
    let redis = RedisServer::start();
    assert_retry_after_is_accurate(&Tidegate::start_with(&redis, CONFIG));
}

#[test]
fn requests_of_curl_with_a_body_head_and_http_1_0_are_served() {
    let proxy = Tidegate::start(CONFIG);
    let (status, _, body) = curl(&["--request", "DELETE", "--data", "x=1", &proxy.url("/")]);
    assert_eq!((status, &*body), (200, "hello\n"));
    let (status, head, body) = curl(&["--head", &proxy.url("/")]);
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(head.header("content-length"), Some("6"));
    let (status, head, _) = curl(&["--http1.0", &proxy.url("/")]);
    assert_eq!((status, head.header("x-ratelimit-remaining")), (200, Some("0")));
}
