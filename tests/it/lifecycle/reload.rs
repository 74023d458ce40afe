//! Configurations that follow one another in a running proxy: what changes, and what lives on.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::{fs, thread};

use crate::support::{Client, PATIENCE, Tidegate, Upstream, eventually, free_address, get};

/// A file whose every route says this.
pub fn saying(text: &str) -> String {
    format!("[[routes]]\nname = \"all\"\npath = \"/*\"\nrespond = {{ body = \"{text}\" }}\n")
}

pub fn says(proxy: &Tidegate) -> String {
    get(proxy.addr(), "/", &[]).text().to_owned()
}

pub const ADMIN: &str = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

pub fn metric(proxy: &Tidegate, name: &str) -> Option<String> {
    let answer = get(proxy.admin(), "/metrics", &[]);
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
    answer.text().lines().find_map(value)
}

#[test]
fn a_file_is_read_again_on_sighup_and_the_log_says_what_has_changed() {
    let proxy = Tidegate::start(&saying("one"));
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).text(), "one");
    proxy.reload(&format!(
        "default_limits = [\"wide\"]\n[limits.wide]\nrate = \"100/s\"\n{}\
         [[routes]]\nname = \"later\"\npath = \"/later\"\nrespond = {{}}\n",
        saying("two")
    ));
    assert_eq!(client.get("/", &[]).text(), "two");
    assert_eq!(says(&proxy), "two");
    proxy.wait_log("routes: `later` added; `all` changed");
    proxy.wait_log("limits: `wide` added");
    proxy.wait_log("keys: `default_limits` added");
    proxy.reload(&saying("two"));
    proxy.wait_log("routes: `later` removed");
    assert_eq!(client.get("/", &[]).header("x-ratelimit-limit"), None);
    proxy.reload(&saying("two"));
    proxy.wait_log("was reloaded, without changes");
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn a_wrong_file_changes_nothing_and_is_reported() {
    let proxy = Tidegate::start(&(ADMIN.to_owned() + &saying("one")));
    proxy.write(
        &(ADMIN.to_owned() + &saying("two").replace("respond", "respnod") + "upstream = \"nobody\"\n"),
    );
    proxy.signal("HUP");
    let line = proxy.wait_log("serving the previous configuration");
    assert!(line.contains("ERROR SIGHUP: ") && line.contains("tidegate.toml has 2 problems"), "{line}");
    proxy.wait_log("error: unknown key `respnod` in route 1");
    proxy.wait_log("= help: did you mean `respond`?");
    assert_eq!(says(&proxy), "one");
    assert_eq!(metric(&proxy, "tidegate_config_current").unwrap(), "0");
    assert_eq!(metric(&proxy, "tidegate_reloads_total{outcome=\"refused\"}").unwrap(), "1");
    let ready = get(proxy.admin(), "/ready", &[]);
    assert_eq!(ready.status(), 200);
    assert!(ready.text().contains("config: the last reload failed"), "{}", ready.text());
    fs::remove_file(proxy.directory().join("tidegate.toml")).unwrap();
    proxy.signal("HUP");
    eventually("it is missed", || proxy.logged("serving the previous configuration") == 2);
    assert_eq!(says(&proxy), "one");
    proxy.reload(&(ADMIN.to_owned() + &saying("three")));
    assert_eq!(says(&proxy), "three");
    assert_eq!(metric(&proxy, "tidegate_config_current").unwrap(), "1");
    assert_eq!(metric(&proxy, "tidegate_reloads_total{outcome=\"applied\"}").unwrap(), "1");
    assert!(!get(proxy.admin(), "/ready", &[]).text().contains("config"));
}

#[test]
fn no_request_is_lost_while_the_file_changes_again_and_again() {
    const RELOADS: usize = 100;
    let server = Upstream::echo();
    let config = |round: usize| {
        format!(
            "workers = 2\n[limits.wide]\nrate = \"{}/s\"\n[upstreams.echo]\nservers = [\"{}\"]\nretries = {}\n\
             [[routes]]\nname = \"r{round}\"\npath = \"/*\"\nlimits = [\"wide\"]\nupstream = \"echo\"\n",
            1_000_000 + round,
            server.url(),
            round % 2,
        )
    };
    let proxy = Tidegate::start(&config(0));
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..6 {
            let (address, is_over, answered) = (proxy.addr(), &is_over, &answered);
            scope.spawn(move || {
                let mut kept = Client::connect(address);
                while !is_over.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        kept = Client::connect(address);
                    }
                    let body = "x".repeat(number * 1_000);
                    let request = format!(
                        "POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    assert!(kept.ask(&request).echoed().body == body.as_bytes());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=RELOADS {
            let before = answered.load(Ordering::Relaxed);
            proxy.reload(&config(round));
            // Requests meet every configuration.
            eventually("somebody is answered", || answered.load(Ordering::Relaxed) > before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn what_has_begun_lives_through_it() {
    let server = Upstream::scripted(|caller| {
        let Ok(Some(head)) = caller.read_head() else { return };
        if head.start.starts_with("POST") {
            // Chunks: a body of known length would be read whole before it goes to a server.
            let body = caller.take(b"4\r\nhalf\r\n4\r\nmore\r\n0\r\n\r\n".len()).unwrap();
            assert_eq!(body, b"4\r\nhalf\r\n4\r\nmore\r\n0\r\n\r\n");
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalfmore");
        } else {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            // The rest when the test says so.
            let _ = caller.take(1);
            let _ = caller.try_send("more");
        }
    });
    let forwarding = format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url());
    let proxy = Tidegate::start(&forwarding);
    let mut upload = Client::connect(proxy.addr());
    upload.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    let mut download = Client::connect(proxy.addr());
    download.send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    eventually("both are under way", || server.connections() == 2);
    for round in 0..3 {
        proxy.reload(&saying(&format!("round {round}")));
    }
    assert_eq!(says(&proxy), "round 2");
    for client in [&mut upload, &mut download] {
        client.send("4\r\nmore\r\n0\r\n\r\n");
        assert_eq!(client.read().text(), "halfmore");
        // The next request on the same connection meets the present configuration.
        assert_eq!(client.get("/", &[]).text(), "round 2");
    }
}

#[test]
fn an_answer_on_its_way_is_finished() {
    let (more, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            let _ = waits.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("more");
        }
    });
    let forwarding = |name: &str| {
        format!("[[routes]]\nname = \"{name}\"\npath = \"/*\"\nupstream = \"{}\"\n", server.url())
    };
    let proxy = Tidegate::start(&forwarding("one"));
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head().unwrap().unwrap();
    assert_eq!(client.take(4).unwrap(), b"half");
    proxy.reload(&forwarding("two"));
    more.send(()).unwrap();
    assert_eq!(client.take(4).unwrap(), b"more");
    // The upstream is as it was: so is the connection to it.
    more.send(()).unwrap();
    assert_eq!(client.get("/", &[]).text(), "halfmore");
    assert_eq!(server.connections(), 1);
}

#[test]
fn connections_to_servers_of_the_old_file_end_with_their_requests() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(head)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            if head.start.contains("/long") && caller.take(1).is_err() {
                return;
            }
            let _ = caller.try_send("more");
        }
    });
    let forwarding = |line: &str| {
        format!(
            "workers = 1\n[upstreams.u]\nservers = [\"{}\"]\n{line}\n\
             [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
            server.url()
        )
    };
    let proxy = Tidegate::start(&forwarding(""));
    let begun = || {
        let mut client = Client::connect(proxy.addr());
        client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
        client.read_head().unwrap().unwrap();
        client
    };
    let (_long, short) = (begun(), begun());
    assert_eq!(get(proxy.addr(), "/", &[]).text(), "halfmore");
    assert_eq!(server.open(), 3);
    // One answer still comes; nobody will use the connection that was kept beside it.
    proxy.reload(&forwarding("retries = 0"));
    eventually("the one that was kept is closed", || server.open() == 2);
    drop(short);
    eventually("only the answer that still comes has one", || server.open() == 1);
}

/// So many requests an hour; `other` makes the file another.
pub fn limited(store: &str, rate: u64, other: &str) -> String {
    format!(
        "{store}\n[limits.{other}]\nrate = \"9/s\"\n\
         [limits.few]\nrate = \"{rate}/hour\"\nkey = \"global\"\non_store_failure = \"deny\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"few\"]\nrespond = {{}}\n"
    )
}

#[test]
fn listeners_come_change_and_go() {
    let (kept, gone, new) = (free_address(), free_address(), free_address());
    let config = |listeners: &[(SocketAddr, usize)], text: &str| {
        let listeners = listeners.iter().map(|(address, most)| {
            format!("[[listeners]]\naddress = \"{address}\"\nmax_connections = {most}\n")
        });
        listeners.collect::<String>() + &saying(text)
    };
    let mut proxy = Tidegate::start(&config(&[(kept, 10), (gone, 10)], "one"));
    let (mut idle, mut at_kept) = (Client::connect(gone), Client::connect(kept));
    assert_eq!((idle.get("/", &[]).text(), at_kept.get("/", &[]).text()), ("one", "one"));
    proxy.reload(&config(&[(new, 10), (kept, 2)], "two"));
    proxy.wait_log(&format!("listeners: {new} added; {kept} changed; {gone} removed"));
    idle.expect_close();
    eventually("nobody listens there", || TcpStream::connect_timeout(&gone, PATIENCE).is_err());
    assert_eq!((get(new, "/", &[]).text(), at_kept.get("/", &[]).text()), ("two", "two"));
    let mut second = Client::connect(kept);
    assert_eq!(second.get("/", &[]).text(), "two");
    // The bound is two connections now.
    Client::connect(kept).expect_close();
    // An address that can't be had leaves everything as it is.
    let taken = std::net::TcpListener::bind(free_address()).unwrap();
    let address = taken.local_addr().unwrap();
    proxy.write(&config(&[(address, 10)], "three"));
    proxy.signal("HUP");
    proxy.wait_log(&format!(
        "SIGHUP: can't listen on {address}: Address already in use (os error 98); serving"
    ));
    assert_eq!(second.get("/", &[]).text(), "two");
    assert_eq!(get(new, "/", &[]).text(), "two");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
}

/// What a first file says, and what it says when others are to reach it.
#[test]
fn one_address_and_all_addresses_follow_each_other_on_a_port() {
    let proxy = Tidegate::start(&saying("one"));
    let port = proxy.addr().port();
    let other = SocketAddr::from(([127, 0, 0, 2], port));
    assert!(TcpStream::connect(other).is_err());
    proxy.reload(&format!("listen = \"0.0.0.0:{port}\"\n{}", saying("all")));
    eventually("all reach it", || get(other, "/", &[]).text() == "all" && says(&proxy) == "all");
    proxy.reload(&format!("listen = \"127.0.0.1:{port}\"\n{}", saying("one")));
    eventually("it is for one again", || TcpStream::connect(other).is_err());
    assert_eq!(says(&proxy), "one");
}

#[test]
fn metrics_follow_the_file() {
    let two = format!("{ADMIN}{}[[routes]]\nname = \"gone\"\npath = \"/x\"\nrespond = {{}}\n", saying("a"));
    let proxy = Tidegate::start(&two);
    assert_eq!(says(&proxy), "a");
    let count =
        |route: &str| metric(&proxy, &format!("tidegate_requests_total{{route=\"{route}\",status=\"2xx\"}}"));
    assert_eq!((count("all").unwrap(), count("gone").unwrap()), ("1".to_owned(), "0".to_owned()));
    proxy.reload(&(ADMIN.to_owned() + &saying("b")));
    assert_eq!(says(&proxy), "b");
    assert_eq!((count("all").unwrap(), count("gone")), ("2".to_owned(), None));
}

#[test]
fn what_takes_a_restart_is_named() {
    let proxy = Tidegate::start(&saying("one"));
    proxy.reload(&format!("workers = 2\n{ADMIN}[store]\nmax_keys = 7\n{}", saying("two")));
    for what in ["the number of `workers`", "`listen` or `mode` of [admin]", "`max_keys` of [store]"] {
        let line = proxy.wait_log(what);
        assert!(line.contains("WARN") && line.contains("only after a restart"), "{line}");
    }
    assert_eq!(says(&proxy), "two");
}

#[test]
fn the_log_and_the_token_are_others_too() {
    let admin = |token: &str| format!("{ADMIN}token = \"{token}\"\n");
    let log = |level: &str, access: &str| format!("[log]\nlevel = \"{level}\"\naccess = \"{access}\"\n");
    let proxy =
        Tidegate::start(&format!("{}{}{}", admin("first-admin-token"), saying("one"), log("info", "off")));
    let ask =
        |token: &str| get(proxy.admin(), "/limits", &[&format!("Authorization: Bearer {token}")]).status();
    assert_eq!((ask("first-admin-token"), ask("second-admin-token")), (200, 401));
    says(&proxy);
    proxy.reload(&format!("{}{}{}", admin("second-admin-token"), saying("two"), log("debug", "text")));
    assert_eq!((ask("first-admin-token"), ask("second-admin-token")), (401, 200));
    says(&proxy);
    assert!(proxy.accesses(1)[0].contains(" GET localhost/ 200 "), "{:?}", proxy.accesses(1));
    Client::connect(proxy.addr()).send("nonsense\r\n\r\n");
    proxy.wait_log("connection ended: ");
}

#[test]
fn a_storm_of_signals_ends_with_the_last_file() {
    let proxy = Tidegate::start(&saying("0"));
    for round in 1..=50 {
        proxy.write(&saying(&round.to_string()));
        proxy.signal("HUP");
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    eventually("the last is served", || says(&proxy) == "50");
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn who_drains_reads_nothing_any_more() {
    let (more, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = waits.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
        }
    });
    let mut proxy =
        Tidegate::start(&format!("{ADMIN}[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is under way", || server.requests().len() == 1);
    proxy.signal("TERM");
    proxy.wait_log("draining");
    // Whoever balances the load is told, and until the end.
    let ready = get(proxy.admin(), "/ready", &[]);
    assert_eq!((ready.status(), ready.text().lines().next()), (503, Some("draining")));
    proxy.write(&saying("two"));
    proxy.signal("HUP");
    proxy.wait_log("SIGHUP: shutting down");
    more.send(()).unwrap();
    assert_eq!(client.read().text(), "late");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn the_supervisor_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).lines().next().unwrap_or_default().to_owned()
    };
    let proxy = Tidegate::builder(&saying("one")).env("NOTIFY_SOCKET", &path).start();
    assert_eq!(told(), "READY=1");
    proxy.reload(&saying("two"));
    assert_eq!([told(), told()], ["RELOADING=1", "READY=1"]);
    proxy.stop();
    assert_eq!(told(), "STOPPING=1");
}
