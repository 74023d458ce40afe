//! Upstreams of several servers: which of them a request goes to, who is left out, and what there is room for.

use std::collections::HashMap;

use super::setup::{PLAIN, among, metric, silent, started, with_servers};
use crate::support::{Client, Upstream, eventually, get};

#[test]
fn requests_go_where_fewest_are_in_flight() {
    for balance in ["least_requests", "power_of_two"] {
        let servers = [silent(), Upstream::echo()];
        let proxy = among(&[&servers[0], &servers[1]], &format!("balance = \"{balance}\""));
        // Ask until one is held.
        let mut held = Vec::new();
        while servers[0].requests().is_empty() {
            let mut client = Client::connect(proxy.addr());
            client.send(PLAIN);
            let asked = servers[1].requests().len();
            eventually("it has arrived", || {
                servers[0].requests().len() + servers[1].requests().len() > asked
            });
            held.push(client);
        }
        let before = servers[1].requests().len();
        // Over all workers, so over many connections.
        for _ in 0..20 {
            get(proxy.addr(), "/", &[]).echoed();
        }
        assert_eq!((servers[0].requests().len(), servers[1].requests().len() - before), (1, 20), "{balance}");
    }
}

#[test]
fn a_key_finds_the_same_server_until_that_leaves() {
    let mut servers: Vec<Upstream> = (0..3).map(|_| Upstream::echo()).collect();
    let proxy = among(&[&servers[0], &servers[1], &servers[2]], "balance = \"hash:header:x-user\"");
    let ask = |user: usize| assert_eq!(get(proxy.addr(), "/", &[&format!("X-User: {user}")]).status(), 200);
    let found = |servers: &[Upstream]| {
        let mut found: HashMap<String, Vec<std::net::SocketAddr>> = HashMap::new();
        for server in servers {
            for request in server.requests() {
                let user = request.header("x-user").unwrap_or("none").to_owned();
                let places = found.entry(user).or_default();
                if !places.contains(&server.addr()) {
                    places.push(server.addr());
                }
            }
        }
        found
    };
    (0..3).for_each(|_| (0..30).for_each(ask));
    let before = found(&servers);
    assert!(before.values().all(|places| places.len() == 1), "{before:?}");
    assert!(servers.iter().all(|server| !server.requests().is_empty()));
    // Without the header it is the client's address.
    (0..10).for_each(|_| drop(get(proxy.addr(), "/", &[])));
    assert_eq!(found(&servers)["none"].len(), 1);
    let gone = servers.pop().unwrap().addr();
    (0..30).for_each(ask);
    for (user, places) in found(&servers).into_iter().filter(|(user, _)| user != "none") {
        assert!(before[&user] == [gone] || places == before[&user], "{user}: {places:?}");
        assert_eq!(places.len(), 1, "{user}");
    }
}

#[test]
fn names_are_resolved_and_unknown_ones_stop_nobody() {
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
    let answer = get(proxy.addr(), "/", &[]);
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("the upstream can't be reached"), "{}", answer.text());
    assert_eq!(metric(&proxy, "addresses", &format!(",server=\"{unknown}\"")), 0);
    // The others do what they can.
    let proxy = started(&format!("\"{unknown}\", \"{}\"", server.url()), "");
    assert_eq!([(); 4].map(|()| get(proxy.addr(), "/", &[]).status()), [200; 4]);
}

#[test]
fn servers_take_turns_by_their_weight() {
    let servers = [(); 3].map(|()| Upstream::echo());
    let [one, two, three] = [&servers[0], &servers[1], &servers[2]].map(Upstream::url);
    let list = format!("\"{one}\", {{ url = \"{two}\", weight = 2 }}, {{ url = \"{three}/base\" }}");
    let proxy = with_servers(&list, "");
    let mut client = Client::connect(proxy.addr());
    let paths: Vec<String> = (0..8).map(|_| client.get("/x", &[]).echoed().start).collect();
    assert_eq!(servers.each_ref().map(|server| server.requests().len()), [2, 4, 2]);
    assert_eq!(paths.iter().filter(|start| *start == "GET /base/x HTTP/1.1").count(), 2);
    // Each has one connection, which it keeps.
    assert_eq!(servers.each_ref().map(Upstream::connections), [1, 1, 1]);
}
