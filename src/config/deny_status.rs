//! `deny_status` of limits and routes: what a client gets whose request is denied.

use http::StatusCode;

use super::item::Item;
use super::keys::kinds::{Choice, Either, Integer, ReadKind as _, Words as _, words};
use super::report::Problem;
use crate::gate::DenyStatus;

words!(CloseWords: DenyStatus = [("close", DenyStatus::Close)]);

/// A status, or `"close"`.
pub type DenyStatusKind = Either<Integer<400, 599, StatusCode>, Choice<CloseWords>>;

/// Reads `deny_status`.
pub(super) fn read(item: Item<'_>) -> Option<DenyStatus> {
    if item.integer_text().is_some() {
        return Integer::<400, 599, StatusCode>::read(item).map(DenyStatus::Status);
    }
    let text = item.string_like("a number from 400 to 599 or \"close\"", "such as 503")?;
    text.choice(CloseWords::MEANINGS, ", and a number from 400 to 599 without quotes")
}

/// Reads `deny_status` where each denial needs a response: that of a proxy for which tidegate decides.
pub(super) fn of_decisions(item: Item<'_>) -> Option<StatusCode> {
    match read(item)? {
        DenyStatus::Status(status) => Some(status),
        DenyStatus::Close => {
            let problem = item.error("a proxy that asks for a decision needs a response to each denial");
            item.reject(problem.help("write a status, such as 403"))
        }
    }
}

/// Warns of a `deny_status` in a place that denies nothing.
pub(super) fn warn(item: Item<'_>, why: &str, help: &str) {
    let problem = Problem::warning(item.span(), format!("`deny_status` changes nothing: {why}"));
    item.reader.report(problem.help(help));
}
