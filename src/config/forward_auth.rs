//! `respond = "decide"` and `deny_status`: listeners and routes for authorization requests.

use http::StatusCode;

use super::table::{Reported, Table};
use crate::gate::ClientIp;
use crate::proxy::ForwardAuth;

/// What a file needs for authorization requests.
pub(super) const TRUST: &str = "name the networks of the proxies that send authorization requests: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";

/// Reads how the decisions of a listener are returned, if it is for authorization requests.
pub(super) fn of_listener(
    table: &Table<'_>,
    client_ip: Option<&ClientIp>,
) -> Result<Option<ForwardAuth>, Reported> {
    let asks = table.optional("respond", |item| {
        table.choice_in("respond", item, &[("decide", ())])?;
        if client_ip.is_some_and(|client_ip| client_ip.trusted_proxies.is_empty()) {
            return item.reject(item.error(untrusted("this listener")).help(TRUST).derived());
        }
        Some(())
    })?;
    if asks.is_some() {
        return settings(table).map(Some).ok_or(Reported);
    }
    reject_deny_status(table);
    Ok(None)
}

/// Reads how decisions are returned.
pub(super) fn settings(table: &Table<'_>) -> Option<ForwardAuth> {
    deny_status(table).ok().map(|deny_status| ForwardAuth { deny_status })
}

fn deny_status(table: &Table<'_>) -> Result<Option<StatusCode>, Reported> {
    table.optional("deny_status", |item| {
        let status = table.integer_in("deny_status", item)?;
        u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok())
    })
}

/// Rejects `deny_status` where there are no authorization requests.
pub(super) fn reject_deny_status(table: &Table<'_>) {
    if let (Some(item), Ok(Some(_))) = (table.given("deny_status"), deny_status(table)) {
        let problem = item.error("`deny_status` is for authorization requests, and there are none here");
        item.reject::<()>(problem.help("add respond = \"decide\", or leave `deny_status` out").derived());
    }
}

/// Rejects limits of a route for authorization requests: the limits of the original request apply.
pub(super) fn reject_limits(route: &Table<'_>) {
    if let Some(item) = route.given("limits") {
        let title = "these limits would count the authorization requests of the trusted proxy";
        let help = "leave `limits` out: those of the route that the original request matches apply";
        item.reject::<()>(item.error(title).help(help));
    }
}

/// Why a place for authorization requests decides none.
pub(super) fn untrusted(place: &str) -> String {
    format!(
        "no request could be decided: {place} accepts authorization requests only from trusted proxies, and `trusted_proxies` is empty"
    )
}
