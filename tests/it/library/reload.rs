//! Reloads of a limiter: what stays, what changes, and requests meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use jsonwebtoken::Algorithm;
use serde_json::json;
use tidegate::limits::{Error, Limiter};

use super::setup::{allowed, check, denied, limited, limiter, status, within};
use crate::support::{Issuer, Publisher, RedisServer, eventually_async, jwks};

/// A file with two limits, and a route for each.
fn two(first: &str, second: &str) -> String {
    format!(
        "[limits.first]\n{first}\n[limits.second]\n{second}\n\
         [[routes]]\npath = \"/first\"\nlimits = [\"first\"]\n\
         [[routes]]\npath = \"/second\"\nlimits = [\"second\"]\n"
    )
}

/// The remaining units after a request that is allowed.
async fn remaining(limiter: &Limiter, target: &str) -> u64 {
    allowed(check(limiter, target, &[]).await).limits().next().unwrap().remaining
}

#[tokio::test]
async fn counts_stay_and_numbers_change() {
    let limiter = limiter(&two("rate = \"10/day\"", "rate = \"10/day\""));
    for left in [9, 8, 7] {
        assert_eq!(remaining(&limiter, "/first").await, left);
        assert_eq!(remaining(&limiter, "/second").await, left);
    }
    let clone = limiter.clone();
    clone.reload_toml(&two("rate = \"10/day\"", "rate = \"10/day\"\nburst = 20")).await.unwrap();
    assert_eq!(remaining(&limiter, "/first").await, 6);
    assert_eq!(remaining(&limiter, "/second").await, 16);
    // Another order of limits, one of which is new.
    limiter
        .reload_toml(&format!(
            "[limits.a]\nrate = \"1/day\"\n{}",
            two("rate = \"10/day\"", "rate = \"4/day\"")
        ))
        .await
        .unwrap();
    assert_eq!(remaining(&limiter, "/first").await, 5);
    let metrics = limiter.metrics();
    let line = "tidegate_decisions_total{limit=\"first\",outcome=\"allowed\",source=\"memory\"} 5\n";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn an_invalid_text_changes_nothing() {
    let limiter = limiter(&limited("rate = \"2/day\""));
    assert_eq!(status(&check(&limiter, "/", &[]).await), 200);
    let Err(Error::Config(errors)) = limiter.reload_toml("[limits.one]\nrate = \"many\"\n").await else {
        panic!("it has errors")
    };
    assert!(errors.lines().next().unwrap().starts_with("limits.toml:2:8: "), "{errors}");
    let error = limiter.reload_file("/missing/limits.toml").await.unwrap_err().to_string();
    assert!(error.contains("can't read /missing/limits.toml"), "{error}");
    assert_eq!(status(&check(&limiter, "/", &[]).await), 200);
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
}

#[tokio::test]
async fn a_file_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("limits.toml");
    std::fs::write(&file, limited("rate = \"1/day\"")).unwrap();
    let limiter = Limiter::from_file(&file).unwrap();
    assert_eq!(status(&check(&limiter, "/", &[]).await), 200);
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
    std::fs::write(&file, "[[routes]]\npath = \"/*\"\nblock = true\n").unwrap();
    limiter.reload_file(&file).await.unwrap();
    assert_eq!(status(&check(&limiter, "/", &[]).await), 403);
}

#[tokio::test]
async fn requests_in_flight_keep_what_they_hold() {
    let limiter = limiter(&two(
        "algorithm = \"concurrency\"\nmax_in_flight = 1",
        "rate = \"2/day\"\ncharge_on = [401]",
    ));
    let slot = allowed(check(&limiter, "/first", &[]).await);
    let mut units = allowed(check(&limiter, "/second", &[]).await);
    // The limits of both requests have other indices now.
    let next = format!(
        "[limits.a]\nrate = \"1/s\"\n{}",
        two("algorithm = \"concurrency\"\nmax_in_flight = 1", "rate = \"2/day\"\ncharge_on = [401]")
    );
    limiter.reload_toml(&next).await.unwrap();
    assert_eq!(status(&check(&limiter, "/first", &[]).await), 429);
    assert_eq!(
        units.limits().map(|limit| (limit.name.to_owned(), limit.remaining)).collect::<Vec<_>>(),
        [("second".to_owned(), 1)]
    );
    units.settle(StatusCode::OK).await;
    assert_eq!(units.limits().next().unwrap().remaining, 2);
    assert_eq!(remaining(&limiter, "/second").await, 1);
    drop(slot);
    eventually_async("the slot is free", async || check(&limiter, "/first", &[]).await.is_allowed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_and_reloads_at_once_lose_no_count() {
    const LIMIT: usize = 200;
    let texts = [0, 1].map(|added| {
        let other = format!("[limits.a{added}]\nrate = \"1/s\"\n").repeat(added);
        format!(
            "{other}{}",
            two(&format!("rate = \"{LIMIT}/day\""), &format!("rate = \"{LIMIT}/day\"\ncharge_on = [200]"))
        )
    });
    let limiter = limiter(&texts[0]);
    let (is_over, mut reloads) = (AtomicBool::new(false), 0);
    let checks = ["/first", "/second"].map(|target| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut count = 0;
            for _ in 0..LIMIT * 2 {
                count += usize::from(check(&limiter, target, &[]).await.is_allowed());
            }
            count
        })
    });
    let checking = async {
        let mut counts = Vec::new();
        for task in checks {
            counts.push(task.await.unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        counts
    };
    let reloading = async {
        while !is_over.load(Ordering::Relaxed) {
            reloads += 1;
            limiter.reload_toml(&texts[reloads % 2]).await.unwrap();
        }
    };
    let (counts, ()) = tokio::join!(checking, reloading);
    assert_eq!(counts, [LIMIT, LIMIT]);
    assert!(reloads > 1);
    let metrics = limiter.metrics();
    let count = |outcome: &str| -> u64 {
        let start =
            format!("tidegate_interface_requests_total{{interface=\"library\",outcome=\"{outcome}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
    };
    assert_eq!((count("allowed"), count("denied")), (2 * LIMIT as u64, 2 * LIMIT as u64));
}

#[tokio::test]
async fn a_dropped_reload_leaves_a_working_limiter() {
    let limiter = limiter(&limited("rate = \"1000/day\""));
    for _ in 0..20 {
        let text = limited("rate = \"1000/day\"\nburst = 2000");
        let mut reload = Box::pin(limiter.reload_toml(&text));
        let _ = futures_util::poll!(&mut reload);
        drop(reload);
        assert!(check(&limiter, "/", &[]).await.is_allowed());
    }
    limiter.reload_toml(&limited("rate = \"1000/day\"")).await.unwrap();
    assert_eq!(remaining(&limiter, "/").await, 979);
}

#[tokio::test]
async fn another_store_has_other_counts() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let file = |redis: &RedisServer| {
        let limit = limited("rate = \"2/day\"\non_store_failure = \"deny\"");
        format!("{limit}[store]\nurl = \"{}\"\ntimeout = \"1s\"\n", redis.url())
    };
    let limiter = limiter(&file(&one));
    eventually_async("the store responds", async || status(&check(&limiter, "/", &[]).await) == 200).await;
    // The same store: its counts go on.
    limiter.reload_toml(&format!("{}[answers]\nrate_headers = \"none\"\n", file(&one))).await.unwrap();
    assert_eq!(status(&check(&limiter, "/", &[]).await), 200);
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
    limiter.reload_toml(&file(&other)).await.unwrap();
    assert_eq!(
        [status(&check(&limiter, "/", &[]).await), status(&check(&limiter, "/", &[]).await)],
        [200, 200]
    );
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
    // And without Redis.
    limiter.reload_toml(&limited("rate = \"1/day\"")).await.unwrap();
    assert_eq!(status(&check(&limiter, "/", &[]).await), 200);
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
    within("the thread ends", limiter.close()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_tokens_are_fetched_before_they_are_needed() {
    let [first, next] = ["first", "next"].map(|kid| Issuer::new(Algorithm::ES256, kid));
    let [one, other] = [&first, &next].map(|issuer| Publisher::new(&jwks(&[issuer])));
    let file = |publisher: &Publisher| {
        let limit = limited("rate = \"1/day\"\nkey = \"jwt:sub\"\non_missing = \"deny\"");
        format!("[jwt]\njwks = \"{}\"\n{limit}", publisher.url())
    };
    let limiter = limiter(&file(&one));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let bearer = |issuer: &Issuer, sub: &str| {
        format!("Bearer {}", issuer.token(&json!({ "sub": sub, "iat": now, "exp": now + 600 })))
    };
    let (alice, bob) = (bearer(&first, "alice"), bearer(&next, "bob"));
    assert_eq!(status(&check(&limiter, "/", &[("authorization", &alice)]).await), 200);
    let missing = denied(check(&limiter, "/", &[("authorization", &bob)]).await);
    assert_eq!(missing.status(), StatusCode::FORBIDDEN);
    limiter.reload_toml(&file(&other)).await.unwrap();
    assert_eq!(status(&check(&limiter, "/", &[("authorization", &bob)]).await), 200);
    assert_eq!(status(&check(&limiter, "/", &[("authorization", &alice)]).await), 403);
}

#[test]
fn reloads_can_be_sent_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let limiter = limiter("");
    is_send(&limiter.reload_toml(""));
    is_send(&limiter.reload_file(""));
}
