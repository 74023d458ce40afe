//! Refunds by the final status of a request.

use http::StatusCode;

use super::grpc;
use super::grpc_body::GrpcBody;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use crate::http1::names::GRPC_STATUS;
use crate::limiter::{LimitStatuses, Reservation};

/// Refunds the units that a request with this response does not pay, before the response is sent, so that the client's
/// next request finds them. The status of a gRPC call may come in its trailers, so its body refunds then. Changes the
/// statuses of the limits that have changed.
pub(super) async fn settle(
    reservation: Box<Reservation>,
    response: ProxyResponse<BodySource>,
    is_grpc: bool,
    statuses: &mut LimitStatuses,
) -> ProxyResponse<BodySource> {
    let ProxyResponse { head, body, is_over_capacity, tunnel } = response;
    let grpc_status = head.fields.get(GRPC_STATUS).and_then(grpc::http_status).filter(|_| is_grpc);
    let body = match body {
        BodySource::Upstream(body) if is_grpc && grpc_status.is_none() && head.status == StatusCode::OK => {
            let body = BodySource::Grpc(Box::new(GrpcBody::new(body, reservation)));
            return ProxyResponse { head, body, is_over_capacity, tunnel };
        }
        body => body,
    };
    let status = grpc_status.unwrap_or(head.status.as_u16());
    for after in reservation.finish(status).await {
        let earlier = statuses.iter_mut().filter(|before| before.policy == after.policy);
        earlier.for_each(|status| *status = after);
    }
    ProxyResponse { head, body, is_over_capacity, tunnel }
}
