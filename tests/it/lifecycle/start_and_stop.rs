//! From the start to the end, and the store that comes and goes in between.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::frames::{DATA, END_STREAM, Frames, WINDOW_UPDATE};
use crate::support::{Client, PATIENCE, RedisServer, Tidegate, Upstream, eventually, get, timed};

/// A server that answers each request when it is told to.
fn slow() -> (Upstream, Sender<()>) {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
        }
    });
    (server, release)
}

fn before(server: &Upstream, settings: &str) -> Tidegate {
    Tidegate::start(&format!("{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()))
}

/// Sends a request that the server has, but does not answer yet.
fn unanswered(proxy: &Tidegate, server: &Upstream) -> Client {
    let mut client = Client::connect(proxy.addr());
    let count = server.requests().len();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() > count);
    client
}

fn is_closed(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PATIENCE).is_err()
}

const OWN: &str = "[[routes]]\npath = \"/*\"\nrespond = { status = 200 }\n";

#[test]
fn a_port_in_use_is_said_and_ends_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let expected = format!("error: can't listen on {address}: Address already in use (os error 98)");
    let (status, lines) = Tidegate::fails(&format!("listen = \"{address}\"\n{OWN}"));
    assert_eq!((status.code(), lines), (Some(1), vec![expected]));
    // Also by a proxy of the same kind, which would share it.
    let proxy = Tidegate::start(&format!("workers = 2\n{OWN}"));
    let address = proxy.addr();
    let expected = format!("error: can't listen on {address}: Address already in use (os error 98)");
    let (status, lines) = Tidegate::fails(&format!("listen = \"{address}\"\n{OWN}"));
    assert_eq!((status.code(), lines), (Some(1), vec![expected]));
    assert_eq!(get(address, "/", &[]).status(), 200);
}

#[test]
fn an_address_that_is_not_ours_is_said() {
    let (status, lines) = Tidegate::fails(&format!("listen = \"192.0.2.1:1\"\n{OWN}"));
    let expected = "error: can't listen on 192.0.2.1:1: Cannot assign requested address (os error 99)";
    assert_eq!((status.code(), lines), (Some(1), vec![expected.to_owned()]));
}

#[test]
fn the_start_names_listeners_and_store() {
    let proxy = Tidegate::start(&format!(
        "workers = 2\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[[listeners]]\naddress = \"[::1]:0\"\n{OWN}"
    ));
    assert!(proxy.wait_log("listening on 127.0.0.1:").ends_with(" with 2 workers"));
    let second = proxy.wait_log("listening on [::1]:");
    proxy.wait_log("limits are counted in this process");
    let address = second.split("listening on ").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(get(address.parse().unwrap(), "/", &[]).status(), 200);
    let redis = RedisServer::start();
    let proxy = Tidegate::start(&format!("[store]\nurl = \"{}\"\n{OWN}", redis.url()));
    proxy.wait_log(&format!("limits are counted in {}", redis.url()));
}

#[test]
fn every_worker_serves() {
    let proxy = Tidegate::start(&format!("workers = 4\n{OWN}"));
    for _ in 0..40 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
}

#[test]
fn sigterm_lets_what_has_begun_come_to_its_end() {
    for (name, workers) in [("TERM", 1), ("INT", 3)] {
        let (server, release) = slow();
        let mut proxy = before(&server, &format!("workers = {workers}"));
        let mut idle = Client::connect(proxy.addr());
        release.send(()).unwrap();
        assert_eq!(idle.get("/", &[]).status(), 200);
        let mut silent = Client::connect(proxy.addr());
        let mut busy = unanswered(&proxy, &server);
        let mut other = unanswered(&proxy, &server);
        proxy.signal(name);
        proxy.wait_log(&format!("SIG{name}: draining"));
        idle.expect_close();
        silent.expect_close();
        eventually("nobody listens any more", || is_closed(proxy.addr()));
        assert!(proxy.is_running());
        release.send(()).unwrap();
        release.send(()).unwrap();
        for client in [&mut busy, &mut other] {
            let answer = client.read();
            assert_eq!((&*answer.start, answer.text()), ("HTTP/1.1 200 OK", "late"));
            assert_eq!(answer.header("connection"), Some("close"));
            client.expect_close();
        }
        assert_eq!(proxy.wait().code(), Some(0));
        proxy.wait_log("drained");
    }
}

/// More connections than a worker takes in one turn, each with its request on its way, while the proxy does
/// nothing: all of them are answered after SIGTERM.
#[test]
fn sigterm_answers_what_waits_in_the_backlog() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    proxy.signal("STOP");
    let mut clients: Vec<Client> = (0..400).map(|_| Client::connect(proxy.addr())).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    proxy.signal("TERM");
    proxy.signal("CONT");
    for client in &mut clients {
        assert_eq!(client.read().status(), 200);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_request_sent_just_before_sigterm_was_seen_is_answered() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    let mut kept = Client::connect(proxy.addr());
    assert_eq!(kept.get("/", &[]).status(), 200);
    let mut fresh = Client::connect(proxy.addr());
    proxy.signal("TERM");
    proxy.wait_log("draining");
    for client in [&mut kept, &mut fresh] {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_head_that_comes_in_parts_around_sigterm_is_answered() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    let mut clients = [(); 3].map(|()| Client::connect(proxy.addr()));
    let (first, second) = ("GET / HTTP/1.1\r\nHost: a\r\n", "\r\n");
    let [begun, begins, fresh] = &mut clients;
    for client in [&mut *begun, &mut *begins] {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    begun.send(first);
    fresh.send(first);
    // Answered by the same worker, which has read what came before.
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    proxy.signal("TERM");
    proxy.wait_log("draining");
    begins.send(first);
    eventually("nobody listens any more", || is_closed(proxy.addr()));
    for client in &mut clients {
        client.send(second);
        assert_eq!(client.read().status(), 200);
        client.expect_close();
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

/// The last of an answer waits in the proxy while its client is slow: for some of these lengths, since nobody can say
/// how much the kernel takes.
#[test]
fn the_end_of_an_answer_that_waits_to_be_read_is_no_idle_time() {
    const STEP: usize = 48 * 1024;
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let length = request.start.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = caller.try_send([head.as_bytes(), &vec![b'x'; length]].concat());
        }
    });
    let mut proxy = before(&server, "");
    let (mut clients, mut multiplexed) = (Vec::new(), Vec::new());
    for length in (1..100).map(|number| number * STEP) {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n"));
        clients.push((length, client));
        let mut client = Frames::connect(proxy.addr(), &[(4, 1 << 30)]);
        client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        client.get(1, &format!("/{length}"));
        multiplexed.push((length, client));
    }
    eventually("the server has all requests", || {
        server.requests().len() == clients.len() + multiplexed.len()
    });
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("nobody listens any more", || is_closed(proxy.addr()));
    // Idle connections are closed half a second after that, and a second where they speak HTTP/2: a matter of time
    // alone.
    std::thread::sleep(Duration::from_millis(1_700));
    for (length, client) in &mut clients {
        assert_eq!(client.read().body.len(), *length);
    }
    for (length, client) in &mut multiplexed {
        let (mut came, mut is_whole) = (0, false);
        while !is_whole {
            let part = client.find(DATA).unwrap();
            came += part.payload.len();
            is_whole = part.flags & END_STREAM != 0;
        }
        assert_eq!(came, *length);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_body_on_its_way_is_finished_after_sigterm() {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        let _ = caller.try_send("more");
        let _ = caller.request();
    });
    let mut proxy = before(&server, "");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head().unwrap().unwrap();
    assert_eq!(client.take(4).unwrap(), b"half");
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("nobody listens any more", || is_closed(proxy.addr()));
    release.send(()).unwrap();
    assert_eq!(client.take(4).unwrap(), b"more");
    client.expect_close();
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn without_connections_sigterm_ends_it_at_once() {
    let proxy = Tidegate::start(OWN);
    let (status, time) = timed(|| proxy.stop());
    assert_eq!(status.code(), Some(0));
    assert!(time < Duration::from_secs(3), "{time:?}");
}

#[test]
fn grace_has_an_end() {
    let (server, _release) = slow();
    let mut proxy = before(&server, "shutdown_grace = \"700ms\"");
    let mut client = unanswered(&proxy, &server);
    proxy.signal("TERM");
    let (status, time) = timed(|| proxy.wait());
    assert_eq!(status.code(), Some(0));
    assert!((600..5000).contains(&time.as_millis()), "{time:?}");
    proxy.wait_log("connections were still open after 700ms");
    client.expect_close();
}

/// What balances the load can learn of the end before anybody is refused.
#[test]
fn readiness_goes_first_and_listeners_stay_for_the_delay() {
    for (delay, hurries) in [("200ms", false), ("60s", true)] {
        let mut proxy = Tidegate::start(&format!(
            "listen = \"127.0.0.1:0\"\nshutdown_delay = \"{delay}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{OWN}"
        ));
        let admin = proxy.admin();
        assert_eq!(get(admin, "/ready", &[]).status(), 200);
        proxy.signal("TERM");
        proxy.wait_log(&format!("SIGTERM: no longer ready, draining in {delay}"));
        if hurries {
            eventually("it says that it leaves", || {
                let answer = get(admin, "/ready", &[]);
                answer.status() == 503 && answer.text().starts_with("leaving\n")
            });
            // Who comes is served as ever, and the connection stays.
            let mut client = Client::connect(proxy.addr());
            let answer = client.get("/", &[]);
            assert_eq!((answer.status(), answer.header("connection")), (200, None));
            assert_eq!(client.get("/", &[]).status(), 200);
            proxy.signal("INT");
        }
        proxy.wait_log("SIGTERM: draining");
        assert_eq!(proxy.wait().code(), Some(0));
        proxy.wait_log("drained");
    }
}

#[test]
fn sigint_ends_a_drain_and_a_second_sigterm_does_not() {
    let (server, release) = slow();
    let mut proxy = before(&server, "shutdown_grace = \"60s\"");
    let mut client = unanswered(&proxy, &server);
    let mut other = unanswered(&proxy, &server);
    proxy.signal("TERM");
    proxy.wait_log("SIGTERM: draining");
    proxy.signal("TERM");
    release.send(()).unwrap();
    let first = [&mut client, &mut other].map(|client| {
        // One of them has an answer at once, and which does not matter.
        client.stream().set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        client.read_response("GET").is_ok()
    });
    assert_eq!(first.iter().filter(|is_answered| **is_answered).count(), 1);
    assert!(proxy.is_running());
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.wait_log("SIGINT: not waiting for open connections");
}

/// One generation after another serves the same socket, which their parent keeps: under load nobody is refused, and no
/// request is lost.
#[test]
fn a_socket_that_is_passed_on_outlives_who_serves_it() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let config = |text: &str| {
        format!(
            "listen = \"{address}\"\nworkers = 2\n[[routes]]\npath = \"/*\"\nrespond = {{ body = \"{text}\" }}\n"
        )
    };
    let mut old = Tidegate::start_on(&socket, &config("0"));
    let (is_over, last) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = get(address, "/", &["Connection: close"]);
                    last.store(answer.text().parse().unwrap(), Ordering::Relaxed);
                }
            });
        }
        for generation in 1..=5 {
            let new = Tidegate::start_on(&socket, &config(&generation.to_string()));
            assert_eq!(std::mem::replace(&mut old, new).stop().code(), Some(0));
            eventually("the new one answers", || last.load(Ordering::Relaxed) == generation);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Between two of them, who connects waits.
    assert_eq!(old.stop().code(), Some(0));
    let mut early = Client::connect(address);
    early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let next = Tidegate::start_on(&socket, &config("next"));
    assert_eq!(early.read().text(), "next");
    // A listener that is gone for a while has its socket again.
    next.reload(&config("next").replace(&address.to_string(), "127.0.0.1:0"));
    next.reload(&config("again"));
    assert_eq!(get(address, "/", &[]).text(), "again");
}

#[test]
fn a_socket_that_nobody_wants_is_named() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Tidegate::start_on(&socket, OWN);
    let address = socket.local_addr().unwrap();
    proxy.wait_log(&format!(
        "an inherited socket listens on {address}, but no listener of the configuration has that address"
    ));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
}

#[test]
fn after_a_kill_the_next_one_starts_at_once() {
    let mut proxy = Tidegate::start(OWN);
    let address = proxy.addr();
    let mut client = Client::connect(address);
    assert_eq!(client.get("/", &[]).status(), 200);
    proxy.signal("KILL");
    proxy.wait();
    // The connection, which the dead one has closed first, lingers.
    let next = Tidegate::start(&format!("listen = \"{address}\"\n{OWN}"));
    assert_eq!((next.addr(), get(address, "/", &[]).status()), (address, 200));
}

/// A route for each policy, all of three requests an hour.
const POLICIES: &str = r#"
[limits.local]
rate = "3/hour"
[limits.allow]
rate = "3/hour"
on_store_failure = "allow"
[limits.deny]
rate = "3/hour"
on_store_failure = "deny"
[[routes]]
path = "/local"
limits = ["local"]
respond = { status = 200 }
[[routes]]
path = "/allow"
limits = ["allow"]
respond = { status = 200 }
[[routes]]
path = "/deny"
limits = ["deny"]
respond = { status = 200 }
[[routes]]
path = "/both"
limits = ["allow", "local"]
respond = { status = 200 }
[[routes]]
path = "/free"
respond = { status = 200 }
"#;

/// The status of a request, and what it says is left.
fn ask(proxy: &Tidegate, path: &str) -> (u16, Option<u64>) {
    let answer = get(proxy.addr(), path, &[]);
    (answer.status(), answer.header("x-ratelimit-remaining").map(|left| left.parse().unwrap()))
}

/// What each policy does while there is no store, with a local count of which `spent` are spent.
#[track_caller]
fn assert_alone(proxy: &Tidegate, spent: u64) {
    for left in (0..3 - spent).rev() {
        assert_eq!(ask(proxy, "/local"), (200, Some(left)));
    }
    assert_eq!(ask(proxy, "/local"), (429, Some(0)));
    for _ in 0..5 {
        assert_eq!(ask(proxy, "/allow"), (200, None));
        assert_eq!(ask(proxy, "/deny"), (503, None));
        assert_eq!(ask(proxy, "/free"), (200, None));
    }
    assert_eq!(ask(proxy, "/both"), (429, Some(0)));
}

#[test]
fn it_starts_without_redis_and_takes_it_up() {
    let mut redis = RedisServer::absent();
    let proxy = Tidegate::start(&format!("{POLICIES}\n[store]\nurl = \"{}\"\n", redis.url()));
    assert_alone(&proxy, 0);
    proxy.wait_log(&format!("limits are counted in {}", redis.url()));
    let line =
        proxy.wait_log("the store can't be asked: not connected: Connection refused; each limit does ");
    assert!(line.contains("WARN"), "{line}");
    redis.restart();
    eventually("the store is taken up", || ask(&proxy, "/deny").0 == 200);
    proxy.wait_log("the store answers again");
    // A Redis that has just started is told of what was admitted without it.
    assert_eq!(ask(&proxy, "/local"), (429, Some(0)));
    assert_eq!(ask(&proxy, "/allow"), (200, Some(2)));
    assert_eq!(redis.keys().iter().filter(|key| key.contains(":local:")).count(), 1);
}

#[test]
fn it_goes_on_without_redis_and_takes_it_up_again() {
    let mut redis = RedisServer::start();
    let proxy = Tidegate::start_with_store(&redis, "", POLICIES);
    for path in ["/local", "/allow", "/deny"] {
        assert_eq!(ask(&proxy, path), (200, Some(2)));
    }
    redis.kill();
    assert_alone(&proxy, 1);
    let away = || proxy.lines().iter().filter(|line| line.contains("the store can't be asked")).count();
    eventually("it is said", || away() == 1);
    assert_alone(&proxy, 3);
    assert_eq!(away(), 1, "it is said once a change: {:?}", proxy.lines());
    redis.restart();
    proxy.wait_ready();
    for path in ["/allow", "/deny"] {
        assert_eq!(ask(&proxy, path), (200, Some(2)));
    }
    // Redis has lost what it had, and is told of what was admitted without it; but for the first, if that was lost with
    // the connection.
    let left = (0..3).filter(|_| ask(&proxy, "/local").0 == 200).count();
    assert!((1..=2).contains(&left), "{left}");
    redis.kill();
    assert_alone(&proxy, 3);
}

#[test]
fn a_redis_that_hangs_costs_no_more_than_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(100);
    // What a busy machine may add.
    const TOLERANCE: Duration = Duration::from_millis(400);
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with_store(&redis, "timeout = \"100ms\"", POLICIES);
    assert_eq!(ask(&proxy, "/deny").0, 200);
    redis.pause();
    let mut asked = Vec::new();
    for round in 0..8 {
        for (path, expected) in
            [("/allow", 200), ("/deny", 503), ("/local", if round < 3 { 200 } else { 429 })]
        {
            let ((status, _), time) = timed(|| ask(&proxy, path));
            assert_eq!(status, expected, "{path} in round {round}");
            assert!(time < DEADLINE + TOLERANCE, "{path} took {time:?}");
            asked.push(time);
        }
    }
    // A moment is left for what has to be done after it.
    assert!(asked[0] >= DEADLINE * 9 / 10, "the first one has to wait: {asked:?}");
    redis.resume();
    proxy.wait_ready();
    // How much of what it was asked meanwhile is charged now, nobody can know; but it is asked again.
    assert_ne!(ask(&proxy, "/deny").0, 503);
}

#[test]
fn proxies_that_share_a_redis_share_their_limits_exactly() {
    const THREADS: usize = 8;
    const REQUESTS: usize = 100;
    let config = r#"
        workers = 2
        [limits.shared]
        rate = "1/hour"
        burst = 200
        key = "route"
        on_store_failure = "deny"
        [limits.spaced]
        algorithm = "gcra"
        rate = "1/hour"
        burst = 149
        key = "route"
        on_store_failure = "deny"
        [[routes]]
        path = "/bucket"
        limits = ["shared"]
        respond = { status = 200 }
        [[routes]]
        path = "/spaced"
        limits = ["spaced"]
        respond = { status = 200 }
        [[routes]]
        path = "/both"
        limits = ["spaced", "shared"]
        respond = { status = 200 }
    "#;
    let redis = RedisServer::start();
    let proxies = [Tidegate::start_with(&redis, config), Tidegate::start_with(&redis, config)];
    for proxy in &proxies {
        // Connections go to workers at random: after so many of them each worker has shown that it is ready.
        for _ in 0..30 {
            proxy.wait_ready();
        }
    }
    for (path, admitted) in [("/bucket", 200), ("/spaced", 150), ("/both", 150)] {
        let ask_all = |address: SocketAddr| {
            let mut client = Client::connect(address);
            let statuses = (0..REQUESTS).map(|_| client.get(path, &[]).status());
            statuses.fold((0, 0, 0), |(passed, refused, other), status| match status {
                200 => (passed + 1, refused, other),
                429 => (passed, refused + 1, other),
                _ => (passed, refused, other + 1),
            })
        };
        let counts = std::thread::scope(|scope| {
            let addresses = proxies.iter().flat_map(|proxy| [proxy.addr(); THREADS]);
            let threads: Vec<_> = addresses.map(|address| scope.spawn(move || ask_all(address))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<(usize, usize, usize)>>()
        });
        let sum = counts.iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        assert_eq!(sum, (admitted, 2 * THREADS * REQUESTS - admitted, 0), "{path}");
    }
}

/// A Redis that hangs keeps some requests waiting for the deadline, and then none: the breaker is open. When it
/// answers again, limits are exact again soon.
#[test]
fn the_breaker_opens_and_closes() {
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with_store(
        &redis,
        "timeout = \"50ms\"",
        r#"
        [limits.strict]
        rate = "1/hour"
        burst = 5
        key = "header:x-key"
        on_store_failure = "deny"
        [[routes]]
        path = "/*"
        limits = ["strict"]
        respond = { status = 200 }
        "#,
    );
    let ask = |key: &str| get(proxy.addr(), "/", &[&format!("X-Key: {key}")]);
    assert_eq!(ask("a").status(), 200);
    redis.pause();
    let refused = ask("a");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    for _ in 0..12 {
        assert_eq!(ask("a").status(), 503);
    }
    proxy.wait_log("the store can't be asked");
    // A hundred that each waited for the deadline would take five seconds.
    let ((), time) = timed(|| (0..100).for_each(|_| assert_eq!(ask("a").status(), 503)));
    assert!(time < Duration::from_secs(3), "{time:?}");
    redis.resume();
    eventually("it is asked again", || ask("b").status() == 200);
    proxy.wait_log("the store answers again");
    let passed = (0..10).filter(|_| ask("c").status() == 200).count();
    assert_eq!(passed, 5);
}
