//! What is decided about the original request, by its route, limits and client.

use std::time::{Duration, Instant};

use super::setup::{ASKING, PROXY, ask, asking};
use crate::consumers::setup::{CONSUMERS, ConsumersFile};
use crate::support::{Client, RedisServer, Tidegate, Upstream, get};

#[test]
fn the_original_request_has_the_route_and_the_keys_that_it_has_in_the_proxy() {
    let proxy = Tidegate::start(&format!(
        "{ASKING}
        [limits.per-key]
        rate = \"2/hour\"
        key = [\"header:x-key\", \"method\", \"path_param:id\"]
        on_missing = \"deny\"
        [[routes]]
        host = \"api.test\"
        path = \"/users/{{id}}\"
        methods = [\"GET\", \"PUT\"]
        limits = [\"per-key\"]
        upstream = \"http://127.0.0.1:9\"
        [[routes]]
        path = \"/off\"
        respond = {{ status = 503, body = \"later\\n\" }}
        [[routes]]
        path = \"/moved\"
        respond = {{ status = 204 }}
        [[routes]]
        path = \"/secret/*\"
        block = true"
    ));
    let status = |request: &str, headers: &[&str]| ask(proxy.addr(), request, "192.0.2.1", headers).status();
    let key = ["X-Key: a"];
    for (request, expected) in [
        ("GET api.test /users/7", [200, 200, 429]),
        // Other keys.
        ("PUT api.test /users/7", [200, 200, 429]),
        ("GET api.test:8443 /users/8?x=1", [200, 200, 429]),
        // The same as the first, in its normal form.
        ("GET API.test /users/./%37", [429, 429, 429]),
        ("DELETE api.test /users/7", [404, 404, 404]),
        ("GET other.test /users/7", [404, 404, 404]),
        ("GET api.test /off", [503, 503, 503]),
        ("GET api.test /moved", [200, 200, 200]),
        ("GET api.test /secret/x", [403, 403, 403]),
        ("GET api.test //secret/x", [403, 403, 403]),
        ("GET api.test /a/%2e%2e/secret/x", [403, 403, 403]),
        ("GET api.test /a%2fb", [400, 400, 400]),
        ("OPTIONS api.test *", [404, 404, 404]),
    ] {
        assert_eq!([0; 3].map(|_| status(request, &key)), expected, "{request}");
    }
    assert_eq!(status("GET api.test /users/7", &[]), 403, "the key is missing");
    assert_eq!(ask(proxy.addr(), "GET api.test /off", "192.0.2.1", &[]).text(), "later\n");
}

#[test]
fn the_headers_of_nginx_describe_the_original_request_too() {
    let proxy = Tidegate::start(&format!(
        "{ASKING}[[routes]]\nhost = \"api.test\"\npath = \"/a\"\nmethods = [\"POST\"]\nrespond = {{ status = 200 }}"
    ));
    let client = "X-Forwarded-For: 192.0.2.1";
    let method = "X-Original-Method: POST";
    let status = |headers: &[&str]| asking(proxy.addr(), "/decide", headers).status();
    assert_eq!(status(&[client, method, "X-Original-URI: /a?b", "X-Forwarded-Host: api.test"]), 200);
    assert_eq!(status(&[client, method, "X-Original-URL: https://api.test/a?b"]), 200);
    assert_eq!(status(&[client, method, "X-Original-URL: https://other.test/a"]), 404);
    assert_eq!(status(&[client, "X-Original-Method: GET", "X-Original-URL: https://api.test/a"]), 404);
}

#[test]
fn a_client_has_one_count_in_the_proxy_and_in_decisions() {
    let (redis, upstream) = (RedisServer::start(), Upstream::echo());
    let config = |listener: &str| {
        format!(
            "{listener}
            [client_ip]
            trusted_proxies = [\"{PROXY}\"]
            [admin]
            listen = \"127.0.0.1:0\"
            [limits.four]
            rate = \"4/hour\"
            [[routes]]
            path = \"/*\"
            limits = [\"four\"]
            upstream = \"{}\"",
            upstream.url()
        )
    };
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\n";
    let forwarding = Tidegate::start_with(&redis, &config(listener));
    let deciding =
        Tidegate::start_with(&redis, &config(&format!("{listener}{listener}respond = \"decide\"\n")));
    let address = deciding.addresses(2)[1];
    let forward = |client: &str| {
        let header = format!("X-Forwarded-For: {client}");
        Client::connect_from(PROXY, forwarding.addr()).get("/a", &[&header]).status()
    };
    let decide = |client| ask(address, "GET a.test /a", client, &[]).status();
    let client = "192.0.2.1";
    let statuses =
        [forward(client), decide(client), forward(client), decide(client), forward(client), decide(client)];
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    assert_eq!((decide("192.0.2.2"), upstream.requests().len()), (200, 2));
    let count = |proxy: &Tidegate, interface: &str, outcome: &str| {
        let labels = format!("interface=\"{interface}\",outcome=\"{outcome}\"");
        proxy.metric(&format!("tidegate_interface_requests_total{{{labels}}}"))
    };
    assert_eq!(
        (count(&deciding, "forward_auth", "allowed"), count(&deciding, "forward_auth", "denied")),
        (3, 1)
    );
    assert_eq!((count(&deciding, "proxy", "denied"), count(&forwarding, "proxy", "denied")), (0, 1));
    assert_eq!(count(&forwarding, "forward_auth", "allowed"), 0);
}

#[test]
fn a_route_decides_beside_routes_that_forward() {
    let upstream = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"
        default_limits = [\"three\"]
        [client_ip]
        trusted_proxies = [\"{PROXY}\"]
        [limits.three]
        rate = \"3/hour\"
        [[routes]]
        path = \"/decide\"
        respond = \"decide\"
        [[routes]]
        path = \"/*\"
        upstream = \"{}\"",
        upstream.url()
    ));
    let decided = |target: &str| {
        let target = format!("X-Forwarded-Uri: {target}");
        let headers =
            ["X-Forwarded-Method: GET", "X-Forwarded-Host: a", "X-Forwarded-For: 192.0.2.1", &target];
        asking(proxy.addr(), "/decide", &headers).status()
    };
    assert_eq!((decided("/a"), decided("/a")), (200, 200));
    let forwarded =
        |path| Client::connect_from(PROXY, proxy.addr()).get(path, &["X-Forwarded-For: 192.0.2.1"]);
    assert_eq!(forwarded("/a").status(), 200);
    assert_eq!((decided("/a"), forwarded("/a").status()), (429, 429));
    // The trusted proxy has no count of its own, and the decision on an authorization request is that it has no route.
    assert_eq!(decided("/decide"), 404);
    assert_eq!(upstream.requests().len(), 1);
    // Clients get no decisions.
    assert_eq!(get(proxy.addr(), "/decide", &["X-Forwarded-Uri: /a"]).status(), 403);
    assert_eq!(get(proxy.addr(), "/decide", &[]).status(), 403);
    let without_original = asking(proxy.addr(), "/decide", &[]);
    assert_eq!(without_original.status(), 400);
    assert!(without_original.text().contains("names the original request"), "{}", without_original.text());
}

#[test]
fn a_leaky_bucket_delays_the_response() {
    let proxy = Tidegate::start(&format!(
        "{ASKING}
        [limits.even]
        algorithm = \"leaky_bucket\"
        rate = \"5/s\"
        queue = 10
        [[routes]]
        path = \"/*\"
        limits = [\"even\"]
        respond = {{ status = 200 }}"
    ));
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(proxy.addr(), "GET a /", "192.0.2.1", &[]).status(), 200);
    }
    assert!(start.elapsed() >= Duration::from_millis(380), "{:?}", start.elapsed());
}

#[test]
fn consumers_are_identified_by_the_credentials_of_the_original_request() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!(
        "{ASKING}{}
        [limits.per-consumer]
        rate = \"1/hour\"
        key = \"consumer\"
        [[routes]]
        path = \"/*\"
        limits = [\"per-consumer\"]
        respond = {{ status = 200 }}",
        file.table("")
    ));
    let decide = |key: &str| ask(proxy.addr(), "GET a /", "192.0.2.1", &[&format!("X-Api-Key: {key}")]);
    let allowed = decide("k-4711");
    assert_eq!(allowed.status(), 200);
    assert_eq!(
        (allowed.header("x-consumer-name"), allowed.header("x-consumer-tier")),
        (Some("acme"), Some("pro"))
    );
    // Another credential of the same consumer.
    assert_eq!(decide("k-2").status(), 429);
    assert_eq!((decide("unknown").status(), decide("b-1").status()), (401, 403));
}

/// The proxy forwards the headers of its client, where tidegate would remove such a variant.
#[test]
fn a_variant_of_a_protected_header_is_rejected() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!(
        "{ASKING}{}[[routes]]\npath = \"/*\"\nrespond = {{ status = 200 }}\n",
        file.table("unknown = \"anonymous\"")
    ));
    let status = |lines: &[&str]| ask(proxy.addr(), "GET a /", "192.0.2.1", lines).status();
    for variant in
        ["X_Api_Key: b-1", "x-api_key: k-2", "X_Consumer_Name: a", "X_Real_IP: 1", "X_Forwarded_For: 1"]
    {
        assert_eq!(status(&[variant]), 400, "{variant}");
        assert_eq!(status(&["X-Api-Key: k-2", variant]), 400, "{variant}");
    }
    assert_eq!(status(&["X-Api-Key: k-2", "X_Free: 1", "X-Real-IP: 1"]), 200);
    proxy.wait_log("the header x_api_key differs only in `_`");
    let anonymous = ask(proxy.addr(), "GET a /", "192.0.2.1", &["X-Consumer-Name: forged"]);
    assert_eq!(
        (anonymous.header("x-consumer-name"), anonymous.header("x-consumer-tier")),
        (Some(""), Some(""))
    );
    let differing = status(&["X-Api-Key: k-2", "X-Api-Key: s-1"]);
    assert_eq!(differing, 400);
}
