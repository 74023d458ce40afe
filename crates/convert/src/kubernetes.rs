//! Converts objects of Kubernetes: Ingresses for ingress-nginx, `HTTPRoute`s with policies of Envoy Gateway, and the middlewares and
//! routes of Traefik.

mod aliases;
mod annotations;
mod attachment;
mod controller;
mod crds;
mod filters;
mod hosts;
mod http_route;
mod ingress;
mod known;
mod locations;
mod objects;
mod paths;
mod policy;
mod restrictions;
mod rules;
#[cfg(test)]
mod tests;

use self::crds::dynamic;
use self::hosts::joined;
use self::http_route::http_routes;
use self::ingress::ingresses;
use self::objects::{Objects, Upstreams};
use self::policy::{Policies, closes, is_applied, restricts};
use self::restrictions::restrictions;
use super::document::documents;
use super::model::{Converted, Limit, UniqueNames};
use super::note::{Note, SyntaxError};
use super::source::SourceFile;
use super::traefik;

/// What is said where limits of ingress-nginx are converted.
const PER_REPLICA: &str = "ingress-nginx counts for each address of a client, and in each of its replicas by itself: N replicas admit up \
                           to N times the number of an annotation, and the autoscaler changes N. With `[store]` all replicas of tidegate \
                           have one count. To admit as much as before, multiply `rate` and `burst` by the number of replicas; to admit \
                           what the annotations say, keep them.";
/// What is said where limits of each Envoy are converted.
const PER_ENVOY: &str = "Envoy counts `local` limits in each of its replicas by itself: N replicas admit up to N times the number. With \
                         `[store]` all replicas of tidegate have one count: multiply `rate` by the number of replicas to admit as much \
                         as before.";

/// Converts files, which are one configuration together.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let roots = documents(files, |_| false)?;
    let objects = Objects::of(&roots);
    let traefik = dynamic(&objects).map(|root| traefik::of_dynamic(&root, true));
    let mut converted = traefik.unwrap_or_default();
    converted.restrictions.extend(restrictions(&objects));
    let mut upstreams = Upstreams::beside(&converted.upstreams, &objects);
    let mut names = UniqueNames::default();
    for limit in &converted.limits {
        names.unique(&limit.name);
    }
    let mut of_ingresses = ingresses(&mut upstreams, &mut names);
    let mut policies = Policies::new(&objects);
    let (of_routes, mut notes) = http_routes(&mut upstreams, &mut policies, &mut names);
    notes.append(&mut of_ingresses.notes);
    notes.extend(policies.unused());
    notes.extend(others(&objects));
    let has_ingresses = !of_ingresses.hosts.is_empty();
    let (of_hosts, of_all, of_both) = joined([of_ingresses.hosts, of_routes]);
    notes.extend(of_both);
    let of_traefik = std::mem::take(&mut converted.routes);
    let is_mixed = !(of_traefik.is_empty() || of_hosts.is_empty() && of_all.is_empty());
    converted.routes = [of_hosts, of_traefik, of_all].concat();
    let routed: Vec<String> = converted.named_limits().cloned().collect();
    let mut limits = [of_ingresses.limits, policies.limits].into_iter();
    let [of_nginx, of_envoy] = [(); 2].map(|()| limits.next().unwrap_or_default());
    if !of_nginx.is_empty() {
        converted.notes.push(Note::text(PER_REPLICA));
    }
    if policies.has_local {
        converted.notes.push(Note::text(PER_ENVOY));
    }
    converted.notes.extend(general(has_ingresses, is_mixed));
    for limit in of_nginx.into_iter().chain(of_envoy) {
        if routed.contains(&limit.name) {
            converted.limits.push(limit);
        } else {
            notes.extend(unrouted(limit));
        }
    }
    converted.notes.append(&mut notes);
    converted.upstreams.append(&mut upstreams.all);
    converted.note_deny_statuses("ingress-nginx");
    converted.count_each_ipv6_address("These controllers count each IPv6 address by itself");
    Ok(converted)
}

/// Notes on all Ingresses, and on the objects of several controllers.
fn general(has_ingresses: bool, is_mixed: bool) -> Vec<Note> {
    let of_ingresses = "Settings of the controller are in its ConfigMap: by default ingress-nginx rejects bodies above 1 MiB \
                        (`max_body`), and it takes the address of a client from X-Forwarded-For or PROXY headers if it is configured \
                        to: write `listen`, and `trusted_proxies` of `[client_ip]` behind other proxies.";
    let of_several = "The files have routes of several controllers: those of IngressRoutes come after those of other objects for a host. \
                      Convert the objects of each controller by themselves if their clients use other addresses.";
    let notes = [(has_ingresses, of_ingresses), (is_mixed, of_several)];
    notes.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| Note::text(text)).collect()
}

/// Notes on a limit that no route has.
fn unrouted(limit: Limit) -> impl Iterator<Item = Note> {
    limit.notes.into_iter().filter_map(|note| match note {
        Note::Origin(place, text) => Some(Note::finding(&place, &text, "no route that was converted has it")),
        _ => None,
    })
}

/// Notes on the objects that are not converted.
fn others(objects: &Objects<'_>) -> Vec<Note> {
    let mut notes = Vec::new();
    for object in objects.all() {
        let reason = match (object.kind, object.node.get("kind").text()) {
            ("IngressRoute", _) => {
                notes.extend(object.spec.remarks(&["entryPoints", "routes", "tls"]));
                continue;
            }
            // It is read with the services of routes.
            ("", Some("ReferenceGrant")) => continue,
            ("TraefikService", _) => "routes that name it get 501",
            ("", Some("ConfigMap")) => {
                "of a ConfigMap only the settings of ingress-nginx are read that limit requests or restrict access"
            }
            ("", _) if restricts(object) => {
                "ACCESS IS OPEN to requests that it refuses: it may restrict access to what it selects, which is not converted"
            }
            ("", _) if closes(object) && is_applied(objects, object) => {
                "it restricts access to what it targets, which is not converted"
            }
            ("", _) if closes(object) => {
                "ACCESS IS OPEN to requests that it refuses: it may restrict access to what it targets, and no HTTPRoute of the files is \
                 that"
            }
            ("", Some(_)) => "objects of this kind are not converted",
            ("", None) => "this is no object of Kubernetes",
            _ => continue,
        };
        notes.push(object.finding(reason));
    }
    notes
}
