//! The decision on a request is what the proxy does with it: bans, lists, tokens, countries and networks.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::Algorithm;
use serde_json::json;

use super::setup::{PROXY, ask};
use crate::support::{Client, Issuer, Message, Tidegate, jwks, mmdb};

const LIMITS: &str = "
    [limits.strict]
    rate = \"1/hour\"
    key = \"header:x-key\"
    ban = { after = 2, within = \"1h\", for = \"30m\" }
    [limits.listed]
    rate = \"1/hour\"
    allow = [\"192.0.2.10\"]
    block = [\"192.0.2.66\"]
    [limits.token]
    rate = \"1/hour\"
    key = \"jwt:sub\"
    on_missing = \"deny\"
    [limits.country]
    rate = \"2/hour\"
    key = \"country\"
    [limits.network]
    rate = \"1/hour\"
    key = \"asn\"
    [[routes]]
    path = \"/strict\"
    limits = [\"strict\"]
    respond = { status = 200 }
    [[routes]]
    path = \"/listed\"
    limits = [\"listed\"]
    respond = { status = 200 }
    [[routes]]
    path = \"/token\"
    limits = [\"token\"]
    respond = { status = 200 }
    [[routes]]
    path = \"/country\"
    country = [\"US\"]
    block = true
    [[routes]]
    path = \"/country\"
    limits = [\"country\"]
    respond = { status = 200 }
    [[routes]]
    path = \"/network\"
    limits = [\"network\"]
    respond = { status = 200 }
";

/// Requests, each with a target, a client and a header, and the status of the response.
const REQUESTS: [(&str, &str, &str, u16); 24] = [
    ("/strict", "192.0.2.1", "X-Key: a", 200),
    ("/strict", "192.0.2.1", "X-Key: a", 429),
    ("/strict", "192.0.2.1", "X-Key: a", 429),
    ("/strict", "192.0.2.2", "X-Key: a", 429),
    ("/strict", "192.0.2.1", "X-Key: b", 200),
    ("/listed", "192.0.2.10", "", 200),
    ("/listed", "192.0.2.10", "", 200),
    ("/listed", "192.0.2.66", "", 403),
    ("/listed", "192.0.2.7", "", 200),
    ("/listed", "192.0.2.7", "", 429),
    ("/token", "192.0.2.1", "", 403),
    ("/token", "192.0.2.1", "Authorization: Bearer forged", 403),
    ("/token", "192.0.2.1", "Authorization: Bearer ALICE", 200),
    ("/token", "192.0.2.2", "Authorization: Bearer ALICE", 429),
    ("/token", "192.0.2.2", "Authorization: Bearer BOB", 200),
    ("/country", "203.0.113.7", "", 403),
    ("/country", "198.51.100.1", "", 200),
    ("/country", "198.51.100.2", "", 200),
    ("/country", "198.51.100.3", "", 429),
    ("/country", "192.0.2.3", "", 200),
    ("/network", "192.0.2.1", "", 200),
    ("/network", "192.0.2.2", "", 429),
    ("/network", "198.51.100.1", "", 200),
    ("/%63ountry", "203.0.113.7", "", 403),
];

#[test]
fn a_decision_is_what_the_proxy_does_with_the_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str, contents: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path.display().to_string()
    };
    let issuer = Issuer::new(Algorithm::ES256, "one");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let token = |sub: &str| issuer.token(&json!({ "sub": sub, "iat": now, "exp": now + 600 }));
    let (alice, bob) = (token("alice"), token("bob"));
    let countries = [("192.0.2.0", 24, "DE"), ("198.51.100.0", 24, "FR"), ("203.0.113.0", 24, "US")];
    let systems = [("192.0.2.0", 24, 64_496), ("198.51.100.0", 24, 64_511)];
    let file = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nrespond = \"decide\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[client_ip]\ntrusted_proxies = [\"{PROXY}\"]\n\
         [jwt]\njwks = \"{}\"\n[geo]\ncountry = \"{}\"\nasn = \"{}\"\n{LIMITS}",
        path("keys.json", jwks(&[&issuer]).as_bytes()),
        path("country.mmdb", &mmdb::countries(&countries)),
        path("asn.mmdb", &mmdb::systems(&systems)),
    );
    let (forwarding, deciding) = (Tidegate::start(&file), Tidegate::start(&file));
    let (proxy, decisions) = (forwarding.addresses(2)[0], deciding.addresses(2)[1]);
    for (target, client, header, status) in REQUESTS {
        let header = header.replace("ALICE", &alice).replace("BOB", &bob);
        let header = Some(&*header).filter(|header| !header.is_empty());
        let from = format!("X-Forwarded-For: {client}");
        let headers: Vec<&str> = ["Host: a.test", &from].into_iter().chain(header).collect();
        let served = Client::connect_from(PROXY, proxy).get(target, &headers);
        let request = format!("GET a.test {target}");
        let decided = ask(decisions, &request, client, header.as_slice());
        let request = format!("{request} of {client} with {header:?}");
        assert_eq!((served.status(), decided.status()), (status, status), "{request}");
        assert_eq!(shown(&served), shown(&decided), "{request}");
    }
    for proxy in [&forwarding, &deciding] {
        assert_eq!(proxy.decisions("strict", "banned"), 2);
    }
}

/// What a client sees of a response, without the seconds in it.
fn shown(response: &Message) -> Vec<Option<String>> {
    let text: String = response.text().chars().filter(|c| !c.is_ascii_digit()).collect();
    let header = |name: &str| response.header(name).map(str::to_owned);
    let has = |name: &str| response.header(name).map(|_| name.to_owned());
    vec![
        Some(text),
        header("x-ratelimit-limit"),
        header("x-ratelimit-remaining"),
        header("www-authenticate"),
        has("retry-after"),
        header("cache-control"),
    ]
}
