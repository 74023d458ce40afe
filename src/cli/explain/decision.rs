//! Authorization requests: what is explained is the original request that they describe.

use http::StatusCode;

use super::rows::TextRows;
use crate::config::Loaded;
use crate::gate::{ClientIdentity, OriginalError, original};
use crate::http1::RequestHead;
use crate::proxy::{ForwardAuth, Target};

/// A request for which there is a decision in place of a response.
pub(super) struct Decision {
    /// The original request, or why there is no decision; none if it is the request itself.
    pub original: Option<Result<RequestHead, (StatusCode, String)>>,
    settings: ForwardAuth,
}

/// Whether and on what there is a decision: on the original request, if this is an authorization request to a route or to listeners
/// with `respond = "decide"`; on the request itself if it describes no other one, and all listeners have that.
pub(super) fn decision(loaded: &Loaded, peer: ClientIdentity<'_>, head: &RequestHead) -> Option<Decision> {
    let snapshot = &loaded.config.snapshot;
    let gate = &snapshot.gate;
    let route = gate.match_route(head, &gate.locate(peer, head)).ok().and_then(|matched| matched.route);
    let of_route = route.and_then(|route| match snapshot.actions[route].target {
        Target::Decide(settings) => Some(settings),
        _ => None,
    });
    let settings = of_route.or_else(|| of_listeners(loaded))?;
    let described = original(head, &gate.client_ip.header);
    if of_route.is_none() && matches!(described, Err(OriginalError::NoTarget)) {
        return Some(Decision { original: None, settings });
    }
    let original = if gate.client_ip.is_trusted(peer.address) {
        described.map(|original| original.head).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
    } else {
        let why = format!("decisions are for trusted proxies only, and {} is none", peer.address);
        Err((StatusCode::FORBIDDEN, why))
    };
    Some(Decision { original: Some(original), settings })
}

/// The settings of the listeners, if all of them are for authorization requests.
fn of_listeners(loaded: &Loaded) -> Option<ForwardAuth> {
    let mut settings = loaded.config.listeners.iter().map(|spec| spec.forward_auth);
    let first = settings.next()??;
    settings.all(|other| other.is_some()).then_some(first)
}

impl Decision {
    /// Explains the response to the authorization request.
    pub fn explain(&self, rows: &mut TextRows) {
        rows.row("decision", "200 OK if the request passes, in place of what follows its limits above");
        if let Some(status) = self.settings.deny_status {
            rows.row("denial", format!("{status}, with the status above in X-Tidegate-Status"));
        }
    }
}
