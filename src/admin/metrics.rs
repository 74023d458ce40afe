//! The response of `/metrics`.

use std::sync::Arc;

use http::header::{ACCEPT, VARY};
use http::{HeaderMap, HeaderValue};

use super::response::{self, AdminResponse};
use super::sessions::AdminSession;
use super::state::Admin;
use crate::telemetry::{GaugeValues, MetricsFormat};
use crate::time::monotonic;

/// All metrics, in the format that the client prefers.
pub(super) fn response(admin: &Arc<Admin>, session: &AdminSession, headers: &HeaderMap) -> AdminResponse {
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = MetricsFormat::accepted(&accept);
    let admin = Arc::clone(admin);
    let body = session.stream(move |out| {
        let policies = &admin.snapshot.gate.limits.policies;
        // It fails when the client has disconnected.
        let _ = admin.metrics.write(format, &gauges(&admin), policies, out);
    });
    let mut response = response::with_body(format.content_type(), body);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// All gauges.
fn gauges(admin: &Admin) -> GaugeValues {
    let denied_keys = admin.top.as_ref().map(|top| top.denied_keys(monotonic())).unwrap_or_default();
    GaugeValues { denied_keys, grants: admin.gauges.grants.values(), ..admin.gauge_values() }
}
