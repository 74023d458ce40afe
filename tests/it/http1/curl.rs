//! What somebody sees who tries it with curl.

use std::time::{Duration, Instant};

use crate::support::{RedisServer, Tidegate, curl};

/// Three at once, and one more each two seconds.
const CONFIG: &str = r#"
[limits.per-client]
rate = "3/6s"
[[routes]]
path = "/*"
limits = ["per-client"]
respond = { status = 200, body = "hello\n" }
"#;

/// Three pass, the fourth is told when to come again, comes then, and passes; but only once.
fn comes_again(proxy: &Tidegate) {
    let url = proxy.url("/hello");
    let begin = Instant::now();
    for remaining in ["2", "1", "0"] {
        let (status, head, body) = curl(&[&url]);
        assert_eq!((status, &*body), (200, "hello\n"));
        assert_eq!(head.start, "HTTP/1.1 200 OK");
        assert_eq!(head.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(head.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(head.header("retry-after"), None);
    }
    let (status, head, body) = curl(&[&url]);
    assert!(begin.elapsed() < Duration::from_secs(2), "too slow to say anything: {:?}", begin.elapsed());
    assert_eq!(status, 429);
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
    // What the header asks for, and nothing more.
    std::thread::sleep(Duration::from_secs(wait));
    let (status, head, body) = curl(&[&url]);
    assert_eq!((status, &*body), (200, "hello\n"));
    assert_eq!(head.header("x-ratelimit-remaining"), Some("0"));
    let (status, ..) = curl(&[&url]);
    assert_eq!(status, 429);
}

#[test]
fn curl_comes_again_when_it_is_told() {
    comes_again(&Tidegate::start(CONFIG));
}

#[test]
fn curl_comes_again_when_redis_counts() {
    let redis = RedisServer::start();
    comes_again(&Tidegate::start_with(&redis, CONFIG));
}

#[test]
fn curl_sends_what_it_likes() {
    let proxy = Tidegate::start(CONFIG);
    let (status, _, body) = curl(&["--request", "DELETE", "--data", "x=1", &proxy.url("/")]);
    assert_eq!((status, &*body), (200, "hello\n"));
    let (status, head, body) = curl(&["--head", &proxy.url("/")]);
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(head.header("content-length"), Some("6"));
    let (status, head, _) = curl(&["--http1.0", &proxy.url("/")]);
    assert_eq!((status, head.header("x-ratelimit-remaining")), (200, Some("0")));
}
