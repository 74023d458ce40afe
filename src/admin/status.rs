//! Reports the state of the process, and its metrics.

use std::sync::Arc;

use http::header::{ACCEPT, VARY};
use http::{HeaderMap, HeaderValue};

use super::api::{
    AcmeCertificateInfo, AcmeErrorInfo, AcmeInfo, LimitStatusInfo, ListenerInfo, ServerInfo, StatusInfo,
    StoreInfo, UpstreamInfo,
};
use super::control::rfc3339;
use super::response;
use super::response::AdminResponse;
use super::sessions::AdminSession;
use super::state::Admin;
use crate::acme::{AcmeStatus, CertificateStatus};
use crate::limit::Policy;
use crate::limiter::SharedState;
use crate::server::Lifecycle;
use crate::telemetry::{GaugeValues, MetricsFormat, ServerValues, UpstreamValues};
use crate::time::monotonic;

/// The state of the process. It may take long if there are many servers.
pub(super) fn report(admin: &Admin) -> StatusInfo {
    let values = admin.gauge_values();
    let (gate, started) = (&admin.snapshot.gate, admin.metrics.started());
    let listeners = admin.gauges.listeners.iter().map(|listener| ListenerInfo {
        address: listener.address.to_string(),
        tls: listener.tls.is_some(),
        connections: listener.limiter.open(),
    });
    StatusInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        state: state(*admin.lifecycle.borrow()).to_owned(),
        started: rfc3339(started),
        uptime: std::time::Duration::from(admin.clock.now().since(started)).as_secs_f64(),
        configuration: admin.control.served(),
        listeners: listeners.collect(),
        routes: gate.routes.routes().len(),
        limits: gate.limits().map(|(id, policy)| limit(policy, &gate.numbers[id])).collect(),
        store: store(admin, &values),
        upstreams: values.upstreams.into_iter().map(|values| upstream(admin, values)).collect(),
        acme: admin.acme.as_ref().map(acme),
    }
}

/// The word for a stage of the process.
pub(super) fn state(stage: Lifecycle) -> &'static str {
    match stage {
        Lifecycle::Serving => "ready",
        Lifecycle::NotReady => "leaving",
        Lifecycle::Draining => "draining",
    }
}

fn store(admin: &Admin, values: &GaugeValues) -> StoreInfo {
    let (kind, state) = match (admin.is_redis(), admin.servers_down()) {
        (false, _) => ("memory", "up"),
        (true, 0) => ("redis", "up"),
        (true, _) => ("redis", "unreachable"),
    };
    StoreInfo {
        kind: kind.to_owned(),
        address: admin.store_address.clone(),
        state: state.to_owned(),
        keys: values.keys,
        owed_keys: values.store.as_ref().map_or(0, |store| store.owed_keys),
    }
}

fn limit(policy: &Policy, numbers: &str) -> LimitStatusInfo {
    LimitStatusInfo {
        name: policy.name.to_string(),
        algorithm: policy.quota.algorithm().name().to_owned(),
        mode: policy.mode().to_owned(),
        numbers: numbers.to_owned(),
        limit: policy.quota.limit(),
    }
}

fn upstream(admin: &Admin, values: UpstreamValues) -> UpstreamInfo {
    let mut specs = admin.snapshot.upstreams.iter().filter(|spec| spec.label() == &*values.label);
    let health_checks = specs.any(|spec| spec.health.is_some());
    let server = |server: ServerValues| ServerInfo {
        server: server.label.into(),
        addresses: server.addresses,
        healthy: server.healthy,
        ejected: server.ejected,
        connections: server.connections,
    };
    UpstreamInfo {
        name: values.label.into(),
        health_checks,
        pending: values.pending,
        servers: values.servers.into_iter().map(server).collect(),
    }
}

fn acme(status: &AcmeStatus) -> AcmeInfo {
    let certificates = status.certificates();
    AcmeInfo {
        server: status.server().to_owned(),
        certificates: certificates.iter().map(certificate).collect(),
    }
}

fn certificate(status: &CertificateStatus) -> AcmeCertificateInfo {
    let state = match (&status.failure, status.not_after) {
        (Some(_), _) => "failed",
        (None, Some(_)) => "obtained",
        (None, None) => "pending",
    };
    let failure = status.failure.as_ref();
    AcmeCertificateInfo {
        name: status.name.clone(),
        state: state.to_owned(),
        not_after: status.not_after.map(rfc3339),
        next_attempt: rfc3339(status.next_attempt),
        last_error: failure.map(|last| AcmeErrorInfo { at: rfc3339(last.at), error: last.error.clone() }),
    }
}

/// All metrics, in the format that the client prefers.
pub(super) fn metrics(admin: &Arc<Admin>, session: &AdminSession, headers: &HeaderMap) -> AdminResponse {
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
    GaugeValues { denied_keys, grants: SharedState::grant_values(admin.shared()), ..admin.gauge_values() }
}
