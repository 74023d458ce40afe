//! Explains what CORS does with a request of a web page.

use http::{Method, StatusCode};

use super::explained::{Explained, ResponseInfo};
use super::rows::TextRows;
use crate::gate::{Gate, RouteId};
use crate::http1::{RequestHead, names};
use crate::proxy::{ConfigSnapshot, CorsPolicy, Preflight};

/// Explains whether a page may read the response to a request that has an Origin.
pub(super) fn explain(
    rows: &mut TextRows,
    snapshot: &ConfigSnapshot,
    route: Option<RouteId>,
    head: &RequestHead,
) {
    let (Some(rules), Some(origin)) = (&snapshot.cors, head.fields.get(names::ORIGIN)) else { return };
    let origin = String::from_utf8_lossy(origin);
    rows.row(
        "cors",
        match rules.policy(route) {
            None => "off for this route: the CORS headers are those of the upstream".to_owned(),
            Some(policy) => origin_text(policy, &origin),
        },
    );
}

/// Explains the response to a preflight.
pub(super) fn explain_preflight(
    explained: &mut Explained,
    gate: &Gate,
    head: &RequestHead,
    preflight: &Preflight<'_>,
) {
    let rows = &mut explained.rows;
    let Preflight { policy, method, matched } = preflight;
    if let Some(matched) = matched {
        rows.row("path", matched.path.matched());
        rows.row("host", if matched.host.is_empty() { "none" } else { &matched.host });
    }
    let route = matched.as_ref().and_then(|matched| matched.route).map(|id| gate.routes.get(id));
    let name = route.map_or("none", |route| &route.name);
    rows.row("route", format!("{name} (for {method}, without conditions on headers)"));
    let origin = String::from_utf8_lossy(head.fields.get(names::ORIGIN).unwrap_or_default());
    rows.row("cors", origin_text(policy, &origin));
    if policy.allows(&origin) {
        rows.row("", method_text(policy, method));
    }
    rows.gap();
    rows.row("response", "204 No Content: this is a preflight, which no limit counts");
    explained.route = route.map(|route| route.name.to_string());
    explained.response = ResponseInfo::new("preflight", StatusCode::NO_CONTENT);
}

fn origin_text(policy: &CorsPolicy, origin: &str) -> String {
    let credentials = if policy.credentials { ", also with credentials" } else { "" };
    if policy.allows(origin) {
        format!("pages of {origin} may read the response{credentials}")
    } else {
        format!("pages of {origin} may not read the response: `origins` does not have it")
    }
}

fn method_text(policy: &CorsPolicy, method: &Method) -> String {
    if policy.allows_method(method) {
        format!("they may use the method {method}")
    } else {
        format!("they may not use the method {method}: `methods` does not have it")
    }
}
