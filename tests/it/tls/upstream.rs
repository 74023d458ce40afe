//! TLS with upstream servers, which are proxies themselves.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::{Authority, Client, Tidegate, Upstream, eventually, get, patience};

/// An echo server with this certificate, and more in its `tls`.
fn server(authority: &Authority, file: &str, more: &str, echo: &Upstream) -> Tidegate {
    Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{{ {} }}]{more} }}\n\
         [client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        authority.pair(file),
        echo.url()
    ))
}

/// A proxy in front of a server at `host`, with this line in its upstream.
fn proxy_for(server: &Tidegate, host: &str, tls: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[upstreams.server]\nservers = [\"https://{host}:{}\"]\nconnect_timeout = \"5s\"\n{tls}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"server\"\n",
        server.addr().port()
    ))
}

/// A server with TLS that runs `script` for each connection, which has this number, and then closes it. Returns its port.
pub fn scripted(
    authority: &Authority,
    script: impl Fn(usize, StreamOwned<ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> u16 {
    let key = PrivateKeyDer::from_pem_file(authority.file("localhost.key")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(config.with_single_cert(vec![authority.certificate("localhost")], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            stream.set_read_timeout(Some(patience())).unwrap();
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let script = Arc::clone(&script);
            std::thread::spawn(move || script(number, StreamOwned::new(session, stream)));
        }
    });
    port
}

fn trust(authority: &Authority, more: &str) -> String {
    format!("tls = {{ ca = \"{}\"{more} }}", authority.file("ca.pem").display())
}

#[test]
fn server_certificates_are_verified_by_authority_and_name() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign_names("server", &["localhost", "api.internal"]);
    let echo = Upstream::echo();
    let server = server(&authority, "server", "", &echo);
    for (host, tls) in [
        ("localhost", trust(&authority, "")),
        ("127.0.0.1", trust(&authority, ", server_name = \"api.internal\"")),
    ] {
        let proxy = proxy_for(&server, host, &tls);
        let mut client = Client::connect(proxy.addr());
        for _ in 0..3 {
            let seen = client.get("/a?b", &["Host: shop.test"]).echoed();
            assert_eq!(seen.header("host"), Some("shop.test"));
            assert_eq!(seen.header("x-forwarded-proto"), Some("http"), "the client's own");
        }
    }
    let (name, ca) = ("; name one of the names of its certificate", "; name the authority that has signed");
    for (host, tls, why, cure) in [
        ("127.0.0.1", trust(&authority, ""), "not valid for name", name),
        ("localhost", trust(&authority, ", server_name = \"b.internal\""), "not valid for name", name),
        ("localhost", trust(&other, ""), "is not trusted", ca),
        ("localhost", String::new(), "is not trusted", ca),
    ] {
        let proxy = proxy_for(&server, host, &tls);
        for _ in 0..3 {
            assert_eq!(get(proxy.addr(), "/", &[]).status(), 502, "{host} {tls}");
        }
        let line = proxy.wait_log("the TLS handshake with ");
        assert!(line.contains("WARN") && line.contains(host) && line.contains(why), "{line}");
        assert!(line.contains(cure), "{line}");
        // Logged once, not for each request.
        assert_eq!(
            proxy.lines().iter().filter(|line| line.contains("the TLS handshake")).count(),
            1,
            "{host} {tls}"
        );
    }
}

/// A certificate for `localhost` that is signed by its own key: `FILE.pem` and `FILE.key`.
fn sign_itself(authority: &Authority, file: &str, is_ca: IsCa) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(authority.file(&format!("{file}.pem")), certificate.pem()).unwrap();
    std::fs::write(authority.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
}

#[test]
fn a_self_signed_certificate_is_trusted_if_it_is_the_ca() {
    let files = Authority::new();
    sign_itself(&files, "server", IsCa::ExplicitNoCa);
    sign_itself(&files, "as-ca", IsCa::Ca(BasicConstraints::Unconstrained));
    let echo = Upstream::echo();
    let trust = |file: &str| format!("tls = {{ ca = \"{}\" }}", files.file(&format!("{file}.pem")).display());
    let plain = server(&files, "server", "", &echo);
    let proxy = proxy_for(&plain, "localhost", &trust("server"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let proxy = proxy_for(&plain, "localhost", "");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    proxy.wait_log("or a self-signed certificate itself: tls = { ca = \"internal.pem\" }");
    let as_ca = server(&files, "as-ca", "", &echo);
    let proxy = proxy_for(&as_ca, "localhost", &trust("as-ca"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    proxy.wait_log("create it with the extension basicConstraints=CA:FALSE");
}

#[test]
fn a_url_with_the_wrong_scheme_is_named_as_the_reason() {
    let authority = Authority::new();
    authority.sign("localhost");
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in plain.incoming().map_while(Result::ok) {
            // As servers for HTTP respond to what they can't parse.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let proxy =
        Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"https://localhost:{port}\"\n"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    let line = proxy.wait_log("the TLS handshake with localhost:");
    assert!(line.contains("; it does not speak TLS, so its URL begins with http://"), "{line}");
    // A server that answers plain HTTP with an alert of TLS.
    let port = scripted(&authority, |_, mut stream| drop(stream.flush()));
    let proxy =
        Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"http://localhost:{port}\"\n"));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    proxy.wait_log("if it expects TLS, its URL must begin with https://");
}

#[test]
fn a_missing_client_certificate_is_named_as_the_reason() {
    let authority = Authority::new();
    authority.sign("localhost");
    let echo = Upstream::echo();
    let client_ca = format!(", client_ca = \"{}\"", authority.file("ca.pem").display());
    let strict = server(&authority, "localhost", &client_ca, &echo);
    let proxy = proxy_for(&strict, "localhost", &trust(&authority, ""));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    proxy.wait_log("; it wants a client certificate that it trusts: tls = { cert = \"client.pem\"");
}

#[test]
fn system_roots_are_used_without_a_configured_ca() {
    let authority = Authority::new();
    authority.sign_names("server", &["localhost", "127.0.0.1"]);
    let echo = Upstream::echo();
    let server = server(&authority, "server", "", &echo);
    let ca = authority.file("ca.pem").display().to_string();
    for host in ["localhost", "127.0.0.1"] {
        let config = format!(
            "[[routes]]\npath = \"/*\"\nupstream = \"https://{host}:{}\"\nrewrite = {{ host = \"upstream\" }}\n",
            server.addr().port()
        );
        let proxy = Tidegate::builder(&config).env("SSL_CERT_FILE", &ca).start();
        let seen = get(proxy.addr(), "/", &[]).echoed();
        assert_eq!(seen.header("host"), Some(&*format!("{host}:{}", server.addr().port())));
    }
}

#[test]
fn health_checks_use_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("localhost");
    let echo = Upstream::echo();
    let server = server(&authority, "localhost", "", &echo);
    let health = |path: &str| {
        format!(
            "health = {{ path = \"{path}\", interval = \"50ms\", timeout = \"5s\", unhealthy_after = 1 }}\n"
        )
    };
    let proxy = proxy_for(&server, "localhost", &(health("/fine") + &trust(&authority, "")));
    eventually("the server is checked", || !echo.requests().is_empty());
    let asked = &echo.requests()[0];
    assert_eq!(asked.start, "GET /fine HTTP/1.1");
    assert_eq!(asked.header("x-forwarded-proto"), Some("https"));
    assert_eq!(asked.header("host"), Some(&*format!("localhost:{}", server.addr().port())));
    assert_eq!(proxy.logged("is unhealthy"), 0);
    // A server whose certificate is not trusted is unhealthy.
    let proxy = proxy_for(&server, "localhost", &(health("/other") + &trust(&other, "")));
    proxy.wait_log("is unhealthy: no connection");
    assert!(echo.requests().iter().all(|request| request.start == "GET /fine HTTP/1.1"));
}

#[test]
fn a_server_may_require_a_client_certificate() {
    let authority = Authority::new();
    authority.sign("localhost");
    authority.sign_client("gate");
    let echo = Upstream::echo();
    let client_ca = format!(", client_ca = \"{}\"", authority.file("ca.pem").display());
    let server = server(&authority, "localhost", &client_ca, &echo);
    let shown = proxy_for(&server, "localhost", &trust(&authority, &format!(", {}", authority.pair("gate"))));
    assert_eq!(get(shown.addr(), "/", &[]).status(), 200);
    let none = proxy_for(&server, "localhost", &trust(&authority, ""));
    assert_eq!(get(none.addr(), "/", &[]).status(), 502);
}

#[test]
fn one_upstream_may_have_servers_with_and_without_tls() {
    let authority = Authority::new();
    authority.sign("localhost");
    let (echo, plain) = (Upstream::echo(), Upstream::echo());
    let server = server(&authority, "localhost", "", &echo);
    let proxy = Tidegate::start(&format!(
        "[upstreams.both]\nservers = [\"https://localhost:{}\", \"{}\"]\nconnect_timeout = \"5s\"\n{}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"both\"\n",
        server.addr().port(),
        plain.url(),
        trust(&authority, "")
    ));
    let mut client = Client::connect(proxy.addr());
    for _ in 0..4 {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    assert_eq!((echo.requests().len(), plain.requests().len()), (2, 2));
}

#[test]
fn connections_that_a_server_closes_are_replaced() {
    let authority = Authority::new();
    authority.sign("localhost");
    let echo = Upstream::echo();
    let server = Tidegate::start(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nidle_timeout = \"50ms\"\n{}\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        authority.listener("localhost"),
        echo.url()
    ));
    let [tls, plain] = server.addresses(2)[..] else { unreachable!() };
    let closed = format!("tidegate_connections{{listener=\"{tls}\"}} 0\n");
    let proxy = proxy_for(&server, "localhost", &trust(&authority, ""));
    let mut client = Client::connect(proxy.addr());
    for _ in 0..3 {
        let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(client.ask(request).echoed().body, b"hi");
        eventually("the server closes the idle connection", || {
            get(server.admin(), "/metrics", &[]).text().contains(&closed)
        });
        // Its worker serves other connections only after it has closed this one.
        assert_eq!(get(plain, "/%00", &[]).status(), 400);
    }
}

/// A body without a length ends with its connection, and only `close_notify` shows that it is complete.
#[test]
fn a_body_that_ends_without_close_notify_is_truncated() {
    let authority = Authority::new();
    authority.sign("localhost");
    let port = scripted(&authority, |number, mut stream| {
        let mut head = [0; 1024];
        // One read returns the whole of such a short request.
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
        if number == 0 {
            stream.conn.send_close_notify();
        }
        let _ = stream.flush();
    });
    let proxy = Tidegate::start(&format!(
        "[upstreams.server]\nservers = [\"https://localhost:{port}\"]\nconnect_timeout = \"5s\"\n{}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"server\"\n",
        trust(&authority, "")
    ));
    let asked = || {
        let mut client = Client::connect(proxy.addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.read_response("GET").map(|response| response.body)
    };
    assert_eq!(asked().unwrap(), b"hello");
    assert!(asked().is_err(), "the last chunk is missing");
}

#[test]
fn authorities_are_reloaded_on_sighup() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.sign("localhost");
    let echo = Upstream::echo();
    let server = server(&authority, "localhost", "", &echo);
    let proxy = proxy_for(&server, "localhost", &trust(&other, ""));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    std::fs::copy(authority.file("ca.pem"), other.file("ca.pem")).unwrap();
    proxy.signal("HUP");
    eventually("the server is trusted", || get(proxy.addr(), "/", &[]).status() == 200);
}

#[test]
fn waiting_for_a_permit_does_not_count_towards_connect_timeout() {
    let authority = Authority::new();
    authority.sign("localhost");
    let ((report, received), (release, released)) = (channel(), channel());
    let (report, released) = (Mutex::new(report), Mutex::new(released));
    let port = scripted(&authority, move |_, mut stream| {
        // Real time is tested: the handshake takes more than half of the connect timeout.
        std::thread::sleep(Duration::from_millis(1700));
        let mut head = [0; 1024];
        let _ = stream.read(&mut head);
        report.lock().unwrap().send(()).unwrap();
        let _ = released.lock().unwrap().recv();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let proxy = Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams.server]\nservers = [\"https://localhost:{port}\"]\nmax_connections = 1\n\
         connect_timeout = \"3s\"\npending_timeout = \"3s\"\n{}\n[[routes]]\npath = \"/*\"\nupstream = \"server\"\n",
        trust(&authority, "")
    ));
    let begin = || {
        let mut client = Client::connect(proxy.addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut first = begin();
    received.recv_timeout(patience()).unwrap();
    let mut second = begin();
    eventually("the second request waits", || {
        get(proxy.admin(), "/metrics", &[])
            .text()
            .contains("upstream_pending_requests{upstream=\"server\"} 1")
    });
    // Real time is tested: most of the pending timeout.
    std::thread::sleep(Duration::from_millis(1700));
    release.send(()).unwrap();
    assert_eq!(first.read().text(), "hello");
    release.send(()).unwrap();
    let response = second.read();
    assert_eq!((response.status(), response.text()), (200, "hello"));
}
