//! Routes in the order in which their origin prefers them: by host, then by rank.

use crate::model::TomlRoute;
use crate::note::Note;

/// A route of a host, or of all hosts, with its rank among those of the host: lower ones are preferred.
#[derive(Clone, Debug)]
pub(super) struct Placed<R> {
    pub host: Option<String>,
    pub rank: R,
    pub route: TomlRoute,
}

/// The routes of a host, or of all hosts.
#[derive(Debug)]
pub(super) struct HostRoutes {
    pub host: Option<String>,
    pub routes: Vec<TomlRoute>,
}

impl HostRoutes {
    /// Exact hosts are preferred, then longer wildcards.
    fn rank(&self) -> (u8, usize) {
        match &self.host {
            Some(host) if host.starts_with('*') => (1, usize::MAX - host.len()),
            Some(_) => (0, 0),
            None => (2, 0),
        }
    }
}

/// The routes of each host; those of equal rank keep their order.
pub(super) fn by_host<R: Ord + Copy>(mut placed: Vec<Placed<R>>) -> Vec<HostRoutes> {
    placed.sort_by_key(|placed| placed.rank);
    let mut hosts: Vec<HostRoutes> = Vec::new();
    for Placed { host, route, .. } in placed {
        let route = TomlRoute { host: host.clone(), ..route };
        match hosts.iter_mut().find(|known| known.host == host) {
            Some(known) => known.routes.push(route),
            None => hosts.push(HostRoutes { host, routes: vec![route] }),
        }
    }
    hosts
}

/// The routes of several controllers, for hosts and for all hosts. Requests for other paths of a host get 404, as from their origins.
pub(super) fn joined(groups: [Vec<HostRoutes>; 2]) -> (Vec<TomlRoute>, Vec<TomlRoute>, Vec<Note>) {
    let (mut hosts, mut notes): (Vec<HostRoutes>, Vec<Note>) = (Vec::new(), Vec::new());
    for mut group in groups.into_iter().flatten() {
        match hosts.iter_mut().find(|known| known.host == group.host) {
            Some(known) => {
                let host = group.host.as_deref().unwrap_or("all hosts");
                notes.push(Note::text(format!(
                    "Ingresses and HTTPRoutes have routes of {host}: those of Ingresses come first."
                )));
                known.routes.append(&mut group.routes);
            }
            None => hosts.push(group),
        }
    }
    hosts.sort_by_key(HostRoutes::rank);
    let (mut of_hosts, mut of_all) = (Vec::new(), Vec::new());
    for HostRoutes { host, mut routes } in hosts {
        let selects_all = |route: &TomlRoute| {
            route.path == "/*"
                && route.methods.is_empty()
                && route.conditions.is_empty()
                && route.scheme.is_none()
        };
        if host.is_some() && !routes.iter().any(selects_all) {
            let notes = vec![Note::text("No object has other paths of this host.")];
            routes.push(TomlRoute {
                notes,
                host: host.clone(),
                path: "/*".to_owned(),
                ..TomlRoute::default()
            });
        }
        if host.is_some() { of_hosts.extend(routes) } else { of_all.extend(routes) }
    }
    (of_hosts, of_all, notes)
}
