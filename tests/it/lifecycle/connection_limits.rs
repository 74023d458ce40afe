//! Limits on connections, in total and per client, and eviction of idle connections.

use crate::support::{Authority, Client, Frames, Tidegate, Upstream, eventually, get};

fn config(listener: &str, more: &str) -> String {
    format!(
        "workers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nlevel = \"debug\"\naccess = \"off\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n{more}\n\
         [[routes]]\npath = \"/*\"\nrespond = {{ status = 200 }}\n"
    )
}

/// How many connections exceeded a limit.
fn refused(proxy: &Tidegate, bound: &str) -> u64 {
    let response = get(proxy.admin(), "/metrics", &[]);
    let name =
        format!("tidegate_connections_refused_total{{listener=\"{}\",bound=\"{bound}\"}} ", proxy.addr());
    response.text().lines().find_map(|line| line.strip_prefix(&*name)).unwrap().parse().unwrap()
}

/// A connection that is served, possibly after several attempts: a closed connection may still be counted.
fn served(mut connect: impl FnMut() -> Client) -> Client {
    let mut served = None;
    eventually("a connection is served", || {
        let mut client = connect();
        let is_served = client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok()
            && client.read_response("GET").is_ok();
        served = is_served.then_some(client);
        is_served
    });
    served.unwrap()
}

#[test]
fn max_connections_per_client_applies_over_all_workers() {
    let proxy = Tidegate::start(&config("max_connections_per_client = 3", "[client_ip]\nipv4_prefix = 24"));
    let from = |source: &str| Client::connect_from(source, proxy.addr());
    // Idle connections count, and a network of the prefix length is one client.
    let mut kept: Vec<Client> = ["127.0.0.1", "127.0.0.2", "127.0.0.1"].map(from).into();
    let open = format!("tidegate_connections{{listener=\"{}\"}}", proxy.addr());
    eventually("both workers have accepted them", || proxy.metric(&open) == 3);
    assert_eq!(kept[0].get("/", &[]).status(), 200);
    for round in 1..=20 {
        from("127.0.0.3").expect_close();
        assert_eq!(refused(&proxy, "max_connections_per_client"), round);
    }
    proxy.wait_log(
        "refused: 3 connections of this client are open (`max_connections_per_client`) address=127.0.0.3",
    );
    assert_eq!(from("127.0.1.1").get("/", &[]).status(), 200);
    for client in &mut kept {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    kept.truncate(2);
    kept.push(served(|| from("127.0.0.1")));
    assert_eq!(refused(&proxy, "max_connections"), 0);
}

#[test]
fn max_connections_applies_to_all_clients_together() {
    let proxy = Tidegate::start(&config("max_connections = 2", ""));
    let mut kept = [(); 2].map(|()| Client::connect(proxy.addr()));
    // Both are counted: workers accept connections independently of each other.
    for client in &mut kept {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    Client::connect(proxy.addr()).expect_close();
    assert_eq!(refused(&proxy, "max_connections"), 1);
}

/// Connections from another address, each of which has been served.
fn idle(proxy: &Tidegate, count: usize) -> Vec<Client> {
    let mut idle: Vec<Client> = (0..count).map(|_| Client::connect_from("127.0.0.2", proxy.addr())).collect();
    for client in &mut idle {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    idle
}

#[test]
fn a_new_client_evicts_an_idle_connection_of_the_largest_client() {
    let proxy = Tidegate::start(&config("max_connections = 4", ""));
    let mut crowd = idle(&proxy, 4);
    // Evicts connections before and after they are parked.
    for round in 1..=3 {
        let mut newcomer = served(|| Client::connect(proxy.addr()));
        assert_eq!(newcomer.get("/", &[]).status(), 200);
        proxy.wait_log("an idle connection is evicted for a new client client=127.0.0.2");
        // Real time is tested: idle connections are parked after half a second.
        std::thread::sleep(std::time::Duration::from_millis(300 * (round - 1)));
    }
    let open = crowd.iter_mut().map(is_open).filter(|is_open| *is_open).count();
    assert!((1..4).contains(&open), "{open}");
    // The largest client gets no further connection.
    let refusals = refused(&proxy, "max_connections");
    eventually("a connection is refused", || {
        crowd.push(Client::connect_from("127.0.0.2", proxy.addr()));
        refused(&proxy, "max_connections") > refusals
    });
}

/// Whether the proxy still serves the connection.
fn is_open(client: &mut Client) -> bool {
    client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok() && client.read_response("GET").is_ok()
}

#[test]
fn a_connection_with_an_open_request_is_not_evicted() {
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let slow = format!("[[routes]]\npath = \"/slow\"\nupstream = \"{}\"\n", server.url());
    let proxy = Tidegate::start(&config("max_connections = 3", &slow));
    let mut busy = idle(&proxy, 3);
    for client in &mut busy {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("all connections are busy", || server.requests().len() == 3);
    for round in 1..=3 {
        Client::connect(proxy.addr()).expect_close();
        assert_eq!(refused(&proxy, "max_connections"), round);
    }
    drop(release);
    for client in &mut busy {
        assert_eq!(client.read().status(), 200);
    }
    served(|| Client::connect(proxy.addr()));
}

#[test]
fn a_connection_with_a_partial_request_is_evicted() {
    let proxy = Tidegate::start(&config("max_connections = 2\nheader_timeout = \"60s\"", ""));
    // After a response, on a new connection, and after a head that was rejected.
    for begun in ["GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", "GET", "no request\r\n\r\nmore"] {
        let mut crowd: Vec<Client> =
            (0..2).map(|_| served(|| Client::connect_from("127.0.0.2", proxy.addr()))).collect();
        for client in &mut crowd {
            client.send(begun);
            let _ = client.read_response("GET");
        }
        let mut newcomer = Client::connect(proxy.addr());
        assert_eq!(newcomer.get("/", &[]).status(), 200, "{begun:?}");
    }
}

#[test]
fn an_idle_http_2_connection_is_evicted_with_goaway() {
    let proxy = Tidegate::start(&config("max_connections = 1", ""));
    let stream = crate::support::connect_from("127.0.0.2", proxy.addr()).unwrap();
    let mut idle = Frames::over(stream).begin(&[]);
    idle.get(1, "/");
    assert_eq!(idle.status(1), Some(Ok(200)));
    served(|| Client::connect(proxy.addr()));
    assert_eq!(idle.end(), Some(0));
}

#[test]
fn excess_connections_are_closed_before_the_tls_handshake() {
    let authority = Authority::new();
    authority.sign("a.test");
    let tls = format!(
        "tls = {{ certificates = [{{ {} }}] }}\nmax_connections_per_client = 1",
        authority.pair("a.test")
    );
    let proxy = Tidegate::start(&config(&tls, ""));
    let _silent = Client::connect(proxy.addr());
    // For a handshake the proxy would wait for the client.
    Client::connect(proxy.addr()).expect_close();
    assert_eq!(refused(&proxy, "max_connections_per_client"), 1);
}

#[test]
fn trusted_proxies_are_exempt_from_max_connections_per_client() {
    let trusted = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]";
    let proxy = Tidegate::start(&config("max_connections_per_client = 1", trusted));
    let mut kept = [(); 3].map(|()| Client::connect(proxy.addr()));
    for client in &mut kept {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    let untrusted = || Client::connect_from("127.0.0.2", proxy.addr());
    let _kept = served(untrusted);
    untrusted().expect_close();
}

#[test]
fn max_connections_per_client_uses_the_address_in_the_proxy_header() {
    let trusted = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]";
    let proxy = Tidegate::start(&config("proxy_protocol = true\nmax_connections_per_client = 1", trusted));
    let of = |client: &str| {
        let mut connection = Client::connect(proxy.addr());
        let line = match client {
            "" => "PROXY UNKNOWN\r\n".to_owned(),
            v6 if v6.contains(':') => format!("PROXY TCP6 {v6} ::1 4711 443\r\n"),
            v4 => format!("PROXY TCP4 {v4} 10.0.0.1 4711 443\r\n"),
        };
        connection.send(line);
        connection
    };
    let mut kept = Vec::new();
    for client in ["192.0.2.7", "192.0.2.8", "2001:db8::7", "2001:db8:0:1::7", "", "", "10.1.2.3", "10.1.2.3"]
    {
        let mut connection = of(client);
        assert_eq!(connection.get("/", &[]).status(), 200, "{client:?}");
        kept.push(connection);
    }
    for (round, client) in (1..).zip(["192.0.2.7", "::ffff:192.0.2.8", "2001:db8::8"]) {
        of(client).expect_close();
        assert_eq!(refused(&proxy, "max_connections_per_client"), round, "{client}");
    }
    kept.remove(0);
    served(|| of("192.0.2.7"));
}

#[test]
fn a_reloaded_limit_applies_to_new_connections() {
    let with = |listener: &str| config(listener, "");
    let proxy = Tidegate::start(&with("max_connections_per_client = 1"));
    let mut kept = vec![served(|| Client::connect(proxy.addr()))];
    Client::connect(proxy.addr()).expect_close();
    proxy.reload(&with("max_connections_per_client = 2"));
    kept.push(served(|| Client::connect(proxy.addr())));
    Client::connect(proxy.addr()).expect_close();
    proxy.reload(&with("max_connections_per_client = 1"));
    Client::connect(proxy.addr()).expect_close();
    proxy.reload(&with(""));
    kept.push(served(|| Client::connect(proxy.addr())));
    for client in &mut kept {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
}
