//! A service of axum with the limits of a file.
//!
//!     cargo run --example axum
//!     for i in 1 2 3 4 5 6; do curl -si http://127.0.0.1:3000/users | grep -iE '^HTTP|^retry|^x-rate'; done

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tidegate::limits::{Client, Limiter, RateLimitLayer};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "examples/limits.toml".to_owned());
    let limiter = Limiter::from_file(file)?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, &limiter).await?;
    Ok(())
}

/// Serves the routes, which the layer limits, and the metrics of the limits, which it does not.
///
/// # Errors
/// Those of the listener.
pub async fn serve(listener: TcpListener, limiter: &Limiter) -> io::Result<()> {
    let limits = RateLimitLayer::new(limiter.clone()).client_from(|extensions| {
        extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| Client::from(*peer))
    });
    let limiter = limiter.clone();
    let app = Router::new()
        .route("/users", get(async || "[\"ada\"]\n"))
        .route("/sign-in", post(async |body: String| sign_in(&body)))
        .layer(limits)
        .route("/metrics", get(async move || limiter.metrics()));
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}

/// Limits with `charge_on` count the status that this returns.
fn sign_in(password: &str) -> (StatusCode, &'static str) {
    if password == "correct horse" {
        (StatusCode::OK, "signed in\n")
    } else {
        (StatusCode::UNAUTHORIZED, "wrong password\n")
    }
}
