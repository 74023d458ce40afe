//! Checks of all sections of a file together: errors, and warnings of what is valid but suspicious. Key parts that need another
//! section are checked here.

mod authorization;
mod limits;
mod listeners;
mod overload;
mod routes;
mod settlement;
mod slashes;

use super::geo;
use super::report::Problem;
use super::sections::Sections;
use crate::gate::KeyPart;
use crate::limit::PolicyId;
use crate::store::StoreSpec;
use crate::tls::ServerTls;

/// A check of the sections of a file.
type Lint = fn(&Sections<'_>) -> Vec<Problem>;

/// For a file of a proxy whose routes could be read.
const OF_ROUTES: [Lint; 28] = [
    authorization::order,
    slashes::bypassed,
    limits::uncharged,
    routes::cors_headers,
    routes::preflights,
    limits::ahead,
    routes::unreachable,
    limits::evadable,
    limits::skipping,
    limits::bodiless,
    settlement::unsent,
    settlement::tunnels,
    limits::unused,
    limits::free,
    limits::marking_for_nobody,
    listeners::unused_upstreams,
    listeners::loops,
    overload::invented_turns,
    overload::unused_priorities,
    overload::untrusted_priorities,
    overload::priorities_of_tiers,
    overload::above_connections,
    limits::instances,
    listeners::unknown_to_decisions,
    routes::only_root,
    routes::no_limits_to_show,
    listeners::descriptors,
    routes::none,
];

/// For every file.
const OF_PARTS: [Lint; 6] =
    [claims, consumers_in_redis, consumers, places, listeners::untrusted_decisions, descriptors];

/// The problems of a file, which is read for a proxy or for the library.
pub(super) fn problems(sections: &Sections<'_>, is_for_library: bool) -> Vec<Problem> {
    let first: Lint = if is_for_library { bodies } else { client_certificates };
    let of_routes = OF_ROUTES.iter().filter(|_| !is_for_library && sections.routes.is_some());
    let lints = [first].into_iter().chain(of_routes.copied()).chain(OF_PARTS);
    lints.flat_map(|lint| lint(sections)).collect()
}

/// Errors of limits and upstreams with a part that needs what the file lacks.
fn lacking(
    sections: &Sections<'_>,
    needs: impl Fn(&KeyPart) -> bool + Copy,
    verb: &str,
    lack: &str,
    help: &str,
) -> Vec<Problem> {
    let limits =
        sections.limits.with_part(needs).map(|(part, span)| (span, format!("this limit {verb} `{part}`")));
    let upstreams = sections.upstreams.with_part(needs);
    let upstreams = upstreams.map(|(part, verb, span)| (span, format!("this upstream {verb} by `{part}`")));
    let problem = |(span, title)| Problem::error(span, format!("{title}, and {lack}")).help(help).derived();
    limits.chain(upstreams).map(problem).collect()
}

/// Claims where no `[jwt]` says which tokens are trusted.
fn claims(sections: &Sections<'_>) -> Vec<Problem> {
    if !matches!(sections.jwt, Ok(None)) {
        return Vec::new();
    }
    let help = "add a table [jwt] with `jwks`, the file or the URL of the issuer's keys";
    let needs = |part: &KeyPart| matches!(part, KeyPart::Jwt(_));
    let requiring = sections.routes().iter().filter(|read| read.route.token.is_some()).map(|read| {
        let title = format!("route `{}` requires a token, and the file has no [jwt]", read.route.name);
        Problem::error(read.span.clone(), title).help(help).derived()
    });
    requiring.chain(lacking(sections, needs, "counts by", "the file has no [jwt]", help)).collect()
}

/// Consumers where no `[consumers]` says how one is identified.
fn consumers(sections: &Sections<'_>) -> Vec<Problem> {
    if sections.consumers.is_there() {
        return Vec::new();
    }
    let help = "say who the consumers are: add a table [consumers] with `file`, the file of consumers";
    lacking(sections, |part| *part == KeyPart::Consumer, "uses", "the file has no [consumers]", help)
}

/// Consumers in a Redis that the file does not have.
fn consumers_in_redis(sections: &Sections<'_>) -> Vec<Problem> {
    let spec = sections.store.as_ref().map(|store| &store.spec);
    let (Some(span), Some(StoreSpec::Memory)) = (sections.consumers.redis(), spec) else { return Vec::new() };
    let problem = Problem::error(span, "the consumers are in Redis, and [store] has no `url`");
    vec![
        problem
            .help("name the Redis: [store] url = \"redis://127.0.0.1:6379\", or `urls` of several servers")
            .derived(),
    ]
}

/// Countries and autonomous systems where the file does not name their database.
fn places(sections: &Sections<'_>) -> Vec<Problem> {
    let parts = [
        (KeyPart::Country, "country", sections.geo.has_country),
        (KeyPart::Asn, "asn", sections.geo.has_asn),
    ];
    let missing = parts.into_iter().filter(|(.., is_there)| !is_there);
    let problems = |(part, key, _): (KeyPart, &str, bool)| {
        let lack = format!("the file has no [geo] with `{key}`");
        lacking(sections, |other| *other == part, "uses", &lack, geo::cure(key))
    };
    missing.flat_map(problems).collect()
}

/// Limits that count by client certificates where no listener requests one.
fn client_certificates(sections: &Sections<'_>) -> Vec<Problem> {
    let has_requests = sections.listeners.as_ref().is_none_or(|listeners| {
        let tls = listeners.iter().filter_map(|spec| spec.tls.as_ref());
        tls.into_iter().any(ServerTls::requires_client_certificate)
    });
    let limits = sections
        .limits
        .with_part(|part| matches!(part, KeyPart::TlsSubject | KeyPart::TlsSan))
        .filter(|_| !has_requests);
    let problem = |(part, span): (&KeyPart, _)| {
        let title = format!("this limit counts by `{part}`, and no listener requests client certificates");
        let help = "name the authority that signs the certificates of clients: add `client_ca` to the `tls` of a listener";
        Problem::error(span, title).help(help).derived()
    };
    limits.map(problem).collect()
}

/// Limits that count by what the library does not see.
fn bodies(sections: &Sections<'_>) -> Vec<Problem> {
    let limits = sections.limits.with_part(|part| matches!(part, KeyPart::Body(_)));
    let problem = |(part, span): (&KeyPart, _)| {
        let title = format!("this limit counts by `{part}`, and the library does not read bodies");
        let help = "give the value in a header that the program sets, and count by `header:NAME`";
        Problem::error(span, title).help(help)
    };
    limits.map(problem).collect()
}

/// Limits that count by descriptors where requests are counted.
fn descriptors(sections: &Sections<'_>) -> Vec<Problem> {
    let (routes, limits) = (sections.routes(), &sections.limits);
    let named = |id: &PolicyId| {
        let route = routes.iter().find(|read| read.route.limits.contains(id));
        let default = sections.defaults.iter().find(|(default, _)| default == id);
        default.map(|(_, span)| span.clone()).or_else(|| route.map(|read| read.span.clone()))
    };
    let problem = |id| {
        let limit = limits.get(id)?;
        let mut parts = limit.rule.key.parts.iter().chain(limit.rule.tiers.iter().map(|tiers| &tiers.by));
        let part = parts.find(|part| matches!(part, KeyPart::Descriptor(_)))?;
        let title =
            format!("the limit `{}` counts by `{part}`, which requests do not have", limit.policy.name);
        let problem = Problem::error(named(&id)?, title).related(limits.span(id), "the limit");
        Some(problem.help("name it in the `limits` of [[descriptors]] only"))
    };
    limits.ids().filter_map(problem).collect()
}
