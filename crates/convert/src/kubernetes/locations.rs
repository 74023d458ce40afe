//! The routes of Ingresses together: which of them are preferred, and which get requests of others.

use std::cmp::Reverse;

use super::hosts::Placed;
use crate::model::{Condition, TomlRoute, TomlTarget};
use crate::note::{FileLine, Note};

/// Lower ones are preferred: routes for all requests of a host, then exact paths, then longer ones, and last the routes of a path
/// that another Ingress may write.
pub(super) type Rank = (bool, bool, Reverse<usize>, bool);

/// A route, before it is known which other routes its host has.
pub(super) struct Location {
    pub placed: Placed<Rank>,
    /// The namespace and name of the service that gets its requests, also if they get 501. Its ports may lead to the same pods.
    pub service: String,
    /// Whether nginx matches more paths with it.
    pub is_narrower: bool,
    /// Whether it restricts access in a way that is not converted.
    pub is_closed: bool,
    pub redirects_to_https: bool,
    /// The place of its path.
    pub place: FileLine,
}

/// Notes that some requests lose the limits of a route.
pub(super) fn lost_limits(route: &TomlRoute, reason: &str) -> Vec<Note> {
    let limits = route.uses.iter().zip(&route.limits);
    limits.map(|(place, limit)| Note::finding(place, &format!("limit {limit}"), reason).lost()).collect()
}

/// Removes routes for the same host and path as an earlier one; notes on those that were written.
pub(super) fn without_duplicates(locations: &mut Vec<Location>) -> Vec<Note> {
    let reason = "an Ingress has this host and path already: the first one applies";
    let mut notes = Vec::new();
    let mut kept: Vec<Location> = Vec::new();
    for mut location in locations.drain(..) {
        let route = &mut location.placed.route;
        let same = |known: &&mut Location| {
            known.placed.rank.0 == location.placed.rank.0
                && (&known.placed.host, &known.placed.route.path) == (&location.placed.host, &route.path)
        };
        let Some(known) = kept.iter_mut().find(same) else {
            kept.push(location);
            continue;
        };
        known.placed.route.notes.append(&mut route.notes);
        if !location.placed.rank.3 {
            notes.push(Note::finding(&location.place, &format!("path: {}", route.path), reason));
        }
        notes.extend(route.refused.drain(..).filter_map(|(_, note)| match note {
            Note::Origin(place, text) => Some(Note::finding(&place, &text, reason)),
            _ => None,
        }));
    }
    *locations = kept;
    notes
}

/// Closes routes that would get requests of others which restrict access, since nginx matches more paths with these; and notes the
/// limits that such requests lose.
pub(super) fn close_others(locations: &mut [Location]) {
    for index in 0..locations.len() {
        let (before, after) = locations.split_at_mut(index + 1);
        let own = &mut before[index];
        if !own.is_narrower {
            continue;
        }
        for other in after.iter_mut().filter(|other| gets_requests_of(other, own)) {
            let route = &mut other.placed.route;
            let loses = |limit: &String| !route.limits.contains(limit);
            if own.placed.route.limits.iter().any(loses) && matches!(route.target, TomlTarget::Upstream(_)) {
                let reason =
                    format!("it is lost for paths in another case, which get the route of {}", route.path);
                route.notes.extend(lost_limits(&own.placed.route, &reason));
            }
            let admits =
                |(condition, _): &(Condition, Note)| route.refused.iter().all(|(it, _)| it != condition);
            let restricts = own.is_closed || own.placed.route.refused.iter().any(admits);
            if restricts && other.service == own.service && matches!(route.target, TomlTarget::Upstream(_)) {
                let reason = format!(
                    "requests for {} in another case would reach the same service by this route, without its restrictions: they get 501 \
                     until you replace it",
                    own.placed.route.path
                );
                route.notes.push(Note::finding(&other.place, &format!("path: {}", route.path), reason));
                route.target = TomlTarget::missing();
            }
        }
    }
}

/// Whether a route may get requests that nginx serves by another location, which it prefers: in another case, or with another
/// character in place of a dot.
fn gets_requests_of(other: &Location, own: &Location) -> bool {
    let start = |location: &Location, ends: &[char]| {
        let path = location.placed.route.path.to_ascii_lowercase();
        path.split(ends).next().unwrap_or_default().to_owned()
    };
    let is_pattern = other.placed.route.path.contains(['*', '{']);
    let (start_of_other, start_of_own) = (start(other, &['*', '{']), start(own, &['*', '{', '.']));
    other.placed.host == own.placed.host
        && (start_of_other.starts_with(&start_of_own)
            || is_pattern && start_of_own.starts_with(&start_of_other))
}

/// The routes, with redirects to HTTPS: one for a host all of whose routes have it, or else one for each of these.
pub(super) fn with_redirects(locations: Vec<Location>) -> Vec<Placed<Rank>> {
    let redirect = |path: &str| TomlRoute {
        scheme: Some("http"),
        path: path.to_owned(),
        target: TomlTarget::Redirect { status: 308, location: "https://{host}{path_and_query}".to_owned() },
        notes: vec![Note::text("Requests by plain HTTP are redirected, as ssl-redirect says.")],
        ..TomlRoute::default()
    };
    let mut placed: Vec<Placed<Rank>> = Vec::new();
    for location in &locations {
        let Placed { host, rank, .. } = &location.placed;
        let mut same = locations.iter().filter(|other| other.placed.host == *host);
        if !location.redirects_to_https {
            continue;
        }
        let (path, rank) = if same.all(|it| it.redirects_to_https) {
            ("/*", (false, false, Reverse(usize::MAX), false))
        } else {
            (&*location.placed.route.path, *rank)
        };
        if !placed.iter().any(|known| known.host == *host && known.route.path == path) {
            placed.push(Placed { host: host.clone(), rank, route: redirect(path) });
        }
    }
    placed.extend(locations.into_iter().map(|location| location.placed));
    placed
}
