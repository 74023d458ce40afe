//! Servers that send GOAWAY over connections with open requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::Response;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, broadcast, mpsc};

use super::*;
use crate::support::patience;

/// A server that allows two concurrent streams. It responds with the method and the URI: to `/free` when `release` is
/// notified, and to `/held` never. On a message to `goaway` it sends GOAWAY over all connections.
struct Leaving {
    url: String,
    received: mpsc::UnboundedReceiver<String>,
    connections: Arc<AtomicUsize>,
    goaway: broadcast::Sender<()>,
    release: Arc<Notify>,
    _runtime: Runtime,
}

impl Leaving {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (goaway, _) = broadcast::channel(1);
        let (report, received) = mpsc::unbounded_channel();
        let (connections, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, leaving, released) = (Arc::clone(&connections), goaway.clone(), Arc::clone(&release));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, report.clone(), leaving.subscribe(), Arc::clone(&released)));
            }
        });
        Self { url, received, connections, goaway, release, _runtime: runtime }
    }
}

async fn serve(
    stream: TcpStream,
    report: mpsc::UnboundedSender<String>,
    mut goaway: broadcast::Receiver<()>,
    release: Arc<Notify>,
) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(2);
    let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
    loop {
        tokio::select! {
            Some(Ok((request, mut respond))) = connection.accept() => {
                let (method, uri) = (request.method().clone(), request.uri().clone());
                report.send(uri.path().to_owned()).unwrap();
                let release = Arc::clone(&release);
                tokio::spawn(async move {
                    match uri.path() {
                        "/held" => std::future::pending().await,
                        "/free" => release.notified().await,
                        _ => {}
                    }
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    let _ = body.send_data(format!("{method} {uri}").into(), true);
                });
            }
            Ok(()) = goaway.recv() => connection.graceful_shutdown(),
            else => return,
        }
    }
}

#[test]
fn requests_move_unchanged_to_a_new_connection_after_goaway() {
    let mut server = Leaving::start();
    let proxy = Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\nretries = 0\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url
    ));
    let mut ask = |path: &str| {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(server.received.blocking_recv().as_deref(), Some(path));
        client
    };
    assert_eq!(ask("/").read().status(), 200);
    // Two connections, each with one request in flight and room for another one.
    let (_one, mut free, _two) = (ask("/held"), ask("/free"), ask("/held"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    server.release.notify_one();
    assert_eq!(free.read().text(), "GET http://a/free");
    server.goaway.send(()).unwrap();
    // Until the proxy has read GOAWAY, and opens a new connection.
    let begun = Instant::now();
    while server.connections.load(Ordering::SeqCst) == 2 {
        assert!(begun.elapsed() < patience());
        let request = "POST /a/b?c=d HTTP/1.1\r\nHost: name:1\r\nContent-Length: 4\r\n\r\nbody";
        let response = Client::connect(proxy.addr()).ask(request);
        assert_eq!((response.status(), response.text()), (200, "POST http://name:1/a/b?c=d"));
    }
}
