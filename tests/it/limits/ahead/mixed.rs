//! Limits with `ahead` among others, compared with the same limits without it.

use super::{admitted_by, held_of, number};
use crate::support::{Client, Message, RedisServer, Tidegate, eventually, get};

/// A limit that may have `ahead`, a log and slots that do not, and a limit in shadow mode that may have it.
fn config(ahead: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [limits.one]\nrate = \"1/day\"\nburst = 600\nkey = \"global\"\nahead = \"{ahead}\"\n\
         [limits.log]\nalgorithm = \"sliding_log\"\nrate = \"150/day\"\nkey = \"header:x-client\"\n\
         [limits.flight]\nalgorithm = \"concurrency\"\nmax_in_flight = 1000\nkey = \"global\"\n\
         [limits.shadow]\nrate = \"1/day\"\nburst = 300\nkey = \"global\"\nmode = \"shadow\"\nahead = \"{ahead}\"\n\
         [[routes]]\npath = \"/all\"\nlimits = [\"one\", \"log\", \"flight\", \"shadow\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/one\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/shadow\"\nlimits = [\"shadow\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// What remains of a key in Redis, besides what is reserved for others, and what the proxy holds.
fn remaining(proxy: &Tidegate, limit: &str, key: &str) -> u64 {
    let response = get(proxy.admin(), &format!("/v1/keys/peek?limit={limit}&key={key}"), &[]);
    let status: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    status["keys"][0]["remaining"].as_u64().unwrap_or_else(|| panic!("{status}"))
}

/// The limit whose numbers a response has, and those that must be the same whether there are grants or not.
fn shape(response: &Message) -> (u16, Option<&str>, bool) {
    (response.status(), response.header("x-ratelimit-limit"), response.header("retry-after").is_some())
}

/// The units that the limits of a route have left are the same, and so is each decision. A response may only show fewer
/// remaining units while a grant is on its way: its units are reserved then, and not held yet.
#[test]
fn a_route_decides_alike_with_and_without_ahead() {
    let servers = [(); 2].map(|()| RedisServer::start());
    let proxies = [("off", &servers[0]), ("10s", &servers[1])]
        .map(|(ahead, redis)| Tidegate::start_with(redis, &config(ahead)));
    let mut clients = proxies.each_ref().map(|proxy| Client::connect(proxy.addr()));
    let mut random = fastrand::Rng::with_seed(7);
    let (mut denied, mut different) = (0, 0);
    for number_of_request in 0..1_500 {
        let path = ["/all", "/all", "/all", "/one"][random.usize(..4)];
        let client = format!("X-Client: {}", random.u8(..5));
        let [without, with] = clients.each_mut().map(|connection| connection.get(path, &[&client]));
        assert_eq!(shape(&with), shape(&without), "request {number_of_request} to {path}");
        denied += usize::from(with.status() == 429);
        let [exact, shown] = [&without, &with].map(|response| number(response, "x-ratelimit-remaining"));
        assert!(shown <= exact, "{shown} remain of {exact} at request {number_of_request}");
        different += usize::from(shown != exact);
    }
    assert!((500..1_000).contains(&denied), "{denied} denied");
    assert!(different <= 150, "{different} responses with other remaining units");
    assert!(admitted_by(&proxies[1], "one", "ahead") > 300);
    for (limit, key) in [("one", "global"), ("shadow", "global"), ("log", "0"), ("log", "4")] {
        eventually("the same remains", || {
            let [exact, with] = proxies.each_ref().map(|proxy| remaining(proxy, limit, key));
            exact == with
        });
    }
}

/// The log denies: held units, what is reserved and the states stay as they are.
#[test]
fn a_denied_request_changes_nothing() {
    let redis = RedisServer::start();
    let config = config("10s").replace("burst = 600", "burst = 6000").replace("burst = 300", "burst = 3000");
    let proxy = Tidegate::start_with(&redis, &config);
    let mut client = Client::connect(proxy.addr());
    let mut all = |name: &str| client.get("/all", &[&format!("X-Client: {name}")]).status();
    assert!((0..150).all(|_| all("a") == 200));
    let mut others = 0;
    eventually("both limits hold units", || {
        others += 1;
        assert_eq!(all(&format!("other-{others}")), 200);
        held_of(&proxy, "one") > 20 && held_of(&proxy, "shadow") > 20
    });
    let record = |key: &String| redis.cli(&["--no-raw", "get", key]);
    let state = || (redis.keys(), redis.keys().iter().map(record).collect::<Vec<_>>());
    let before = (held_of(&proxy, "one"), held_of(&proxy, "shadow"), state());
    assert_eq!(all("a"), 429);
    assert_eq!((held_of(&proxy, "one"), held_of(&proxy, "shadow"), state()), before);
}

#[test]
fn a_shadow_limit_with_ahead_denies_nothing_and_counts_exactly() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, &config("10s"));
    let mut client = Client::connect(proxy.addr());
    let before = redis.calls("evalsha");
    for _ in 0..500 {
        let response = client.get("/shadow", &[]);
        assert_eq!((response.status(), response.header("x-ratelimit-limit")), (200, None));
    }
    let counts = ["allowed", "near_limit", "shadow_denied"].map(|outcome| proxy.decisions("shadow", outcome));
    assert_eq!((counts[0] + counts[1], counts[2]), (300, 200), "{counts:?}");
    assert!(admitted_by(&proxy, "shadow", "ahead") >= 150);
    // Those that it would have denied are decided by Redis or remembered.
    let calls = redis.calls("evalsha") - before;
    assert!(calls <= 350, "{calls} calls");
}
