//! Decisions of the library, compared with those of the proxy on the same file.

use std::time::{SystemTime, UNIX_EPOCH};

use http::StatusCode;
use tidegate::limits::{Client, Error, Limiter};

use super::setup::{
    allowed, check, check_from, denied, limited, limiter, request, response, shown, shown_by_proxy, status,
    within,
};
use crate::support::{Tidegate, eventually_async, get};

/// A file of a proxy. Its windows end with the day, so times change with each second of the clock.
const FILE: &str = "\
    default_limits = [\"all\"]\n\
    [client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n\
    [limits.all]\nrate = \"100/day\"\nalgorithm = \"fixed_window\"\n\
    [limits.few]\nrate = \"2/day\"\nalgorithm = \"fixed_window\"\n\
    [limits.keyed]\nrate = \"2/day\"\nkey = \"header:x-key\"\non_missing = \"deny\"\n\
    [limits.blocking]\nrate = \"2/day\"\nkey = \"header:x-key\"\nblock = [\"key:bad\"]\n\
    [limits.trial]\nrate = \"1/day\"\nmode = \"shadow\"\n\
    [[routes]]\npath = \"/few\"\nlimits = [\"few\"]\nrespond = { body = \"ok\" }\n\
    [[routes]]\npath = \"/keyed\"\nlimits = [\"keyed\"]\nrespond = { body = \"ok\" }\n\
    [[routes]]\npath = \"/blocking\"\nlimits = [\"blocking\"]\nrespond = { body = \"ok\" }\n\
    [[routes]]\npath = \"/trial\"\nlimits = [\"trial\"]\nrespond = { body = \"ok\" }\n\
    [[routes]]\npath = \"/closed\"\nblock = true\n\
";

/// Requests, each with a target and a header.
const REQUESTS: [(&str, &str, &str); 17] = [
    ("/few", "", ""),
    ("/few", "", ""),
    ("/few", "", ""),
    ("/few", "x-forwarded-for", "198.51.100.7"),
    ("/keyed", "", ""),
    ("/keyed", "x-key", "a"),
    ("/keyed", "x-key", "a"),
    ("/keyed", "x-key", "a"),
    ("/keyed", "x-key", "b"),
    ("/blocking", "x-key", "good"),
    ("/blocking", "x-key", "bad"),
    ("/trial", "", ""),
    ("/trial", "", ""),
    ("/closed", "", ""),
    ("/few%2f", "", ""),
    ("/few//../few", "x-forwarded-for", "198.51.100.7"),
    ("/few", "x-forwarded-for", "198.51.100.7"),
];

/// The second of the clock.
fn second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn responses_are_those_of_the_proxy() {
    for answers in ["", "[answers]\nrate_headers = \"draft-11\"\ndenied = { body = \"{limit} {detail}\" }\n"]
    {
        let file = format!("{FILE}{answers}");
        let proxy = Tidegate::start(&file);
        let limiter = limiter(&file);
        let mut compared = 0;
        for (target, name, value) in REQUESTS {
            let (lines, pairs) = match name {
                "" => (Vec::new(), Vec::new()),
                _ => (vec![format!("{name}: {value}")], vec![(name, value)]),
            };
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let before = second();
            let expected = get(proxy.addr(), target, &[&["Host: a"], &lines[..]].concat());
            let found = response(check(&limiter, target, &pairs).await);
            let request = format!("{target} {name}: {value}");
            assert_eq!(found.status().as_u16(), expected.status(), "{request}");
            if second() != before {
                continue;
            }
            compared += 1;
            assert_eq!(shown(found.headers()), shown_by_proxy(&expected), "{request}");
            if found.status() != 200 {
                let text = String::from_utf8(found.into_body().to_vec()).unwrap();
                assert_eq!(text, expected.text(), "{request}");
            }
        }
        assert!(compared > REQUESTS.len() / 2, "only {compared} were decided in one second by both");
    }
}

#[tokio::test]
async fn a_request_without_a_route_is_served_within_the_default_limits() {
    let limiter = limiter("default_limits = [\"one\"]\nlimits.one = { rate = \"1/day\" }");
    let first = allowed(check(&limiter, "/anything", &[]).await);
    let limits: Vec<_> = first.limits().map(|limit| (limit.name, limit.limit, limit.remaining)).collect();
    assert_eq!(limits, [("one", 1, 0)]);
    let second = denied(check(&limiter, "/else", &[]).await);
    assert_eq!((second.status(), second.limit()), (StatusCode::TOO_MANY_REQUESTS, Some("one")));
    assert_eq!(second.retry_after().unwrap().as_secs(), 86_400);
    assert_eq!(second.headers()["retry-after"], "86400");
}

#[tokio::test]
async fn the_host_of_an_absolute_target_needs_no_header() {
    let limiter = limiter(
        "[limits.one]\nrate = \"1/day\"\n[[routes]]\nhost = \"api.example\"\npath = \"/*\"\nlimits = [\"one\"]\n",
    );
    let request = http::Request::get("https://api.example:8443/users").body(()).unwrap();
    let peer = Client::from(std::net::IpAddr::from([192, 0, 2, 1]));
    assert!(limiter.check(&request, peer.clone()).await.is_allowed());
    assert!(!limiter.check(&request, peer).await.is_allowed());
    assert_eq!(status(&check(&limiter, "/users", &[("host", "other.example")]).await), 200);
}

#[tokio::test]
async fn the_subject_of_a_certificate_can_be_a_key() {
    let limiter = limiter(&limited("rate = \"1/day\"\nkey = \"tls:subject\"\non_missing = \"deny\""));
    let request = request("/", &[]);
    let peer = |subject| Client::new([192, 0, 2, 1].into()).with_tls_subject(subject);
    assert!(limiter.check(&request, peer("CN=a")).await.is_allowed());
    assert!(limiter.check(&request, peer("CN=b")).await.is_allowed());
    assert!(!limiter.check(&request, peer("CN=a")).await.is_allowed());
    assert_eq!(status(&check(&limiter, "/", &[]).await), 403);
}

#[tokio::test]
async fn another_name_of_a_certificate_can_be_a_key() {
    let limiter = limiter(&limited("rate = \"1/day\"\nkey = \"tls:san\"\non_missing = \"deny\""));
    let request = request("/", &[]);
    let peer = |name| Client::new([192, 0, 2, 1].into()).with_tls_san(name);
    assert!(limiter.check(&request, peer("spiffe://a/b")).await.is_allowed());
    assert!(limiter.check(&request, peer("spiffe://a/c")).await.is_allowed());
    assert!(!limiter.check(&request, peer("spiffe://a/b")).await.is_allowed());
    assert_eq!(status(&check(&limiter, "/", &[]).await), 403);
}

#[tokio::test]
async fn a_slot_is_held_until_the_permission_is_dropped() {
    let limiter = limiter(&limited("algorithm = \"concurrency\"\nmax_in_flight = 1"));
    let first = allowed(check(&limiter, "/", &[]).await);
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
    assert!(check_from(&limiter, "127.0.0.2", "/", &[]).await.is_allowed());
    drop(first);
    eventually_async("the slot is free", async || check(&limiter, "/", &[]).await.is_allowed()).await;
}

#[tokio::test]
async fn a_dropped_check_leaves_no_slot_behind() {
    let limiter = limiter(&limited("algorithm = \"concurrency\"\nmax_in_flight = 1"));
    for _ in 0..100 {
        let mut check = Box::pin(check(&limiter, "/", &[]));
        // Polled once, so that the thread of the limiter has the request.
        let _ = futures_util::poll!(&mut check);
        drop(check);
    }
    eventually_async("the slot is free", async || check(&limiter, "/", &[]).await.is_allowed()).await;
}

#[tokio::test]
async fn units_are_refunded_by_the_final_status() {
    let limiter = limiter(&limited("rate = \"3/day\"\ncharge_on = [401]"));
    for _ in 0..5 {
        let mut request = allowed(check(&limiter, "/", &[]).await);
        assert_eq!(request.limits().next().unwrap().remaining, 2);
        request.settle(StatusCode::OK).await;
        assert_eq!(request.limits().next().unwrap().remaining, 3);
    }
    allowed(check(&limiter, "/", &[]).await).settle(StatusCode::UNAUTHORIZED).await;
    // The service may have processed it.
    allowed(check(&limiter, "/", &[]).await).settle(StatusCode::GATEWAY_TIMEOUT).await;
    // Not settled, so it stays charged.
    drop(allowed(check(&limiter, "/", &[]).await));
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
}

#[tokio::test]
async fn the_thread_ends_with_the_last_request() {
    let limiter = limiter(&limited("algorithm = \"concurrency\"\nmax_in_flight = 1"));
    let (clone, request) = (limiter.clone(), allowed(check(&limiter, "/", &[]).await));
    let mut closed = Box::pin(limiter.close());
    assert!(futures_util::poll!(&mut closed).is_pending());
    drop(clone);
    assert!(futures_util::poll!(&mut closed).is_pending());
    drop(request);
    within("the thread ends", closed).await;
}

#[test]
fn checks_need_no_runtime() {
    let limiter = limiter(&limited("rate = \"1/day\"\ncharge_on = [500]"));
    let peer: std::net::IpAddr = [192, 0, 2, 1].into();
    let decide = |target| {
        std::thread::scope(|scope| {
            let check = limiter.check(&request(target, &[]), peer);
            scope.spawn(|| futures_executor(check)).join().unwrap()
        })
    };
    assert!(decide("/").is_allowed());
}

/// Runs a future without a runtime.
fn futures_executor<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = std::pin::pin!(future);
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

#[test]
fn a_file_of_a_proxy_is_read_without_what_its_program_does_not_have() {
    let file = format!(
        "workers = 4\n\
         [[listeners]]\nlisten = \"0.0.0.0:443\"\ntls = {{ cert = \"missing.pem\", key = \"missing.key\" }}\n\
         [admin]\nlisten = \"127.0.0.1:9900\"\ntoken = \"${{MISSING_TOKEN}}\"\n\
         [upstreams.api]\nservers = [\"https://10.0.0.1\"]\nca = \"missing.pem\"\n\
         [[routes]]\npath = \"/a\"\nupstream = \"api\"\nrewrite = {{ strip_prefix = \"/a\" }}\nlimits = [\"one\"]\n{}",
        limited("rate = \"1/s\"")
    );
    limiter(&file);
}

#[test]
fn all_errors_of_a_file_are_reported() {
    let file = "[limits.one]\nrate = \"1/fortnight\"\nkey = \"body:/user\"\n[[routes]]\npath = \"users\"\n";
    let Err(Error::Config(errors)) = Limiter::from_toml(file) else { panic!("it has errors") };
    let lines: Vec<String> = errors.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("limits.toml:2:8: "), "{lines:?}");
    assert!(errors.to_string().contains("path = \"users\""), "{errors}");
    let body = limited("rate = \"1/s\"\nkey = \"body:/user\"");
    let error = Limiter::from_toml(&body).unwrap_err().to_string();
    assert!(error.contains("the library does not read bodies"), "{error}");
    let error = Limiter::from_file("/missing/limits.toml").unwrap_err().to_string();
    assert!(error.contains("can't read /missing/limits.toml"), "{error}");
}

#[tokio::test]
async fn metrics_count_decisions_of_all_threads() {
    let limiter = limiter(&limited("rate = \"10/day\""));
    let checks = (0..30).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { check(&limiter, "/", &[]).await.is_allowed() })
    });
    for check in checks.collect::<Vec<_>>() {
        check.await.unwrap();
    }
    let metrics = limiter.metrics();
    for (outcome, count) in [("allowed", 8), ("near_limit", 2), ("denied", 20)] {
        let line = format!(
            "tidegate_decisions_total{{limit=\"one\",outcome=\"{outcome}\",source=\"memory\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    for (outcome, count) in [("allowed", 10), ("denied", 20), ("error", 0)] {
        let line = format!(
            "tidegate_interface_requests_total{{interface=\"library\",outcome=\"{outcome}\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(!metrics.contains("interface=\"proxy\""), "{metrics}");
}
