//! A service of hyper with the limits of a file.
//!
//!     cargo run --example hyper
//!     for i in 1 2 3 4 5 6; do curl -si http://127.0.0.1:3000/users | grep -iE '^HTTP|^retry|^x-rate'; done

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tidegate::limits::{Limiter, RateLimitLayer};
use tokio::net::TcpListener;
use tower_layer::Layer as _;
use tower_service::Service;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "examples/limits.toml".to_owned());
    let limits = RateLimitLayer::new(Limiter::from_file(file)?);
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, limits).await?;
    Ok(())
}

/// The program's own service.
#[derive(Clone)]
struct Hello;

impl Service<Request<Incoming>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        ready(Ok(Response::new(Full::from(format!("hello from {}\n", request.uri().path())))))
    }
}

/// Serves connections. Each request gets the address of its peer, which the layer reads.
///
/// # Errors
/// Those of the listener.
pub async fn serve(listener: TcpListener, limits: RateLimitLayer) -> io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let limited = limits.layer(Hello);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert::<SocketAddr>(peer);
            limited.clone().call(request)
        });
        tokio::spawn(async move {
            if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
