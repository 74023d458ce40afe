//! What the head of a request decides is decided before its body is awaited, and before its consumer is read from Redis.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use tidegate::consumers::CredentialHash;

use super::counting::status;
use crate::support::{Client, Http2, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores};

/// Limits by the client's address, and one by a field of the body. `each` are the lines of the first.
fn config(each: &str) -> String {
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\nbody_timeout = \"2s\"\n\
         [limits.each]\n{each}\n\
         [limits.user]\nrate = \"100/hour\"\nkey = \"form:user\"\nblock = [\"127.0.0.3\"]\n\
         [limits.watched]\nrate = \"1/hour\"\nmode = \"shadow\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"each\", \"user\", \"watched\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// The head of a request with a form of nine bytes.
const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
    Content-Length: 9\r\n\r\n";
const FORM: &str = "user=adam";

/// Sends a whole request; returns the status, and what remains of the limits.
fn whole(address: SocketAddr) -> (u16, Option<String>) {
    let response = Client::connect(address).ask(&format!("{HEAD}{FORM}"));
    (response.status(), response.header("x-ratelimit-remaining").map(str::to_owned))
}

/// The status of the response to a request without the end of its body.
fn without_end(address: SocketAddr, client: &str) -> u16 {
    let mut client = Client::connect_from(client, address);
    client.send(format!("{HEAD}user="));
    client.read().status()
}

#[test]
fn a_client_over_its_limit_is_denied_before_its_body_is_awaited() {
    over_both_stores(&config("rate = \"2/hour\""), |proxy| {
        let address = proxy.addr();
        assert_eq!(whole(address).0, 200);
        assert_eq!(without_end(address, "127.0.0.1"), 408, "nothing is taken for a head");
        let mut late = Client::connect(address);
        late.send(HEAD);
        late.send(FORM);
        let response = late.read();
        assert_eq!((response.status(), response.header("x-ratelimit-remaining")), (200, Some("0")));
        let mut half = Client::connect(address);
        half.send(format!("{HEAD}user="));
        let response = half.read();
        assert_eq!(response.status(), 429);
        assert!(response.text().contains("the limit each is used up"), "{}", response.text());
        assert!(response.header("retry-after").is_some());
        let over_http2 = Http2::connect(address).block_on(async |sender| {
            let request =
                Request::post("http://a/").header("content-type", "application/x-www-form-urlencoded");
            let (response, mut stream) = sender.send_request(request.body(()).unwrap(), false).unwrap();
            stream.send_data(Bytes::from_static(b"user="), false).unwrap();
            let status = response.await.unwrap().status().as_u16();
            drop(stream);
            status
        });
        assert_eq!(over_http2, 429);
        // Another client has its own count, and one that the limit by the body blocks is not waited for.
        assert_eq!((without_end(address, "127.0.0.2"), without_end(address, "127.0.0.3")), (408, 403));
    });
}

#[test]
fn denials_for_the_head_count_once_towards_a_ban() {
    let each = "rate = \"1/hour\"\nban = { after = 3, within = \"1h\", for = \"2h\" }";
    over_both_stores(&config(each), |proxy| {
        let address = proxy.addr();
        assert_eq!(whole(address).0, 200);
        let denied = || {
            let mut client = Client::connect(address);
            client.send(format!("{HEAD}user="));
            let response = client.read();
            assert_eq!(response.status(), 429);
            response.text().contains("bans this client")
        };
        assert_eq!([denied(), denied(), denied()], [false, false, true]);
        assert_eq!(proxy.decisions("each", "denied") + proxy.decisions("each", "banned"), 3);
    });
}

#[test]
fn slots_are_checked_before_the_body_is_awaited() {
    let slow = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
    let config = config("algorithm = \"concurrency\"\nmax_in_flight = 1\nkey = \"client_ip\"")
        .replace("respond = { status = 200 }", &format!("upstream = \"{}\"", slow.url()));
    over_both_stores(&config, |proxy| {
        let before = slow.received();
        let mut first = Client::connect(proxy.addr());
        first.send(format!("{HEAD}{FORM}"));
        eventually("the slot is taken", || slow.received() > before);
        assert_eq!(without_end(proxy.addr(), "127.0.0.1"), 429);
        drop(first);
    });
}

#[test]
fn a_limit_with_ahead_is_checked_once_the_proxy_holds_no_grant_of_it() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, &config("rate = \"2/hour\"\nahead = \"100ms\""));
    assert_eq!([whole(proxy.addr()).0, whole(proxy.addr()).0, whole(proxy.addr()).0], [200, 200, 429]);
    eventually("its grants have ended", || without_end(proxy.addr(), "127.0.0.1") == 429);
    assert_eq!(without_end(proxy.addr(), "127.0.0.2"), 408);
}

#[test]
fn without_the_store_a_head_is_decided_by_on_store_failure() {
    let mut redis = RedisServer::start();
    let [denying, counting] = ["deny", "local"].map(|policy| {
        let each = format!("rate = \"2/hour\"\non_store_failure = \"{policy}\"");
        Tidegate::start_with(&redis, &config(&each))
    });
    redis.kill();
    eventually("the store is unavailable", || {
        [&denying, &counting].iter().all(|proxy| proxy.metric("tidegate_store_up") == 0)
    });
    assert_eq!(without_end(denying.addr(), "127.0.0.1"), 503);
    assert_eq!([whole(counting.addr()).0, whole(counting.addr()).0], [200, 200]);
    assert_eq!(without_end(counting.addr(), "127.0.0.1"), 429);
}

/// A limit by the client's address, and one with other numbers for consumers in Redis of the tier `pro`.
fn stored_consumers(redis: &RedisServer, each: &str, tiered: &str) -> Tidegate {
    let config = format!(
        "[consumers]\nredis_cache = \"1h\"\n\
         [limits.each]\n{each}\n\
         [limits.own]\nrate = \"3/hour\"\nkey = \"consumer\"\non_missing = \"skip\"\n\
         [limits.tiered]\nrate = \"{tiered}\"\nkey = \"client_ip\"\n\
         tiers = {{ by = \"consumer\", pro = {{ rate = \"100/hour\" }} }}\n\
         [[routes]]\npath = \"/unlimited\"\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"each\", \"own\", \"tiered\"]\nrespond = {{ status = 200 }}\n\
         [store]\nurl = \"{}\"\ntimeout = \"5s\"\nprefix = \"test\"\n",
        redis.url()
    );
    let proxy = Tidegate::start(&config);
    eventually("Redis is read", || status(proxy.addr(), "/unlimited", &["X-Api-Key: none"]) == 401);
    proxy
}

#[test]
fn made_up_credentials_of_a_denied_client_are_not_looked_up() {
    let redis = RedisServer::start();
    let proxy = stored_consumers(&redis, "rate = \"5/hour\"", "100/hour");
    let before = redis.calls("hgetall");
    let status_of = |key: &str| status(proxy.addr(), "/", &[&format!("X-Api-Key: {key}")]);
    let denied = (0..100).filter(|number| status_of(&format!("made-up-{number}")) == 429).count();
    assert_eq!((denied, redis.calls("hgetall") - before), (95, 5));
}

#[test]
fn limits_that_depend_on_the_consumer_wait_for_it() {
    let redis = RedisServer::start();
    for (credential, name) in [("k-1", "acme"), ("k-2", "globex")] {
        let hash = CredentialHash::of(credential.as_bytes());
        redis.cli(&["hset", &format!("test:consumer:{hash}"), "name", name, "tier", "pro"]);
    }
    let proxy = stored_consumers(&redis, "rate = \"100/hour\"", "1/hour");
    let ask = |key: &str| get(proxy.addr(), "/", &[&format!("X-Api-Key: {key}")]).status();
    // The unknown consumer has the lowest tier, which it uses up; those of the tier `pro` are served.
    assert_eq!((ask("made-up"), ask("made-up-2")), (401, 429));
    assert_eq!((ask("k-1"), ask("k-2"), ask("k-1"), ask("k-1"), ask("k-1")), (200, 200, 200, 200, 429));
}
