//! Metrics of listeners and their connections.

use std::io::{self, Write};

use super::exposition::{Exposition, Kind};
use super::scrape::Scrape;
use crate::telemetry::listeners::{Handshake, HandshakeFailure, ListenerValues};
use crate::time::Micros;

pub(super) fn write(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let label = |listener: &ListenerValues| listener.address.to_string();
    let listeners: Vec<(String, &ListenerValues)> =
        scrape.gauges.listeners.iter().map(|listener| (label(listener), listener)).collect();
    out.start(Kind::Gauge, "tidegate_connections", "Open client connections.")?;
    for (listener, values) in &listeners {
        out.series(&[("listener", listener)], values.connections as u64)?;
    }
    out.start(
        Kind::Counter,
        "tidegate_connections_accepted_total",
        "Client connections that were accepted.",
    )?;
    for (listener, values) in &listeners {
        out.series(&[("listener", listener)], values.counts.accepted)?;
    }
    let help = "Client connections that were refused, by the bound that was reached.";
    out.start(Kind::Counter, "tidegate_connections_refused_total", help)?;
    for (listener, values) in &listeners {
        let counts = [
            ("max_connections", values.over_limit),
            ("max_connections_per_client", values.over_client_limit),
        ];
        for (bound, count) in counts {
            out.series(&[("listener", listener), ("bound", bound)], count)?;
        }
    }
    handshakes(&listeners, out)?;
    let help = "When a certificate expires, in Unix time.";
    out.start(Kind::Gauge, "tidegate_certificate_expiry_timestamp_seconds", help)?;
    for (listener, values) in &listeners {
        for (name, expires) in &values.certificates {
            let labels = [("listener", &**listener), ("certificate", &**name)];
            out.seconds(&labels, Micros(expires.0).as_secs_f64())?;
        }
    }
    Ok(())
}

fn handshakes(listeners: &[(String, &ListenerValues)], out: &mut Exposition<impl Write>) -> io::Result<()> {
    let has_tls = |values: &ListenerValues| !values.certificates.is_empty();
    out.start(Kind::Counter, "tidegate_tls_handshakes_total", "TLS handshakes with clients that succeeded.")?;
    for (listener, values) in listeners {
        for ((_, version, resumed), count) in Handshake::ALL.iter().zip(values.counts.handshakes) {
            if has_tls(values) || count > 0 {
                out.series(&[("listener", listener), ("version", version), ("resumed", resumed)], count)?;
            }
        }
    }
    let help = "Client connections that were closed before their first request, by reason.";
    out.start(Kind::Counter, "tidegate_handshake_failures_total", help)?;
    for (listener, values) in listeners {
        for ((_, reason), count) in HandshakeFailure::ALL.iter().zip(values.counts.failures) {
            if has_tls(values) || count > 0 {
                out.series(&[("listener", listener), ("reason", reason)], count)?;
            }
        }
    }
    Ok(())
}
