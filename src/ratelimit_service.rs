//! Envoy's rate-limit service: decisions for a proxy that forwards its requests itself.
//!
//! It is an adapter over the line that requests take: descriptors are planned by the [`Gate`](crate::gate::Gate), and decided by
//! the limiter. A listener with `serve = "envoy-ratelimit"` has gRPC (`envoy.service.ratelimit.v3.RateLimitService` and
//! `grpc.health.v1.Health`), `POST /json`, and `GET /healthcheck`.

mod checked_request;
mod decision;
mod grpc;
mod health;
mod json;
mod messages;
mod records;
mod response;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::time::Instant;

use self::checked_request::CheckedRequest;
use self::decision::DecisionError;
use self::grpc::{GrpcCode, GrpcError};
use self::messages::{RateLimitRequest, RateLimitResponse};
use self::records::{record_access, record_keys};
use self::response::response;
use crate::boxed::rare;
use crate::http1::names::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use crate::http1::{RequestHead, push_decimal};
use crate::proxy::{
    ClientBody, ClientConnection, Proxy, ProxyResponse, ServiceReply, ServiceRequest, UnreadBody,
};
use crate::telemetry::Verdict;
use crate::time::monotonic;

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Why a request gets no decision.
enum Refusal {
    Unread(UnreadBody),
    Unreadable(GrpcError),
    Invalid(String),
    Undecided(DecisionError),
}

/// Serves a request to the rate-limit service.
pub async fn serve(
    proxy: &Proxy,
    client: &ClientConnection,
    mut head: Box<RequestHead>,
    body: ClientBody,
) -> ProxyResponse {
    let (mut request, normalized) = ServiceRequest::begin(proxy, client, &mut head, body);
    let reply = match normalized {
        Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
        Ok(()) if request.is_grpc() => {
            call(proxy, &head, &mut request).await.unwrap_or_else(|error| error.reply())
        }
        Ok(()) => match head.uri.path() {
            "/json" => match with_method(&head, &Method::POST) {
                Some(reply) => reply,
                None => json_call(proxy, &mut request).await,
            },
            "/healthcheck" => with_method(&head, &Method::GET).unwrap_or_else(|| {
                if proxy.is_ready() {
                    text(StatusCode::OK, "OK")
                } else {
                    text(StatusCode::SERVICE_UNAVAILABLE, "the process stops")
                }
            }),
            _ => text(
                StatusCode::NOT_FOUND,
                "this is a rate-limit service: it has gRPC, POST /json and GET /healthcheck",
            ),
        },
    };
    request.finish(reply).await
}

/// Responds to a gRPC call, within the deadline of the client.
async fn call(
    proxy: &Proxy,
    head: &RequestHead,
    request: &mut ServiceRequest<'_>,
) -> Result<ServiceReply, GrpcError> {
    let deadline = grpc::deadline(&head.fields).map(|timeout| monotonic() + timeout);
    let answering = call_method(proxy, head.uri.path(), deadline, request);
    let Some(deadline) = deadline else { return answering.await };
    let answer = rare(tokio::time::timeout_at(deadline, answering)).await;
    answer.unwrap_or_else(|_| {
        if head.uri.path() == SHOULD_RATE_LIMIT {
            request.record_verdict(Verdict::Error);
        }
        Err(GrpcError::late())
    })
}

async fn call_method(
    proxy: &Proxy,
    method: &str,
    deadline: Option<Instant>,
    request: &mut ServiceRequest<'_>,
) -> Result<ServiceReply, GrpcError> {
    if !matches!(method, SHOULD_RATE_LIMIT | HEALTH_CHECK | HEALTH_WATCH) {
        return Err(GrpcError::new(GrpcCode::Unimplemented, format!("there is no method {method}")));
    }
    if method == SHOULD_RATE_LIMIT {
        let read = |body: &Bytes| grpc::read(body).map_err(Refusal::Unreadable);
        return Ok(grpc::reply(&decide(proxy, request, read).await?));
    }
    let body = request.read_body(MAX_MESSAGE).await.map_err(Refusal::Unread)?;
    let message = grpc::read(&body)?;
    Ok(if method == HEALTH_WATCH {
        health::watch(proxy, request.client().drain(), message, deadline)
    } else {
        health::check(proxy, &message)
    })
}

/// The response to a request in JSON: 200 if it is within its limits, 429 if it is not.
async fn json_call(proxy: &Proxy, request: &mut ServiceRequest<'_>) -> ServiceReply {
    let read = |body: &Bytes| {
        serde_json::from_slice(body)
            .map_err(|error| Refusal::Invalid(format!("the message is not valid: {error}")))
    };
    match decide(proxy, request, read).await {
        Ok(message) => {
            let status = if message.is_over() { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            let mut reply = ServiceReply::new(status, json::response(&message));
            reply.head.fields.push(CONTENT_TYPE, b"application/json");
            reply
        }
        Err(refusal) => refusal.reply(),
    }
}

/// Decides a request, of which `read` makes a message; counts and logs the decision.
async fn decide(
    proxy: &Proxy,
    request: &mut ServiceRequest<'_>,
    read: impl FnOnce(&Bytes) -> Result<RateLimitRequest, Refusal>,
) -> Result<RateLimitResponse, Refusal> {
    let answer = decide_message(proxy, request, read).await;
    let verdict = match &answer {
        Ok(answer) if answer.is_over() => Verdict::Denied,
        Ok(_) => Verdict::Allowed,
        Err(_) => Verdict::Error,
    };
    request.record_verdict(verdict);
    answer
}

async fn decide_message(
    proxy: &Proxy,
    request: &mut ServiceRequest<'_>,
    read: impl FnOnce(&Bytes) -> Result<RateLimitRequest, Refusal>,
) -> Result<RateLimitResponse, Refusal> {
    let message = read(&request.read_body(MAX_MESSAGE).await.map_err(Refusal::Unread)?)?;
    request.set_domain(&message.domain);
    let checked = CheckedRequest::new(&message).map_err(Refusal::Invalid)?;
    let decided = decision::decide(proxy, &checked).await.map_err(Refusal::Undecided)?;
    record_keys(proxy, &checked, &decided);
    record_access(proxy, request, &checked, &decided);
    Ok(response(proxy, &decided))
}

impl Refusal {
    /// The response over HTTP.
    fn reply(&self) -> ServiceReply {
        let status = match self {
            Self::Unread(UnreadBody::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unread(UnreadBody::NoMemory) | Self::Undecided(DecisionError::Unavailable(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Unread(UnreadBody::Broken)
            | Self::Unreadable(_)
            | Self::Invalid(_)
            | Self::Undecided(_) => StatusCode::BAD_REQUEST,
        };
        let mut reply = text(status, &self.text());
        if let Self::Undecided(DecisionError::Unavailable(wait)) = self {
            reply.head.fields.set_with(RETRY_AFTER, |out| push_decimal(out, wait.ceil_secs().max(1)));
        }
        reply
    }

    fn text(&self) -> String {
        match self {
            Self::Unread(UnreadBody::TooLong) => {
                format!("a message has at most {} KiB", MAX_MESSAGE / 1024)
            }
            Self::Unread(UnreadBody::NoMemory) => "all memory for messages is in use".to_owned(),
            Self::Unread(UnreadBody::Broken) => "the message has not arrived".to_owned(),
            Self::Unreadable(error) => error.message.clone(),
            Self::Invalid(text) => text.clone(),
            Self::Undecided(error) => error.to_string(),
        }
    }
}

impl From<Refusal> for GrpcError {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Unreadable(error) => error.code,
            Refusal::Unread(UnreadBody::TooLong | UnreadBody::NoMemory)
            | Refusal::Undecided(DecisionError::TooMany) => GrpcCode::ResourceExhausted,
            Refusal::Undecided(DecisionError::Unavailable(_)) => GrpcCode::Unavailable,
            Refusal::Unread(UnreadBody::Broken) | Refusal::Invalid(_) | Refusal::Undecided(_) => {
                GrpcCode::InvalidArgument
            }
        };
        Self::new(code, refusal.text())
    }
}

/// The response to a request that has another method; none if it has this one.
fn with_method(head: &RequestHead, method: &Method) -> Option<ServiceReply> {
    (head.method != *method).then(|| {
        let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, &format!("the method is {method}"));
        reply.head.fields.push(ALLOW, method.as_str().as_bytes());
        reply
    })
}

fn text(status: StatusCode, text: &str) -> ServiceReply {
    let mut reply = ServiceReply::new(status, format!("{text}\n"));
    reply.head.fields.push(CONTENT_TYPE, b"text/plain; charset=utf-8");
    reply
}
