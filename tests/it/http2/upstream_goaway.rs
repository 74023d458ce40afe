//! Servers that say goodbye over connections that still have requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::Response;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, broadcast, mpsc};

use super::*;

/// A server that takes two requests at once on a connection, and answers with what was asked for: `/free` when it is
/// let go, and `/held` never. When told, it says goodbye over all connections at once.
struct Leaving {
    url: String,
    asked: mpsc::UnboundedReceiver<String>,
    connections: Arc<AtomicUsize>,
    goodbye: broadcast::Sender<()>,
    let_go: Arc<Notify>,
    _runtime: Runtime,
}

impl Leaving {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (goodbye, _) = broadcast::channel(1);
        let (tell, asked) = mpsc::unbounded_channel();
        let (connections, let_go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, leaving, going) = (Arc::clone(&connections), goodbye.clone(), Arc::clone(&let_go));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, tell.clone(), leaving.subscribe(), Arc::clone(&going)));
            }
        });
        Self { url, asked, connections, goodbye, let_go, _runtime: runtime }
    }
}

async fn serve(
    stream: TcpStream,
    tell: mpsc::UnboundedSender<String>,
    mut leaves: broadcast::Receiver<()>,
    let_go: Arc<Notify>,
) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(2);
    let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
    loop {
        tokio::select! {
            Some(Ok((request, mut respond))) = connection.accept() => {
                let (method, uri) = (request.method().clone(), request.uri().clone());
                tell.send(uri.path().to_owned()).unwrap();
                let let_go = Arc::clone(&let_go);
                tokio::spawn(async move {
                    match uri.path() {
                        "/held" => std::future::pending().await,
                        "/free" => let_go.notified().await,
                        _ => {}
                    }
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    let _ = body.send_data(format!("{method} {uri}").into(), true);
                });
            }
            Ok(()) = leaves.recv() => connection.graceful_shutdown(),
            else => return,
        }
    }
}

#[test]
fn a_request_that_finds_connections_that_end_stays_what_it_is_and_gets_another() {
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
        assert_eq!(server.asked.blocking_recv().as_deref(), Some(path));
        client
    };
    assert_eq!(ask("/").read().status(), 200);
    // Two connections, each with one request in flight and room for another one.
    let (_one, mut free, _two) = (ask("/held"), ask("/free"), ask("/held"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    server.let_go.notify_one();
    assert_eq!(free.read().text(), "GET http://a/free");
    server.goodbye.send(()).unwrap();
    // As soon as the proxy has heard of it no more goes over them.
    let begun = Instant::now();
    while server.connections.load(Ordering::SeqCst) == 2 {
        assert!(begun.elapsed() < PATIENCE);
        let request = "POST /a/b?c=d HTTP/1.1\r\nHost: name:1\r\nContent-Length: 4\r\n\r\nbody";
        let answer = Client::connect(proxy.addr()).ask(request);
        assert_eq!((answer.status(), answer.text()), (200, "POST http://name:1/a/b?c=d"));
    }
}
