//! `respond = "decide"` and `deny_status`: listeners and routes for authorization requests.

use http::StatusCode;

use super::item::Item;
use super::keys::kinds::{Choice, Integer, words};
use super::table::{Field, Optional, Reported};
use crate::gate::ClientIp;
use crate::proxy::ForwardAuth;

/// What a file needs for authorization requests.
pub(super) const TRUST: &str = "name the networks of the proxies that send authorization requests: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";

words!(DecideWords: () = [("decide", ())]);

/// `deny_status` of a listener or a route.
type DenyStatus<'t, 'a> = Field<'t, 'a, Integer<400, 599, StatusCode>, Optional>;

/// The meaning of `deny_status`.
pub(super) const DENY_STATUS: &str = " With `respond = \"decide\"`: the status of every denial, for proxies that accept no other one; \
     `X-Tidegate-Status` has the status that the client should get";

/// Reads how the decisions of a listener are returned, if it is for authorization requests.
pub(super) fn of_listener(
    respond: &Field<'_, '_, Choice<DecideWords>, Optional>,
    deny_status: &DenyStatus<'_, '_>,
    client_ip: Option<&ClientIp>,
) -> Result<Option<ForwardAuth>, Reported> {
    let asks = respond.with(|item| {
        respond.value(item)?;
        if client_ip.is_some_and(|client_ip| client_ip.trusted_proxies.is_empty()) {
            return item.reject(item.error(untrusted("this listener")).help(TRUST).derived());
        }
        Some(())
    })?;
    if asks.is_some() {
        return settings(deny_status).map(Some).ok_or(Reported);
    }
    reject_deny_status(deny_status);
    Ok(None)
}

/// Reads how decisions are returned.
pub(super) fn settings(deny_status: &DenyStatus<'_, '_>) -> Option<ForwardAuth> {
    deny_status.read().ok().map(|deny_status| ForwardAuth { deny_status })
}

/// Rejects `deny_status` where there are no authorization requests.
pub(super) fn reject_deny_status(deny_status: &DenyStatus<'_, '_>) {
    if let (Some(item), Ok(Some(_))) = (deny_status.given(), deny_status.read()) {
        let problem = item.error("`deny_status` is for authorization requests, and there are none here");
        item.reject::<()>(problem.help("add respond = \"decide\", or leave `deny_status` out").derived());
    }
}

/// Rejects limits of a route for authorization requests: the limits of the original request apply.
pub(super) fn reject_limits(limits: Option<Item<'_>>) {
    if let Some(item) = limits {
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
