//! Redirects: `redirect` of a route's `respond`, and `redirect_to_https` of a listener.

use std::sync::Arc;

use http::StatusCode;

use super::item::Item;
use super::report::Problem;
use super::route_keys::{RespondKeys, RouteKeys};
use super::table::Table;
use crate::gate::PathPattern;
use crate::proxy::{LOCATION_PLACEHOLDERS, LocationError, LocationTemplate, Redirect, Target};
use crate::server::{ListenerSpec, Service};

/// The statuses of a redirect.
const STATUSES: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// Reads the redirect of a route with this path from its `respond`.
pub(super) fn of_route(
    item: Item<'_>,
    respond: &Table<'_, RespondKeys>,
    route: &Table<'_, RouteKeys>,
    path: Option<&PathPattern>,
) -> Option<Target> {
    if let Some(body) = respond.body().given() {
        body.reject::<()>(body.error("a redirect has no body").help("leave `body` or `redirect` out"));
    }
    let status = match respond.status().given() {
        None => StatusCode::PERMANENT_REDIRECT,
        Some(given) => {
            let status = respond.status().read()?;
            if !STATUSES.contains(&status) {
                let problem = given.error(format!("{} is no status of a redirect", status.as_u16()));
                let help = "write 308 or 301 if clients may remember it, and else 307, 303 or 302";
                return given.reject(problem.help(help));
            }
            status
        }
    };
    let text = item.string()?;
    let params: Vec<&str> = path.map(|path| path.params().collect()).unwrap_or_default();
    let location = match LocationTemplate::parse(&text.value, &params) {
        Ok(location) => location,
        Err(error) => {
            let problem = text.error(format!("{} is no target of a redirect: {error}", text.quoted()));
            return text.reject(match error {
                LocationError::Unknown(_) => {
                    let params = params.iter().map(|name| format!("{{{name}}}"));
                    let all: Vec<String> =
                        std::iter::once(LOCATION_PLACEHOLDERS.to_owned()).chain(params).collect();
                    problem.help(format!("there are {}", all.join(", ")))
                }
                _ => problem.help("such as \"https://{host}{path_and_query}\" or \"/new{path}\""),
            });
        }
    };
    if location.has_host() && route.host().given().is_none() {
        let title = "this redirect repeats the host that the client names, whatever it is";
        let problem = Problem::warning(item.span(), title);
        item.reader.report(problem.help("add the `host` of the route, or write the host here"));
    }
    Some(Target::Redirect(Box::new(Redirect { status, location })))
}

/// The redirect to HTTPS on this port.
pub(super) fn to_https(port: u16) -> Arc<Redirect> {
    let location = LocationTemplate::https(port);
    Arc::new(Redirect { status: StatusCode::PERMANENT_REDIRECT, location })
}

/// Chooses the port of the redirects of these listeners, which are read from `items`.
pub(super) fn choose_ports(items: &[Item<'_>], specs: &mut [ListenerSpec]) {
    let serves_routes = |spec: &&ListenerSpec| spec.service == Service::Proxy && spec.forward_auth.is_none();
    let with_tls = specs.iter().filter(serves_routes).filter(|spec| spec.tls.is_some());
    let ports: Vec<u16> = with_tls.map(|spec| spec.address.port()).collect();
    let port = ports.iter().find(|port| **port == 443).or(ports.first()).copied();
    for (item, spec) in items.iter().zip(specs).filter(|(_, spec)| spec.redirect.is_some()) {
        let Some(key) = item.value_of("redirect_to_https") else { continue };
        if spec.tls.is_some() || spec.forward_auth.is_some() || spec.service != Service::Proxy {
            let problem = key.error("only requests by plain HTTP to the routes are redirected to https");
            key.reject::<()>(problem.help("leave `redirect_to_https` out"));
        } else if let Some(port) = port {
            spec.redirect = Some(to_https(port));
        } else {
            let problem = key.error("no listener has `tls`, so there is no port to redirect to");
            key.reject::<()>(problem.help("add [[listeners]] with tls = { certificates = [...] }"));
        }
    }
}
