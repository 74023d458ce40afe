//! The classes of requests under overload: `priority` and `priority_from` of routes, and `priorities` of `[consumers]`.

use std::ops::Range;

use http::header::HeaderName;

use super::item::Item;
use super::keys::kinds::{Choice, ReadKind as _, words};
use super::route_keys::RouteKeys;
use super::table::{Name, Table, entries};
use super::upstreams::ReadUpstreams;
use crate::gate::Priority;
use crate::overload::Class;
use crate::proxy::AdmissionRule;
use crate::upstream::UpstreamId;

words!(ClassWords: Class = [
    ("critical", Class::Critical),
    ("high", Class::High),
    ("normal", Class::Normal),
    ("low", Class::Low)
]);

/// How requests are admitted to an upstream, if it has `overload`.
pub(super) fn admission(upstreams: &ReadUpstreams, id: UpstreamId) -> Option<Box<AdmissionRule>> {
    let fair_by = upstreams.fair_by(id)?.spec.clone();
    Some(Box::new(AdmissionRule { fair_by, route: 0 }))
}

/// Reads `priority` and `priority_from` of a route.
pub(super) fn of_route(table: &Table<'_, RouteKeys>) -> Option<Priority> {
    let (class, header) = (table.priority().read(), table.priority_from().with(header));
    Some(Priority { class: class?, header: header.ok()? })
}

/// The span of the priority of a route, if it has one.
pub(super) fn span(table: &Table<'_, RouteKeys>) -> Option<Range<usize>> {
    let given = [table.priority().given(), table.priority_from().given()];
    given.into_iter().flatten().map(Item::span).next()
}

/// Reads `header:NAME`.
fn header(item: Item<'_>) -> Option<HeaderName> {
    item.string()?.parsed("the source of a priority", "write \"header:x-priority\"", |text| {
        HeaderName::from_bytes(text.strip_prefix("header:")?.as_bytes()).ok()
    })
}

/// The class of a tier of consumers.
pub(super) struct TierClass {
    pub tier: Box<str>,
    pub class: Class,
    /// The span of the tier.
    pub span: Range<usize>,
}

/// Reads `priorities` of `[consumers]`.
pub(super) fn of_tiers(item: Item<'_>) -> Option<Vec<TierClass>> {
    let read = |(name, item): (Name<'_>, Item<'_>)| {
        let class = Choice::<ClassWords>::read(item)?;
        Some(TierClass { tier: name.text.into(), class, span: name.span })
    };
    let all: Vec<Option<TierClass>> = entries(item)?.into_iter().map(read).collect();
    all.into_iter().collect()
}
