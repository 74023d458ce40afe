//! Decisions over gRPC: statuses, hits, and limits that clients send.

use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use super::messages::{
    Descriptor, Limit, Number, OK, OVER, Pair, RateLimitRequest, RateLimitResponse, Status,
};
use super::setup::{METHOD, Service, descriptor, json_descriptor, rate_limit_request, should_rate_limit};
use crate::support::{RedisServer, get};

const RULES: &str = "[limits.two]\nkey = \"descriptor:user\"\nalgorithm = \"fixed_window\"\nrate = \"2/hour\"\n\
                     [limits.five]\nkey = \"global\"\nalgorithm = \"fixed_window\"\nrate = \"5/hour\"\n\
                     [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"two\"]\n\
                     [[descriptors]]\ndomain = \"d\"\nmatch = [\"all=1\"]\nlimits = [\"five\"]\n\
                     [[descriptors]]\ndomain = \"d\"\nmatch = [\"free\"]\n\
                     [[descriptors]]\ndomain = \"d\"\nmatch = [\"bad\"]\nblock = true\n";

fn codes(response: &RateLimitResponse) -> Vec<i32> {
    response.statuses.iter().map(|status| status.code).collect()
}

fn remaining(response: &RateLimitResponse) -> Vec<u32> {
    response.statuses.iter().map(|status| status.limit_remaining).collect()
}

/// Each descriptor counts for the limits that have decided it.
#[test]
fn the_most_frequent_keys_are_shown() {
    let rules = RULES.replace("rate = \"2/hour\"", "rate = \"2/hour\"\nblock = [\"key:c\"]");
    let service =
        Service::start(&format!("{rules}[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nkeys = \"plain\"\n"));
    let descriptors =
        ["user=a", "user=a", "user=a", "user=a", "user=b", "user=c", "user=c", "user=c", "bad=1"];
    let allowed = descriptors.map(|descriptor| service.allows("d", &[descriptor]));
    assert_eq!(allowed, [true, true, false, false, true, false, false, false, false]);
    let counts = |by: &str| -> Vec<(String, u64)> {
        let response = get(service.proxy.admin(), &format!("/v1/top?by={by}&limit=two"), &[]);
        let top: Value = serde_json::from_str(response.text()).unwrap();
        let keys = top["limits"][0]["keys"].as_array().unwrap().iter();
        keys.map(|key| (key["name"].as_str().unwrap().to_owned(), key["count"].as_u64().unwrap())).collect()
    };
    let expected = |keys: &[(&str, u64)]| -> Vec<(String, u64)> {
        keys.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    assert_eq!(counts("traffic"), expected(&[("a", 4), ("c", 3), ("b", 1)]));
    // The second denial of `a` is repeated from the cache.
    assert_eq!(counts("denials"), expected(&[("c", 3), ("a", 2)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_descriptor_has_its_status() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let all = rate_limit_request("d", &["user=a", "nothing=1", "free=1", "all=1"]);
    let response = should_rate_limit(&client, &all).await;
    assert_eq!((response.overall_code, codes(&response)), (OK, vec![OK; 4]));
    assert_eq!(remaining(&response), [1, 0, u32::MAX, 4]);
    let current = |status: &Status| status.current_limit.clone();
    let limit = |requests_per_unit, name: &str| Some(Limit { requests_per_unit, unit: 3, name: name.into() });
    assert_eq!(
        response.statuses.iter().map(current).collect::<Vec<_>>(),
        [limit(2, "two"), None, None, limit(5, "five")]
    );
    let reset = response.statuses[0].duration_until_reset.as_ref().unwrap().seconds;
    assert!((1..=3600).contains(&reset), "{reset}");
    assert!(response.statuses[1].duration_until_reset.is_none());
    // Another domain has no rules.
    assert_eq!(should_rate_limit(&client, &rate_limit_request("e", &["user=a"])).await.overall_code, OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn several_descriptors_are_charged_together_or_not_at_all() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let both = rate_limit_request("d", &["user=a", "all=1"]);
    for _ in 0..2 {
        assert_eq!(should_rate_limit(&client, &both).await.overall_code, OK);
    }
    for _ in 0..5 {
        let response = should_rate_limit(&client, &both).await;
        assert_eq!((response.overall_code, codes(&response)), (OVER, vec![OVER, OK]));
    }
    // The denied ones have cost nothing.
    let response = should_rate_limit(&client, &rate_limit_request("d", &["all=1"])).await;
    assert_eq!((response.overall_code, remaining(&response)), (OK, vec![2]));
    // Nor has what a rule blocks.
    let response = should_rate_limit(&client, &rate_limit_request("d", &["bad=1", "all=1"])).await;
    assert_eq!((response.overall_code, codes(&response)), (OVER, vec![OVER, OK]));
    assert_eq!(remaining(&should_rate_limit(&client, &rate_limit_request("d", &["all=1"])).await), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn equal_descriptors_in_one_request_are_charged_each() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let response = should_rate_limit(&client, &rate_limit_request("d", &["all=1", "all=1", "all=1"])).await;
    assert_eq!((response.overall_code, remaining(&response)), (OK, vec![2, 2, 2]));
    let response = should_rate_limit(&client, &rate_limit_request("d", &["all=1", "all=1", "all=1"])).await;
    assert_eq!((response.overall_code, codes(&response)), (OVER, vec![OVER; 3]));
    assert_eq!(remaining(&should_rate_limit(&client, &rate_limit_request("d", &["all=1"])).await), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hits_are_charged_and_none_only_checks() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let hits = |request: u32, own: Option<u64>| {
        let mut all = rate_limit_request("d", &["all=1"]);
        all.hits_addend = request;
        all.descriptors[0].hits_addend = own.map(|value| Number { value });
        all
    };
    assert_eq!(remaining(&should_rate_limit(&client, &hits(3, None)).await), [2]);
    assert_eq!(remaining(&should_rate_limit(&client, &hits(3, Some(1))).await), [1]);
    for _ in 0..3 {
        let response = should_rate_limit(&client, &hits(7, Some(0))).await;
        assert_eq!((response.overall_code, remaining(&response)), (OK, vec![1]));
    }
    // More than is left is not charged in part.
    let response = should_rate_limit(&client, &hits(2, None)).await;
    assert_eq!((response.overall_code, remaining(&response)), (OVER, vec![1]));
    // More than the limit can ever allow.
    assert_eq!(should_rate_limit(&client, &hits(6, None)).await.overall_code, OVER);
    assert_eq!(remaining(&should_rate_limit(&client, &hits(0, None)).await), [0]);
    let response = should_rate_limit(&client, &hits(0, Some(0))).await;
    assert_eq!((response.overall_code, codes(&response)), (OVER, vec![OVER]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hits_at_the_end_of_a_stream_are_charged_in_full() {
    let service = Service::start(
        "[limits.tokens]\nkey = \"descriptor:user\"\nalgorithm = \"fixed_window\"\nrate = \"100/hour\"\n\
         [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"tokens\"]\ncharge_late = true\n",
    );
    let client = service.client().await;
    let hits = |value| {
        let mut all = rate_limit_request("d", &["user=a"]);
        all.descriptors[0].hits_addend = Some(Number { value });
        all
    };
    for (spent, code, left) in
        [(0, OK, 100), (70, OK, 30), (0, OK, 30), (500, OVER, 0), (0, OVER, 0), (1, OVER, 0)]
    {
        let response = should_rate_limit(&client, &hits(spent)).await;
        assert_eq!((response.overall_code, remaining(&response)), (code, vec![left]), "{spent}");
    }
}

/// The excess comes back before anything else is allowed: 500 hits of a bucket that gets one a minute take 500 minutes.
#[test]
fn hits_beyond_the_limit_are_owed() {
    let rules = "[limits.tokens]\nkey = \"descriptor:user\"\nrate = \"1/minute\"\nburst = 100\n\
                 [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"tokens\"]\ncharge_late = true\n";
    let redis = RedisServer::start();
    for service in [Service::start(rules), Service::start_with(&redis, rules)] {
        let hits = |user: &str, hits: u64| {
            let mut descriptor = json_descriptor(user);
            descriptor["hitsAddend"] = hits.into();
            let (status, response) = service.json(&json!({ "domain": "d", "descriptors": [descriptor] }));
            let reset = response["statuses"][0]["durationUntilReset"].as_str().unwrap().to_owned();
            (status, reset.trim_end_matches('s').parse::<u64>().unwrap())
        };
        assert_eq!(hits("user=a", 40).0, 200);
        let (status, reset) = hits("user=a", 460);
        assert_eq!(status, 429);
        assert!((29_900..=30_000).contains(&reset), "{reset}");
        assert_eq!(hits("user=a", 0).0, 429);
        // A single message charges at most 100 times the limit, and a key owes a bounded number of units.
        let (_, reset) = hits("user=b", u64::MAX);
        assert!((590_000..=600_000).contains(&reset), "{reset}");
    }
}

/// They have been spent whatever another descriptor says.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn hits_at_the_end_of_a_stream_are_charged_beside_denied_descriptors() {
    let service = Service::start(&format!(
        "{RULES}[limits.tokens]\nalgorithm = \"fixed_window\"\nrate = \"100/hour\"\nkey = \"global\"\n\
         [[descriptors]]\ndomain = \"d\"\nmatch = [\"tokens\"]\nlimits = [\"tokens\"]\ncharge_late = true\n"
    ));
    let client = service.client().await;
    for (other, left) in [("user=a", 99), ("user=a", 98), ("user=a", 97), ("bad=1", 96)] {
        let response = should_rate_limit(&client, &rate_limit_request("d", &["tokens=1", other])).await;
        assert_eq!(response.statuses[0].limit_remaining, left, "{other}");
    }
}

#[test]
fn any_number_of_hits_is_decided() {
    let redis = RedisServer::start();
    for service in [Service::start(RULES), Service::start_with(&redis, RULES)] {
        for hits in ["18446744073709551615", "9007199254740993", "4294967296"] {
            let mut descriptor = json_descriptor("all=1");
            descriptor["hitsAddend"] = hits.into();
            let twice = json!({ "domain": "d", "descriptors": [descriptor, descriptor] });
            assert_eq!(service.json(&twice).0, 429, "{hits}");
        }
        assert_eq!(service.allowed(7, "d", &["all=1"]), 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_may_send_a_limit() {
    let service = Service::start(RULES);
    let client = service.client().await;
    let sent = |user: &str, requests_per_unit, unit| {
        let mut one = descriptor(user);
        one.limit = Some(Limit { requests_per_unit, unit, name: String::new() });
        RateLimitRequest { domain: "d".into(), descriptors: vec![one], hits_addend: 0 }
    };
    let response = should_rate_limit(&client, &sent("user=a", 3, 4)).await;
    assert_eq!(remaining(&response), [2]);
    let current = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!((current.requests_per_unit, current.unit, &*current.name), (3, 4, "two"));
    let header = |response: &RateLimitResponse, name: &str| {
        let found = response.response_headers_to_add.iter().find(|header| header.key == name);
        found.map(|header| header.value.clone())
    };
    assert_eq!(header(&response, "x-ratelimit-limit").as_deref(), Some("3"));
    for code in [OK, OK, OVER] {
        assert_eq!(should_rate_limit(&client, &sent("user=a", 3, 4)).await.overall_code, code);
    }
    // Other keys, other numbers and the limit itself have counts of their own.
    for other in [sent("user=b", 3, 4), sent("user=a", 4, 4), rate_limit_request("d", &["user=a"])] {
        assert_eq!(should_rate_limit(&client, &other).await.overall_code, OK, "{other:?}");
    }
    let none = should_rate_limit(&client, &sent("user=c", 0, 2)).await;
    assert_eq!((none.overall_code, none.statuses[0].current_limit.clone().unwrap().unit), (OVER, 2));
    let unknown = client.unary(METHOD, sent("user=a", 3, 0).encode_to_vec()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument);
    assert_eq!(unknown.message(), "descriptor 0: the unit of its limit is not known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn responses_have_the_rate_limit_headers() {
    let service = Service::start(&format!("[answers]\nrate_headers = \"both\"\n{RULES}"));
    let client = service.client().await;
    let names = |response: RateLimitResponse| -> Vec<String> {
        response.response_headers_to_add.into_iter().map(|header| header.key).collect()
    };
    let x =
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"];
    for _ in 0..2 {
        assert_eq!(names(should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await), x);
    }
    let denied = names(should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await);
    assert_eq!(denied, x.into_iter().chain(["retry-after"]).collect::<Vec<_>>());
    assert!(names(should_rate_limit(&client, &rate_limit_request("d", &["free=1"])).await).is_empty());
}

/// As in the reference: a limit in shadow mode is shown as if it were enforced, and never over.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn limits_in_shadow_mode_show_what_remains() {
    let rules = "[limits.watched]\nkey = \"descriptor:user\"\nalgorithm = \"fixed_window\"\nrate = \"2/day\"\n\
                 mode = \"shadow\"\n\
                 [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"watched\"]\n";
    let redis = RedisServer::start();
    for service in [Service::start(rules), Service::start_with(&redis, rules)] {
        let client = service.client().await;
        for left in [1, 0, 0] {
            let response = should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await;
            assert_eq!(
                (response.overall_code, codes(&response), remaining(&response)),
                (OK, vec![OK], vec![left])
            );
            let limit = Limit { requests_per_unit: 2, unit: 4, name: "watched".into() };
            assert_eq!(response.statuses[0].current_limit, Some(limit));
            let names = response.response_headers_to_add.iter().map(|header| &*header.key);
            assert_eq!(names.collect::<Vec<_>>(), [""; 0], "clients do not see the limit");
        }
        // Hits that are only checked.
        let descriptor = Descriptor { hits_addend: Some(Number { value: 0 }), ..descriptor("user=a") };
        let message = RateLimitRequest { descriptors: vec![descriptor], ..rate_limit_request("d", &[]) };
        let response = should_rate_limit(&client, &message).await;
        assert_eq!((codes(&response), remaining(&response)), (vec![OK], vec![0]));
        assert!(response.statuses[0].current_limit.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn soft_limits_add_headers_to_requests_and_responses() {
    let rules = "[limits.few]\nkey = \"global\"\nrate = \"3/day\"\nwarn_at = 0.6\n\
                 [limits.plan]\nkey = \"global\"\nrate = \"1/day\"\nmode = \"mark\"\n\
                 [[descriptors]]\ndomain = \"d\"\nmatch = [\"user\"]\nlimits = [\"few\", \"plan\"]\n";
    let service = Service::start(rules);
    let client = service.client().await;
    let pairs = |headers: &[Pair]| -> Vec<String> {
        let soft = headers
            .iter()
            .filter(|header| ["x-ratelimit-warning", "x-ratelimit-denied"].contains(&&*header.key));
        soft.map(|header| format!("{}: {}", header.key, header.value)).collect()
    };
    let (warning, denied) = ("x-ratelimit-warning: few", "x-ratelimit-denied: plan");
    for (request, response) in
        [(&[][..], &[][..]), (&[warning, denied], &[warning]), (&[warning, denied], &[warning]), (&[], &[])]
    {
        let message = should_rate_limit(&client, &rate_limit_request("d", &["user=a"])).await;
        assert_eq!(pairs(&message.request_headers_to_add), request);
        assert_eq!(pairs(&message.response_headers_to_add), response);
    }
    let service = Service::start(rules);
    let request = json!({ "domain": "d", "descriptors": [json_descriptor("user=a")] });
    service.json(&request);
    let (_, response) = service.json(&request);
    let expected = json!([
        { "key": "x-ratelimit-warning", "value": "few" },
        { "key": "x-ratelimit-denied", "value": "plan" },
    ]);
    assert_eq!(response["requestHeadersToAdd"], expected);
}
