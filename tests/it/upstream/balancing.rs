//! Load balancing over the servers of an upstream.

use std::collections::HashMap;

use super::setup::{PLAIN, among, metric, silent, started, with_servers};
use crate::support::{Client, Upstream, eventually, get};

#[test]
fn requests_go_to_the_server_with_the_fewest_in_flight() {
    for balance in ["least_requests", "power_of_two"] {
        let servers = [silent(), Upstream::echo()];
        let proxy = among(&[&servers[0], &servers[1]], &format!("balance = \"{balance}\""));
        // Until the silent server holds a request.
        let mut held = Vec::new();
        while servers[0].requests().is_empty() {
            let mut client = Client::connect(proxy.addr());
            client.send(PLAIN);
            let before = servers[1].requests().len();
            eventually("the request has arrived", || {
                servers[0].requests().len() + servers[1].requests().len() > before
            });
            held.push(client);
        }
        let before = servers[1].requests().len();
        // A connection for each request, so that all workers get some.
        for _ in 0..20 {
            get(proxy.addr(), "/", &[]).echoed();
        }
        assert_eq!((servers[0].requests().len(), servers[1].requests().len() - before), (1, 20), "{balance}");
    }
}

#[test]
fn hash_balancing_is_stable_until_a_server_leaves() {
    let mut servers: Vec<Upstream> = (0..3).map(|_| Upstream::echo()).collect();
    let proxy = among(&[&servers[0], &servers[1], &servers[2]], "balance = \"hash:header:x-user\"");
    let ask = |user: usize| assert_eq!(get(proxy.addr(), "/", &[&format!("X-User: {user}")]).status(), 200);
    let found = |servers: &[Upstream]| {
        let mut found: HashMap<String, Vec<std::net::SocketAddr>> = HashMap::new();
        for server in servers {
            for request in server.requests() {
                let user = request.header("x-user").unwrap_or("none").to_owned();
                let addresses = found.entry(user).or_default();
                if !addresses.contains(&server.addr()) {
                    addresses.push(server.addr());
                }
            }
        }
        found
    };
    (0..3).for_each(|_| (0..30).for_each(ask));
    let before = found(&servers);
    assert!(before.values().all(|addresses| addresses.len() == 1), "{before:?}");
    assert!(servers.iter().all(|server| !server.requests().is_empty()));
    // Without the header the key is the client's address.
    (0..10).for_each(|_| drop(get(proxy.addr(), "/", &[])));
    assert_eq!(found(&servers)["none"].len(), 1);
    let gone = servers.pop().unwrap().addr();
    (0..30).for_each(ask);
    for (user, addresses) in found(&servers).into_iter().filter(|(user, _)| user != "none") {
        assert!(before[&user] == [gone] || addresses == before[&user], "{user}: {addresses:?}");
        assert_eq!(addresses.len(), 1, "{user}");
    }
}

#[test]
fn host_names_are_resolved_and_unresolvable_servers_are_skipped() {
    let server = Upstream::echo();
    let port = server.addr().port();
    let proxy = started(&format!("\"http://localhost:{port}/base\""), "");
    assert_eq!(get(proxy.addr(), "/x", &[]).echoed().start, "GET /base/x HTTP/1.1");
    let host = get(proxy.addr(), "/x", &[]).echoed().header("host").map(str::to_owned);
    assert_eq!(host.as_deref(), Some("localhost"));
    assert!(server.requests().len() == 2);
    let unknown = "http://nowhere.invalid:9000";
    let proxy = started(&format!("\"{unknown}\""), "");
    proxy.wait_log("nowhere.invalid can't be resolved");
    let response = get(proxy.addr(), "/", &[]);
    assert_eq!(response.status(), 502);
    assert!(response.text().contains("the upstream can't be reached"), "{}", response.text());
    assert_eq!(metric(&proxy, "addresses", &format!(",server=\"{unknown}\"")), 0);
    // The other server gets all requests.
    let proxy = started(&format!("\"{unknown}\", \"{}\"", server.url()), "");
    assert_eq!([(); 4].map(|()| get(proxy.addr(), "/", &[]).status()), [200; 4]);
}

#[test]
fn round_robin_respects_weights() {
    let servers = [(); 3].map(|()| Upstream::echo());
    let [one, two, three] = [&servers[0], &servers[1], &servers[2]].map(Upstream::url);
    let list = format!("\"{one}\", {{ url = \"{two}\", weight = 2 }}, {{ url = \"{three}/base\" }}");
    let proxy = with_servers(&list, "");
    let mut client = Client::connect(proxy.addr());
    let paths: Vec<String> = (0..8).map(|_| client.get("/x", &[]).echoed().start).collect();
    assert_eq!(servers.each_ref().map(|server| server.requests().len()), [2, 4, 2]);
    assert_eq!(paths.iter().filter(|start| *start == "GET /base/x HTTP/1.1").count(), 2);
    // Each server has one connection, which is reused.
    assert_eq!(servers.each_ref().map(Upstream::connections), [1, 1, 1]);
}
