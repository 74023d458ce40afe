//! Upstreams of several servers: which of them a request goes to, who is left out, and what there is room for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Client, Tidegate, Upstream, eventually, get};

/// A proxy before these servers, with these lines in their upstream.
fn among(servers: &[&Upstream], settings: &str) -> Tidegate {
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    started(&urls.join(", "), settings)
}

fn started(servers: &str, settings: &str) -> Tidegate {
    started_with(2, servers, settings)
}

fn started_with(workers: usize, servers: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\nworkers = {workers}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams.u]\nservers = [{servers}]\n{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"u\"\n"
    ))
}

/// What a metric of the upstream says; `more` are labels beside it, as they are written.
#[track_caller]
fn metric(proxy: &Tidegate, name: &str, more: &str) -> usize {
    let text = get(proxy.admin(), "/metrics", &[]).text().to_owned();
    let start = format!("tidegate_upstream_{name}{{upstream=\"u\"{more}}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start}in {text}")).parse().unwrap()
}

fn of(server: &Upstream) -> String {
    format!(",server=\"{}\"", server.url())
}

fn ended(server: &Upstream, outcome: &str) -> String {
    format!("{},outcome=\"{outcome}\"", of(server))
}

/// Takes a request and keeps it until its connection ends.
fn silent() -> Upstream {
    Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    })
}

/// Answers with this status, whatever it is asked.
fn with_status(status: &Arc<AtomicUsize>) -> Upstream {
    let status = Arc::clone(status);
    Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let status = status.load(Ordering::SeqCst);
            let _ = caller.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nhi"));
        }
    })
}

const PLAIN: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

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
fn checks_find_out_who_is_well() {
    let status = Arc::new(AtomicUsize::new(503));
    let servers = [with_status(&status), Upstream::echo(), silent()];
    let health = "health = { path = \"/healthz\", interval = \"50ms\", timeout = \"2s\", healthy_after = 2, unhealthy_after = 2 }\npanic_threshold = 0.0";
    let proxy = among(&[&servers[0], &servers[1]], health);
    let healthy = |server: &Upstream| metric(&proxy, "healthy", &of(server));
    eventually("it is found unwell", || healthy(&servers[0]) == 0);
    assert_eq!(healthy(&servers[1]), 1);
    proxy.wait_log("is unhealthy: the answer is 503 Service Unavailable");
    assert!([(); 10].map(|()| get(proxy.addr(), "/", &[]).status()).iter().all(|status| *status == 200));
    let checked = servers[0].requests();
    assert!(checked.iter().all(|request| request.start == "GET /healthz HTTP/1.1"));
    assert_eq!(checked[0].header("host"), Some(&*servers[0].addr().to_string()));
    // A redirection will do.
    status.store(302, Ordering::SeqCst);
    eventually("it is found well", || healthy(&servers[0]) == 1);
    let statuses = [(); 10].map(|()| get(proxy.addr(), "/", &[]).status());
    assert!(statuses.contains(&302), "{statuses:?}");
    // One that does not answer at all.
    let proxy = among(&[&servers[2], &servers[1]], &health.replace("2s", "1s"));
    proxy.wait_log("is unhealthy: no answer in time");
    assert!([(); 6].map(|()| get(proxy.addr(), "/", &[]).status()).iter().all(|status| *status == 200));
}

#[test]
fn who_fails_in_a_row_is_left_out_unless_too_many_do() {
    let status = Arc::new(AtomicUsize::new(503));
    let (failing, well) = (with_status(&status), Upstream::echo());
    let settings = "eject = { after = 3, for = \"1h\" }";
    let proxy = among(&[&failing, &well], settings);
    let statuses = |count| (0..count).map(|_| get(proxy.addr(), "/", &[]).status()).collect::<Vec<_>>();
    statuses(20);
    assert_eq!(failing.requests().len(), 3);
    assert_eq!(statuses(10), [200; 10]);
    assert_eq!(metric(&proxy, "ejections_total", &of(&failing)), 1);
    assert_eq!(metric(&proxy, "requests_total", &ended(&failing, "unavailable")), 3);
    assert_eq!(metric(&proxy, "requests_total", &ended(&well, "answered")), 27);
    proxy.wait_log("is out for 3600s, after 3 failures in a row");
    // Both: then none is left out.
    let other = with_status(&status);
    let proxy = among(&[&failing, &other], settings);
    (0..20).for_each(|_| assert_eq!(get(proxy.addr(), "/", &[]).status(), 503));
    assert!(other.requests().len() >= 5 && failing.requests().len() >= 8);
    proxy.wait_log("only 0 of 2 are well: requests go to all");
    // Off, and alone.
    for (servers, settings) in [(vec![&other, &well], "eject = \"off\""), (vec![&other], settings)] {
        let proxy = among(&servers, settings);
        let before = other.requests().len();
        (0..20).for_each(|_| drop(get(proxy.addr(), "/", &[])));
        assert!(other.requests().len() - before >= 20 / servers.len() - 1);
    }
}

#[test]
fn what_got_no_answer_goes_to_another_server_if_that_is_safe() {
    let dying = Upstream::scripted(|caller| drop(caller.request()));
    let well = Upstream::echo();
    let settings = "eject = \"off\"\nretry_budget = 1.0";
    let proxy = among(&[&dying, &well], settings);
    for _ in 0..10 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(!dying.requests().is_empty());
    let retried = ",outcome=\"sent\"";
    assert_eq!(metric(&proxy, "retries_total", retried), dying.requests().len());
    assert_eq!(metric(&proxy, "requests_total", &ended(&dying, "broken")), dying.requests().len());
    // What may have been done already is not done again.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let statuses: Vec<u16> = (0..10).map(|_| Client::connect(proxy.addr()).ask(post).status()).collect();
    assert!(statuses.contains(&502) && statuses.contains(&200), "{statuses:?}");
    // Several times, but not for ever.
    let others = [(); 3].map(|()| Upstream::scripted(|caller| drop(caller.request())));
    for (retries, seen) in [(0, 1), (1, 2), (2, 3), (5, 3)] {
        let settings = format!("{settings}\nretries = {retries}\nbalance = \"least_requests\"");
        let before: usize = others.iter().map(|server| server.requests().len()).sum();
        let proxy = among(&[&others[0], &others[1], &others[2]], &settings);
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
        let after: usize = others.iter().map(|server| server.requests().len()).sum();
        assert!(after - before >= seen && after - before <= retries + 1, "{retries}: {}", after - before);
    }
}

#[test]
fn retries_are_within_their_budget() {
    let (dying, well) = (Upstream::scripted(|caller| drop(caller.request())), Upstream::echo());
    // Nothing but what a quiet proxy may do: ten at once for each worker, and one a second.
    let proxy = among(&[&dying, &well], "eject = \"off\"\nretry_budget = 0.0");
    let statuses: Vec<u16> = (0..100).map(|_| get(proxy.addr(), "/", &[]).status()).collect();
    let refused = statuses.iter().filter(|status| **status == 502).count();
    assert!(refused > 0 && statuses.contains(&200), "{statuses:?}");
    assert_eq!(metric(&proxy, "retries_total", ",outcome=\"over_budget\""), refused);
    let sent = metric(&proxy, "retries_total", ",outcome=\"sent\"");
    assert_eq!(sent + refused, dying.requests().len());
    assert!((20..45).contains(&sent), "{sent}");
}

#[test]
fn connections_are_bounded_over_all_workers() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Long enough that requests meet.
            std::thread::sleep(Duration::from_millis(5));
            now.fetch_sub(1, Ordering::SeqCst);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = among(&[&server], "max_connections = 3\npending_timeout = \"10s\"");
    let clients: Vec<_> = (0..24)
        .map(|_| {
            let address = proxy.addr();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                [(); 5].map(|()| client.get("/", &[]).status())
            })
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), [200; 5]);
    }
    assert_eq!((most.load(Ordering::SeqCst), server.requests().len()), (3, 120));
    eventually("connections are counted", || metric(&proxy, "connections", &of(&server)) <= 3);
}

/// One worker keeps the only connection, and another one needs it.
#[test]
fn a_kept_connection_makes_room_for_other_workers() {
    let server = Upstream::echo();
    let proxy = among(&[&server], "max_connections = 1\npending_timeout = \"9s\"");
    for _ in 0..40 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(server.connections() > 1, "all connections came to one worker");
}

#[test]
fn who_finds_no_room_waits_and_then_hears_of_it() {
    let server = silent();
    let proxy = among(&[&server], "max_connections = 1\nmax_pending = 1\npending_timeout = \"9s\"");
    let pending = |count| eventually("that many wait", || metric(&proxy, "pending", "") == count);
    let refused = || {
        let answer = get(proxy.addr(), "/", &[]);
        assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
        assert!(answer.text().contains("all connections to the upstream are in use"), "{}", answer.text());
    };
    let mut first = Client::connect(proxy.addr());
    first.send(PLAIN);
    eventually("it is there", || server.requests().len() == 1);
    let mut second = Client::connect(proxy.addr());
    second.send(PLAIN);
    pending(1);
    refused();
    // Who goes away leaves its place in the line.
    drop(second);
    pending(0);
    let mut third = Client::connect(proxy.addr());
    third.send(PLAIN);
    pending(1);
    drop(first);
    eventually("the next one is there", || server.requests().len() == 2);
    pending(0);
    assert_eq!(metric(&proxy, "refusals_total", ""), 1);
    // Nobody waits longer than for a connection.
    let proxy = among(&[&server], "max_connections = 1\npending_timeout = \"100ms\"");
    let mut first = Client::connect(proxy.addr());
    first.send(PLAIN);
    eventually("it is there", || server.requests().len() == 3);
    let answer = get(proxy.addr(), "/", &[]);
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
}

#[test]
fn another_server_is_better_than_to_wait() {
    let (busy, free) = (silent(), Upstream::echo());
    // One worker: what another one keeps would have to be waited for.
    let servers = format!("\"{}\", \"{}\"", busy.url(), free.url());
    let proxy = started_with(1, &servers, "max_connections = 1\npending_timeout = \"9s\"");
    let mut held = Vec::new();
    while busy.requests().is_empty() {
        let mut client = Client::connect(proxy.addr());
        client.send(PLAIN);
        let asked = free.requests().len();
        eventually("it has arrived", || busy.requests().len() + free.requests().len() > asked);
        held.push(client);
    }
    for _ in 0..20 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert_eq!(busy.requests().len(), 1);
}

#[test]
fn who_waits_gets_whichever_server_is_free_first() {
    let busy = silent();
    let may_answer = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&may_answer);
    let slow = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            eventually("it may answer", || gate.load(Ordering::SeqCst));
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let servers = format!("\"{}\", \"{}\"", busy.url(), slow.url());
    let proxy = started_with(2, &servers, "max_connections = 1\nmax_pending = 6\npending_timeout = \"9s\"");
    let ask = || {
        let mut client = Client::connect(proxy.addr());
        client.send(PLAIN);
        client
    };
    let mut held = vec![ask(), ask()];
    eventually("both are busy", || busy.requests().len() + slow.requests().len() == 2);
    held.extend((0..6).map(|_| ask()));
    eventually("all wait", || metric(&proxy, "pending", "") == 6);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503, "no more may wait than that");
    may_answer.store(true, Ordering::SeqCst);
    // All but the one that is at the silent server.
    eventually("the others are answered", || slow.requests().len() == 7);
    assert_eq!(busy.requests().len(), 1);
    drop(held);
    eventually("nobody waits any more", || metric(&proxy, "pending", "") == 0);
    eventually("the places are free", || {
        let open = |server| metric(&proxy, "connections", &of(server));
        open(&busy) == 0 && open(&slow) <= 1
    });
}

/// Workers that choose the same server in the same moment: who finds it taken must go to the other.
#[test]
fn workers_that_want_the_same_place_do_not_leave_another_one_empty() {
    const SERVERS: usize = 4;
    // Each answers when all have a request, and keeps no connection.
    let arrived = Arc::new(AtomicUsize::new(0));
    let servers: Vec<Upstream> = (0..SERVERS)
        .map(|_| {
            let arrived = Arc::clone(&arrived);
            Upstream::scripted(move |caller| {
                let _ = caller.request();
                let round = arrived.fetch_add(1, Ordering::SeqCst) / SERVERS + 1;
                eventually("all have one", || arrived.load(Ordering::SeqCst) >= round * SERVERS);
                let _ =
                    caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            })
        })
        .collect();
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    let proxy = started_with(SERVERS, &urls.join(", "), "max_connections = 1\npending_timeout = \"30s\"");
    for _ in 0..100 {
        let mut clients = [(); SERVERS].map(|()| Client::connect(proxy.addr()));
        for client in &mut clients {
            client.send(PLAIN);
        }
        assert_eq!(clients.map(|mut client| client.read().status()), [200; SERVERS]);
    }
}

/// Connections that die of their second request: what waits must not be sent again over one that is handed on.
#[test]
fn a_second_try_has_a_new_connection_even_after_a_wait() {
    let may_go_on = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let gates = may_go_on.clone();
    let server = Upstream::scripted(move |caller| {
        if !matches!(caller.request(), Ok(Some(_))) {
            return;
        }
        if caller.number() == 1 {
            eventually("it may answer", || gates[1].load(Ordering::SeqCst));
        }
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        if let Ok(Some(_)) = caller.request()
            && caller.number() == 0
        {
            eventually("it may close", || gates[0].load(Ordering::SeqCst));
        }
    });
    let servers = format!("\"{}\"", server.url());
    let proxy = started_with(1, &servers, "max_connections = 1\npending_timeout = \"9s\"");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let mut clients = [(); 2].map(|()| Client::connect(proxy.addr()));
    let waits = || eventually("one waits", || metric(&proxy, "pending", "") == 1);
    clients[0].send(PLAIN);
    eventually("it has the connection that was kept", || server.requests().len() == 2);
    clients[1].send(PLAIN);
    waits();
    // What had the dead one goes to the end of the line.
    may_go_on[0].store(true, Ordering::SeqCst);
    eventually("the other one is there", || server.requests().len() == 3);
    waits();
    may_go_on[1].store(true, Ordering::SeqCst);
    assert_eq!(clients.map(|mut client| client.read().status()), [200, 200]);
    assert_eq!(server.connections(), 3);
}

#[test]
fn the_whole_of_a_request_has_its_time() {
    let dripping = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n");
        for _ in 0..300 {
            // Steadily: no single wait is too long.
            std::thread::sleep(Duration::from_millis(10));
            if caller.try_send("x").is_err() {
                return;
            }
        }
    });
    let proxy = among(&[&dripping], "total_timeout = \"200ms\"");
    let mut client = Client::connect(proxy.addr());
    client.send(PLAIN);
    assert!(client.read_response("GET").is_err());
    eventually("the connection is given up", || dripping.open() == 0);
    let silent = silent();
    let proxy = among(&[&silent], "total_timeout = \"200ms\"\nretries = 5");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    assert_eq!(silent.requests().len(), 1);
    // When it is over no other server is tried, nor thought to be out of reach. These say nothing of TLS.
    let other = self::silent();
    let urls = [&silent, &other].map(|server| server.url().replace("http", "https"));
    let proxy =
        started(&format!("\"{}\", \"{}\"", urls[0], urls[1]), "total_timeout = \"200ms\"\nretries = 5");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    let unreachable =
        |url| metric(&proxy, "requests_total", &format!(",server=\"{url}\",outcome=\"unreachable\""));
    assert_eq!(unreachable(&urls[0]) + unreachable(&urls[1]), 1);
    // What is in time is not touched, and the next request has its own.
    let quick = Upstream::echo();
    let proxy = among(&[&quick], "total_timeout = \"5s\"");
    let mut client = Client::connect(proxy.addr());
    assert_eq!([(); 3].map(|()| client.get("/", &[]).status()), [200; 3]);
    assert_eq!(quick.connections(), 1);
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
