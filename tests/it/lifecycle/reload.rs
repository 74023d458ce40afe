//! Reloads of the configuration.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::{fs, thread};

use super::drain::{slow, unanswered};
use crate::support::{Client, Tidegate, Upstream, eventually, free_address, get, patience};

/// A configuration whose only route responds with this text.
pub fn responding(text: &str) -> String {
    format!("[[routes]]\nname = \"all\"\npath = \"/*\"\nrespond = {{ body = \"{text}\" }}\n")
}

pub fn response(proxy: &Tidegate) -> String {
    get(proxy.addr(), "/", &[]).text().to_owned()
}

pub const ADMIN: &str = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

pub fn metric(proxy: &Tidegate, name: &str) -> Option<String> {
    let response = get(proxy.admin(), "/metrics", &[]);
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
    response.text().lines().find_map(value)
}

#[test]
fn sighup_reloads_the_file_and_logs_the_changes() {
    let proxy = Tidegate::start(&responding("one"));
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).text(), "one");
    proxy.reload(&format!(
        "default_limits = [\"wide\"]\n[limits.wide]\nrate = \"100/s\"\n{}\
         [[routes]]\nname = \"later\"\npath = \"/later\"\nrespond = {{}}\n",
        responding("two")
    ));
    assert_eq!(client.get("/", &[]).text(), "two");
    assert_eq!(response(&proxy), "two");
    proxy.wait_log("routes: `later` added; `all` changed");
    proxy.wait_log("limits: `wide` added");
    proxy.wait_log("keys: `default_limits` added");
    proxy.reload(&responding("two"));
    proxy.wait_log("routes: `later` removed");
    assert_eq!(client.get("/", &[]).header("x-ratelimit-limit"), None);
    proxy.reload(&responding("two"));
    proxy.wait_log("was reloaded, without changes");
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn an_invalid_file_is_reported_and_not_applied() {
    let proxy = Tidegate::start(&(ADMIN.to_owned() + &responding("one")));
    proxy.write(
        &(ADMIN.to_owned() + &responding("two").replace("respond", "respnod") + "upstream = \"unknown\"\n"),
    );
    proxy.signal("HUP");
    let line = proxy.wait_log("serving the previous configuration");
    assert!(line.contains("ERROR SIGHUP: ") && line.contains("tidegate.toml has 2 problems"), "{line}");
    proxy.wait_log("error: unknown key `respnod` in route 1");
    proxy.wait_log("= help: did you mean `respond`?");
    assert_eq!(response(&proxy), "one");
    assert_eq!(metric(&proxy, "tidegate_config_last_reload_successful").unwrap(), "0");
    assert_eq!(metric(&proxy, "tidegate_config_reloads_total{outcome=\"rejected\"}").unwrap(), "1");
    let ready = get(proxy.admin(), "/ready", &[]);
    assert_eq!(ready.status(), 200);
    assert!(ready.text().contains("config: the last reload failed"), "{}", ready.text());
    fs::remove_file(proxy.directory().join("tidegate.toml")).unwrap();
    proxy.signal("HUP");
    eventually("the missing file is reported", || proxy.logged("serving the previous configuration") == 2);
    assert_eq!(response(&proxy), "one");
    proxy.reload(&(ADMIN.to_owned() + &responding("three")));
    assert_eq!(response(&proxy), "three");
    assert_eq!(metric(&proxy, "tidegate_config_last_reload_successful").unwrap(), "1");
    assert_eq!(metric(&proxy, "tidegate_config_reloads_total{outcome=\"applied\"}").unwrap(), "1");
    assert!(!get(proxy.admin(), "/ready", &[]).text().contains("config"));
}

#[test]
fn repeated_reloads_lose_no_request() {
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
            // Requests are served with every configuration.
            eventually("a request is answered", || answered.load(Ordering::Relaxed) > before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn open_uploads_survive_a_reload() {
    let server = Upstream::scripted(|caller| {
        let Ok(Some(head)) = caller.read_head() else { return };
        if head.start.starts_with("POST") {
            // Chunked, since a short body with a length is buffered before it is forwarded.
            let body = caller.take(b"4\r\nhalf\r\n4\r\nmore\r\n0\r\n\r\n".len()).unwrap();
            assert_eq!(body, b"4\r\nhalf\r\n4\r\nmore\r\n0\r\n\r\n");
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalfmore");
        } else {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            // The rest when the test releases it.
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
    eventually("the server has both requests", || server.connections() == 2);
    for round in 0..3 {
        proxy.reload(&responding(&format!("round {round}")));
    }
    assert_eq!(response(&proxy), "round 2");
    for client in [&mut upload, &mut download] {
        client.send("4\r\nmore\r\n0\r\n\r\n");
        assert_eq!(client.read().text(), "halfmore");
        // The next request on the same connection is served with the new configuration.
        assert_eq!(client.get("/", &[]).text(), "round 2");
    }
}

#[test]
fn a_started_response_survives_a_reload() {
    let (more, waits) = channel::<()>();
    let waits = Mutex::new(waits);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            let _ = waits.lock().unwrap().recv_timeout(patience());
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
    // The upstream is unchanged, so its connection is reused.
    more.send(()).unwrap();
    assert_eq!(client.get("/", &[]).text(), "halfmore");
    assert_eq!(server.connections(), 1);
}

#[test]
fn upstream_connections_of_the_old_file_close_with_their_requests() {
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
    // The idle connection is closed at once.
    proxy.reload(&forwarding("retries = 0"));
    eventually("the idle connection is closed", || server.open() == 2);
    drop(short);
    eventually("only the connection of the open response remains", || server.open() == 1);
}

/// A limit of `rate` requests an hour; the name `other` makes the configuration differ.
pub fn limited(store: &str, rate: u64, other: &str) -> String {
    format!(
        "{store}\n[limits.{other}]\nrate = \"9/s\"\n\
         [limits.few]\nrate = \"{rate}/hour\"\nkey = \"global\"\non_store_failure = \"deny\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"few\"]\nrespond = {{}}\n"
    )
}

#[test]
fn a_reload_adds_changes_and_removes_listeners() {
    let (kept, gone, new) = (free_address(), free_address(), free_address());
    let config = |listeners: &[(SocketAddr, usize)], text: &str| {
        let listeners = listeners.iter().map(|(address, most)| {
            format!("[[listeners]]\naddress = \"{address}\"\nmax_connections = {most}\n")
        });
        listeners.collect::<String>() + &responding(text)
    };
    let mut proxy = Tidegate::start(&config(&[(kept, 10), (gone, 10)], "one"));
    let (mut idle, mut at_kept) = (Client::connect(gone), Client::connect(kept));
    assert_eq!((idle.get("/", &[]).text(), at_kept.get("/", &[]).text()), ("one", "one"));
    proxy.reload(&config(&[(new, 10), (kept, 2)], "two"));
    proxy.wait_log(&format!("listeners: {new} added; {kept} changed; {gone} removed"));
    idle.expect_close();
    eventually("the listener is closed", || TcpStream::connect_timeout(&gone, patience()).is_err());
    assert_eq!((get(new, "/", &[]).text(), at_kept.get("/", &[]).text()), ("two", "two"));
    let mut second = Client::connect(kept);
    assert_eq!(second.get("/", &[]).text(), "two");
    // The limit is two connections now.
    Client::connect(kept).expect_close();
    // If a new address is in use, nothing changes.
    let taken = std::net::TcpListener::bind(free_address()).unwrap();
    let address = taken.local_addr().unwrap();
    proxy.write(&config(&[(address, 10)], "three"));
    proxy.signal("HUP");
    let line = proxy.wait_log(&format!(
        "SIGHUP: can't listen on {address}: Address already in use (os error 98); serving"
    ));
    assert!(line.contains("; ss -ltnp 'sport = :"), "{line}");
    assert_eq!(second.get("/", &[]).text(), "two");
    assert_eq!(get(new, "/", &[]).text(), "two");
    proxy.signal("TERM");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_listener_can_change_between_one_address_and_all() {
    let proxy = Tidegate::start(&responding("one"));
    let port = proxy.addr().port();
    let other = SocketAddr::from(([127, 0, 0, 2], port));
    assert!(TcpStream::connect(other).is_err());
    proxy.reload(&format!("listen = \"0.0.0.0:{port}\"\n{}", responding("all")));
    eventually("all addresses are served", || {
        get(other, "/", &[]).text() == "all" && response(&proxy) == "all"
    });
    proxy.reload(&format!("listen = \"127.0.0.1:{port}\"\n{}", responding("one")));
    eventually("the other address is closed", || TcpStream::connect(other).is_err());
    assert_eq!(response(&proxy), "one");
}

#[test]
fn metrics_follow_the_configuration() {
    let two =
        format!("{ADMIN}{}[[routes]]\nname = \"gone\"\npath = \"/x\"\nrespond = {{}}\n", responding("a"));
    let proxy = Tidegate::start(&two);
    assert_eq!(response(&proxy), "a");
    let count =
        |route: &str| metric(&proxy, &format!("tidegate_requests_total{{route=\"{route}\",status=\"2xx\"}}"));
    assert_eq!((count("all").unwrap(), count("gone").unwrap()), ("1".to_owned(), "0".to_owned()));
    proxy.reload(&(ADMIN.to_owned() + &responding("b")));
    assert_eq!(response(&proxy), "b");
    assert_eq!((count("all").unwrap(), count("gone")), ("2".to_owned(), None));
}

#[test]
fn changes_that_need_a_restart_are_logged() {
    let proxy = Tidegate::start(&responding("one"));
    proxy.reload(&format!("workers = 2\n{ADMIN}[store]\nmax_keys = 7\n{}", responding("two")));
    for what in ["the number of `workers`", "`max_keys` of [store]"] {
        let line = proxy.wait_log(what);
        assert!(line.contains("WARN") && line.contains("only after a restart"), "{what}: {line}");
    }
    assert_eq!(response(&proxy), "two");
}

#[test]
fn a_reload_changes_the_log_and_the_admin_token() {
    let admin = |token: &str| format!("{ADMIN}token = \"{token}\"\n");
    let log = |level: &str, access: &str| format!("[log]\nlevel = \"{level}\"\naccess = \"{access}\"\n");
    let proxy = Tidegate::start(&format!(
        "{}{}{}",
        admin("first-admin-token"),
        responding("one"),
        log("info", "off")
    ));
    let ask =
        |token: &str| get(proxy.admin(), "/v1/limits", &[&format!("Authorization: Bearer {token}")]).status();
    assert_eq!((ask("first-admin-token"), ask("second-admin-token")), (200, 401));
    response(&proxy);
    proxy.reload(&format!("{}{}{}", admin("second-admin-token"), responding("two"), log("debug", "text")));
    assert_eq!((ask("first-admin-token"), ask("second-admin-token")), (401, 200));
    response(&proxy);
    assert!(proxy.accesses(1)[0].contains(" \"GET localhost/\" 200 "), "{:?}", proxy.accesses(1));
    Client::connect(proxy.addr()).send("nonsense\r\n\r\n");
    proxy.wait_log("connection ended: ");
}

#[test]
fn many_sighups_apply_the_last_file() {
    let proxy = Tidegate::start(&responding("0"));
    for round in 1..=50 {
        proxy.write(&responding(&round.to_string()));
        proxy.signal("HUP");
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    eventually("the last configuration is served", || response(&proxy) == "50");
    assert_eq!(proxy.stop().code(), Some(0));
}

#[test]
fn a_draining_process_does_not_reload() {
    let (server, release) = slow();
    let mut proxy =
        Tidegate::start(&format!("{ADMIN}[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
    let mut client = unanswered(&proxy, &server);
    proxy.signal("TERM");
    proxy.wait_log("draining");
    // Readiness fails until the process exits.
    let ready = get(proxy.admin(), "/ready", &[]);
    assert_eq!((ready.status(), ready.text().lines().next()), (503, Some("draining")));
    proxy.write(&responding("two"));
    proxy.signal("HUP");
    proxy.wait_log("SIGHUP: shutting down");
    release.send(()).unwrap();
    assert_eq!(client.read().text(), "late");
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn the_supervisor_is_notified() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(patience())).unwrap();
    let notification = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).lines().next().unwrap_or_default().to_owned()
    };
    let proxy = Tidegate::builder(&responding("one")).env("NOTIFY_SOCKET", &path).start();
    assert_eq!(notification(), "READY=1");
    proxy.reload(&responding("two"));
    assert_eq!([notification(), notification()], ["RELOADING=1", "READY=1"]);
    proxy.stop();
    assert_eq!(notification(), "STOPPING=1");
}
