//! `grpc.health.v1.Health`: whether this process serves.

use bytes::Bytes;
use futures_util::stream;
use hyper::body::Frame;
use tokio::sync::watch;
use tokio::time::Instant;

use super::grpc::{self, GrpcCode, GrpcError};
use super::messages::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use crate::proxy::{Proxy, ServiceReply};

/// The services that have a status: the whole server, and the rate-limit service.
const SERVICES: [&str; 2] = ["", "envoy.service.ratelimit.v3.RateLimitService"];

/// The status of a service.
pub(super) fn check(proxy: &Proxy, request: &HealthCheckRequest) -> ServiceReply {
    let status = status(&request.service, proxy.is_ready());
    grpc::reply(&HealthCheckResponse { status: status.into() })
}

/// A call of `Watch`.
struct Watch {
    service: String,
    readiness: watch::Receiver<bool>,
    drain: Option<watch::Receiver<bool>>,
    deadline: Option<Instant>,
    /// The status that was sent last.
    sent: Option<ServingStatus>,
    /// With what the response ends, after the current status.
    end: Option<GrpcError>,
}

/// The status of a service, and each of its changes. The response ends at the deadline, or when the connection drains, which
/// `drain` says.
pub(super) fn watch(
    proxy: &Proxy,
    drain: Option<watch::Receiver<bool>>,
    request: HealthCheckRequest,
    deadline: Option<Instant>,
) -> ServiceReply {
    let watch = Watch {
        service: request.service,
        readiness: proxy.readiness(),
        drain,
        deadline,
        sent: None,
        end: None,
    };
    grpc::reply_with(stream::unfold(watch, Watch::next))
}

fn status(service: &str, is_ready: bool) -> ServingStatus {
    match (SERVICES.contains(&service), is_ready) {
        (false, _) => ServingStatus::ServiceUnknown,
        (true, true) => ServingStatus::Serving,
        (true, false) => ServingStatus::NotServing,
    }
}

impl Watch {
    /// The next frame of the response: a status that was not sent yet, or the trailers.
    async fn next(mut self) -> Option<(Frame<Bytes>, Self)> {
        loop {
            let status = self.status();
            if self.sent.replace(status) != Some(status) {
                let message = HealthCheckResponse { status: status.into() };
                return Some((Frame::data(grpc::frame(&message)), self));
            }
            if let Some(end) = self.end.take() {
                return Some((Frame::trailers(end.trailers()), self));
            }
            self.end = self.wait().await;
        }
    }

    fn status(&self) -> ServingStatus {
        let is_draining = self.drain.as_ref().is_some_and(|drain| *drain.borrow());
        status(&self.service, *self.readiness.borrow() && !is_draining)
    }

    /// Waits until the status may have changed; returns with what the response ends, if it does.
    async fn wait(&mut self) -> Option<GrpcError> {
        let closing = || GrpcError::new(GrpcCode::Unavailable, "the connection is closing");
        tokio::select! {
            changed = self.readiness.changed() => changed.err().map(|_| closing()),
            () = drained(&mut self.drain) => Some(closing()),
            () = passed(self.deadline) => Some(GrpcError::late()),
        }
    }
}

/// Waits until a connection drains.
async fn drained(drain: &mut Option<watch::Receiver<bool>>) {
    match drain {
        // An error means that the connection has ended.
        Some(drain) => drop(drain.wait_for(|is_draining| *is_draining).await),
        None => std::future::pending().await,
    }
}

/// Waits until a deadline has passed.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
