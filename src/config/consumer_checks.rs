//! Compares consumers with the limits and upstreams that use them.

use super::consumers::ReadConsumers;
use super::limits::ReadLimits;
use super::reader::Reader;
use super::report::Problem;
use super::store::ReadStore;
use super::upstreams::ReadUpstreams;
use crate::gate::KeyPart;
use crate::store::StoreSpec;

/// Rejects numbers of consumers for limits that the configuration does not have.
pub(super) fn check_limits(consumers: &ReadConsumers<'_>, limits: &ReadLimits) {
    for own in consumers.all_own_numbers().filter(|own| !limits.has(own.limit.text)) {
        let problem =
            Problem::error(own.limit.span.clone(), format!("unknown limit `{}`", own.limit.text)).derived();
        own.item.reader.report(match limits.nearest(own.limit.text) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help(format!("define it: [limits.{}]", own.limit.text)),
        });
    }
}

/// Rejects consumers in a Redis that the configuration does not have.
pub(super) fn check_store(consumers: &ReadConsumers<'_>, store: Option<&ReadStore>, reader: &Reader<'_>) {
    if let (Some(span), Some(StoreSpec::Memory)) = (consumers.redis(), store.map(|store| &store.spec)) {
        let problem = Problem::error(span, "the consumers are in Redis, and [store] has no `url`");
        reader.report(problem.help("name the Redis: [store] url = \"redis://127.0.0.1:6379\"").derived());
    }
}

/// Rejects limits and upstreams that use the consumer where no `[consumers]` says how one is identified.
pub(super) fn check_parts(
    has_consumers: bool,
    limits: &ReadLimits,
    upstreams: &ReadUpstreams,
    reader: &Reader<'_>,
) {
    if has_consumers {
        return;
    }
    let help = "say who the consumers are: add a table [consumers] with `file`, the file of consumers";
    let needs = |part: &KeyPart| *part == KeyPart::Consumer;
    for (part, span) in limits.with_part(needs) {
        let title = format!("this limit uses `{part}`, and the file has no [consumers]");
        reader.report(Problem::error(span, title).help(help).derived());
    }
    for (part, span) in upstreams.with_part(needs) {
        let title = format!("this upstream chooses servers by `{part}`, and the file has no [consumers]");
        reader.report(Problem::error(span, title).help(help).derived());
    }
}
