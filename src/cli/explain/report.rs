//! What becomes of a request, told in plain text.

use std::fmt::Write as _;

use http::Method;

use super::rows::Rows;
use super::{forwarding, limits, routing};
use crate::config::Loaded;
use crate::gate::{ClientIdentity, Gate, RequestError, RequestPlan, RouteId, normalize};
use crate::http1::RequestHead;
use crate::id_vec::Id as _;

/// Tells what becomes of a request.
pub(super) fn tell(loaded: &Loaded, caller: ClientIdentity<'_>, head: &RequestHead) -> String {
    let gate = &loaded.config.site.gate;
    let mut rows = Rows::default();
    rows.row("request", format!("{} {} from {}", head.method, head.uri, caller.address));
    match gate.plan(caller, head) {
        Ok(examined) => admitted(&mut rows, loaded, caller, head, &examined),
        Err(reason) => refused(&mut rows, gate, caller, head, &reason),
    }
    rows.into_text()
}

fn refused(
    rows: &mut Rows,
    gate: &Gate,
    caller: ClientIdentity<'_>,
    head: &RequestHead,
    reason: &RequestError,
) {
    if let Ok(path) = normalize(head.uri.path()) {
        rows.row("path", path.matched());
    }
    rows.row("client", client(gate, caller, head));
    rows.gap();
    rows.row("answer", format!("{}: {reason}", reason.status()));
    if let RequestError::EncodedSlash = reason {
        rows.row("", "a route lets such a path pass if it says encoded_slash = \"keep\"");
    }
    if let (RequestError::TooLarge, Ok(located)) = (reason, gate.match_route(head)) {
        let route = located.route.map(|id| gate.routes.get(id));
        let most = route.and_then(|route| route.max_body).unwrap_or_default();
        rows.row("", format!("its route says max_body, which is {most} bytes"));
    }
    if let (RequestError::Blocked(limit), Ok(located)) = (reason, gate.match_route(head)) {
        limits::tell_block(rows, gate, *limit, &gate.subject(caller, head, &located));
    }
}

fn admitted(
    rows: &mut Rows,
    loaded: &Loaded,
    caller: ClientIdentity<'_>,
    head: &RequestHead,
    examined: &RequestPlan<'_>,
) {
    let site = &loaded.config.site;
    let gate = &site.gate;
    rows.row("path", examined.path.matched());
    rows.row("host", if examined.host.is_empty() { "none" } else { &examined.host });
    rows.row("client", client(gate, caller, head));
    let place = examined.route.map(RouteId::index);
    routing::tell(rows, gate.routes.routes(), place, head, examined);
    let route = examined.route.map(|id| gate.routes.get(id));
    let ids = route.map_or(&gate.default_limits, |route| &route.limits);
    if ids.is_empty() {
        rows.row("limits", "none");
    }
    // What could be examined can be located.
    let Ok(located) = gate.match_route(head) else { return };
    let subject = gate.subject(caller, head, &located);
    for id in ids {
        rows.gap();
        limits::tell(rows, loaded, *id, &subject);
    }
    rows.gap();
    if let Some(missing) = &examined.missing {
        rows.row("answer", format!("{}: {}", missing.status, missing.detail()));
        rows.row("", "its other limits are charged, and may refuse it before");
        return;
    }
    match examined.route.map(|route| &site.treatments[route]) {
        Some(treatment) => forwarding::tell(rows, loaded, treatment, &subject, &examined.path.sent),
        None if head.method == Method::OPTIONS && head.uri.path() == "*" => {
            rows.row("answer", "204 No Content: the server as a whole is asked");
        }
        None => rows.row("answer", "404 Not Found: no route matches"),
    }
}

/// The client's address, and how it was found.
fn client(gate: &Gate, caller: ClientIdentity<'_>, head: &RequestHead) -> String {
    let from = caller.address;
    let rules = &gate.client_ip;
    let found = rules.client(from, &head.fields);
    let mut text = found.to_string();
    // Writing to a string can't fail.
    if found != from.to_canonical() {
        let _ = write!(text, " (from {}, sent by the trusted proxy {from})", rules.header);
    } else if head.fields.contains(&rules.header) && !rules.is_trusted(from) {
        let _ = write!(text, " (it is no trusted proxy: its {} is not believed)", rules.header);
    }
    let counted = rules.counted(found);
    if counted != found {
        let bits = if counted.is_ipv4() { rules.ipv4_prefix } else { rules.ipv6_prefix };
        let _ = write!(text, ", counted as {counted}/{bits}");
    }
    text
}
