//! The limits as a layer of tower, for services of axum, hyper and tonic.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Request, Response, StatusCode};
use hyper::body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::body::LimitedBody;
use super::client::Client;
use super::decision::{Allowed, Decision};
use super::limiter::Limiter;

/// Finds the peer of a request in its extensions.
type FindClient = Arc<dyn Fn(&Extensions) -> Option<Client> + Send + Sync>;

/// Applies limits to a service. It needs the peer of each request: a [`Client`] or a [`SocketAddr`] in its extensions, or what
/// [`RateLimitLayer::client_from`] finds there. A request without one gets 500, and an error is logged.
///
/// A request carries the headers of soft limits to the service. A response shows the limits in its headers. It settles `charge_on`
/// by its status, and the limits whose cost is in one of its headers. Other costs of responses, and those of gRPC calls whose status
/// is in the trailers, are unknown to the layer: what was reserved stays charged. Slots in concurrency limits are released when its
/// body has ended.
#[derive(Clone)]
pub struct RateLimitLayer {
    limiter: Limiter,
    find_client: FindClient,
}

impl RateLimitLayer {
    /// A layer with these limits.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        let find_client = |extensions: &Extensions| {
            let address = || extensions.get::<SocketAddr>().map(|address| Client::from(*address));
            extensions.get::<Client>().cloned().or_else(address)
        };
        Self { limiter, find_client: Arc::new(find_client) }
    }

    /// This layer, which finds the peer of a request with this function. For axum:
    ///
    /// ```
    /// # use std::net::SocketAddr;
    /// use axum::extract::ConnectInfo;
    /// use tidegate::limits::{Client, RateLimitLayer};
    ///
    /// # let limiter = tidegate::limits::Limiter::from_toml("")?;
    /// let layer = RateLimitLayer::new(limiter)
    ///     .client_from(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| Client::from(peer.0)));
    /// # Ok::<(), tidegate::limits::Error>(())
    /// ```
    #[must_use]
    pub fn client_from(self, find: impl Fn(&Extensions) -> Option<Client> + Send + Sync + 'static) -> Self {
        Self { find_client: Arc::new(find), ..self }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, layer: self.clone() }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").finish_non_exhaustive()
    }
}

/// A service to which [`RateLimitLayer`] applies limits.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    layer: RateLimitLayer,
}

impl<S, Q, R> Service<Request<Q>> for RateLimit<S>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    Q: Send + 'static,
    R: Body<Data = Bytes> + Send,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let clone = self.inner.clone();
        // The one that was polled is ready.
        let inner = std::mem::replace(&mut self.inner, clone);
        let Some(client) = (self.layer.find_client)(request.extensions()) else {
            tracing::error!("a request has no client address in its extensions: its limits can't be checked");
            return Box::pin(async { Ok(without_client()) });
        };
        let decision = self.layer.limiter.check(&request, client);
        Box::pin(async move {
            match decision.await {
                Decision::Allowed(allowed) => serve(inner, request, allowed).await,
                Decision::Denied(denied) => Ok(denied.into_response::<Bytes>().map(LimitedBody::local)),
            }
        })
    }
}

/// Serves a request that its limits allow.
async fn serve<S, Q, R>(
    mut inner: S,
    mut request: Request<Q>,
    mut allowed: Allowed,
) -> Result<Response<LimitedBody<R>>, S::Error>
where
    S: Service<Request<Q>, Response = Response<R>>,
{
    if allowed.delay() > Duration::ZERO {
        tokio::time::sleep(allowed.delay()).await;
    }
    allowed.write_request_headers(request.headers_mut());
    let (mut head, body) = inner.call(request).await?.into_parts();
    let settles = match allowed.facts.final_status(head.status, &head.headers) {
        Some(status) => {
            // A status from 100 to 999, as those of `grpc-status` are.
            allowed.settle(StatusCode::from_u16(status).unwrap_or(head.status)).await;
            false
        }
        None => true,
    };
    allowed.settle_header_costs(&mut head.headers, settles);
    allowed.write_headers(&mut head.headers);
    Ok(Response::from_parts(head, LimitedBody::limited(body, allowed.hold, settles)))
}

/// The response to a request of an unknown client.
fn without_client<R>() -> Response<LimitedBody<R>> {
    let mut response = Response::new(LimitedBody::local(Bytes::from_static(
        b"the address of the client is unknown, so its limits can't be checked\n",
    )));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
