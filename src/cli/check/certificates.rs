//! The certificates of a configuration: their names, and until when they are valid.

use std::sync::Arc;
use std::time::Duration;

use super::connect::{ConnectionCheck, ConnectionResult};
use crate::config::Config;
use crate::gate::HostPattern;
use crate::store::StoreSpec;
use crate::time::{Clock, Micros, Timestamp, format_duration};
use crate::tls::{CertificateInfo, ServerTls};

/// A certificate that expires sooner than this gets a warning: renewals usually start 30 days before.
const SOON: Duration = Duration::from_hours(14 * 24);
/// The most names of a certificate that are listed.
const MAX_NAMES: usize = 5;

/// Checks the certificates of all listeners and of the admin interface, those that are shown to servers, and that there is one
/// for the host of each route.
pub(super) fn check(config: &Config) -> Vec<ConnectionCheck> {
    let now = Clock::System.now();
    let of = |place: &str, tls: &ServerTls| {
        let target = format!("certificate of {place}");
        let found =
            tls.certificates().into_iter().map(|info| certificate(&target, &names(&info), &info, now));
        found.collect::<Vec<_>>()
    };
    let listeners = config
        .listeners
        .iter()
        .filter_map(|listener| Some(of(&listener.address.to_string(), listener.tls.as_ref()?)));
    let admin = config.admin.iter().filter_map(|admin| Some(of("[admin]", admin.tls.as_ref()?)));
    let own = listeners.chain(admin).flatten();
    own.chain(client_certificates(config, now)).chain(uncovered_hosts(config)).collect()
}

/// The certificates that are shown to Redis and to the servers of upstreams.
fn client_certificates(config: &Config, now: Timestamp) -> Vec<ConnectionCheck> {
    let store = match &config.store {
        StoreSpec::Memory => None,
        // All servers of the store are shown the same one.
        StoreSpec::Redis(servers) => servers.iter().find_map(|spec| spec.target.tls.as_ref()),
    };
    let store = store.map(|tls| (tls, "the store".to_owned()));
    let upstreams = config.snapshot.upstreams.iter();
    let upstreams =
        upstreams.filter_map(|spec| Some((spec.tls.as_ref()?, format!("upstream {}", spec.label()))));
    let shown = store.into_iter().chain(upstreams).filter_map(|(tls, place)| {
        let info = tls.certificate()?;
        Some(certificate(&format!("client certificate for {place}"), "", &info, now))
    });
    shown.collect()
}

/// The names of a server certificate.
fn names(info: &CertificateInfo) -> String {
    let names = match info.names.split_at_checked(MAX_NAMES) {
        _ if info.names.is_empty() => "no names".to_owned(),
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => info.names.join(", "),
    };
    names + ": "
}

/// Whether a certificate is valid; `names` is what comes before that.
fn certificate(target: &str, names: &str, info: &CertificateInfo, now: Timestamp) -> ConnectionCheck {
    let days = |span: Micros| format_duration(Duration::from_hours(span.0 / Micros::SECOND.0 / 3_600));
    let (result, validity) = if info.not_after <= now {
        (ConnectionResult::Failed, format!("expired {} ago", days(now.since(info.not_after))))
    } else if now < info.not_before {
        (ConnectionResult::Failed, format!("not valid for another {}", days(info.not_before.since(now))))
    } else {
        let left = info.not_after.since(now);
        let is_soon = Duration::from(left) < SOON;
        let result = if is_soon { ConnectionResult::Warning } else { ConnectionResult::Ok };
        (result, format!("expires in {}", days(left)))
    };
    ConnectionCheck {
        result,
        target: target.to_owned(),
        seconds: None,
        message: format!("{names}{validity}"),
        help: (result != ConnectionResult::Ok).then(|| "renew it".to_owned()),
    }
}

/// Hosts of routes that no certificate names, if every listener uses TLS: clients get the default certificate for them, and
/// reject it if they verify its name.
fn uncovered_hosts(config: &Config) -> Vec<ConnectionCheck> {
    let tls: Option<Vec<&ServerTls>> =
        config.listeners.iter().map(|listener| listener.tls.as_ref()).collect();
    let Some(tls) = tls else { return Vec::new() };
    let certificates: Vec<Arc<CertificateInfo>> = tls.iter().flat_map(|tls| tls.certificates()).collect();
    let mut uncovered = Vec::new();
    for route in config.snapshot.gate.routes.routes() {
        if let Some(host @ HostPattern::Exact(name)) = &route.host
            && !certificates.iter().any(|info| info.covers(name))
            && !tls.iter().any(|tls| tls.managed_names().iter().any(|managed| **managed == **name))
        {
            let target = format!("certificate for {host}");
            if uncovered.iter().all(|known: &ConnectionCheck| known.target != target) {
                uncovered.push(ConnectionCheck {
                    result: ConnectionResult::Warning,
                    target,
                    seconds: None,
                    message: format!("no certificate has this name, which route {} serves", route.name),
                    help: Some("add one to the `tls` of the listener".to_owned()),
                });
            }
        }
    }
    uncovered
}
