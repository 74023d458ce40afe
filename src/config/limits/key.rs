//! A limit's `key`.

use std::ops::RangeInclusive;

use http::StatusCode;

use crate::config::answers;
use crate::config::reader::{Item, Text};
use crate::gate::{KeyPart, OnMissing};
use crate::suggest::nearest;

/// Statuses of a refusal that is the client's fault.
const MISSING: RangeInclusive<u64> = 400..=499;

/// Reads one part or several.
pub(super) fn key(item: Item<'_>) -> Option<Vec<KeyPart>> {
    if !item.is_array() {
        return key_part(item).map(|part| vec![part]);
    }
    let items = item.list("")?;
    if items.is_empty() {
        let problem = item.error("a key needs at least one part");
        return item.refuse(problem.help("for one count for everybody write: key = \"global\""));
    }
    let parts: Vec<Option<KeyPart>> = items.into_iter().map(key_part).collect();
    parts.into_iter().collect()
}

/// Reads one part.
pub(super) fn key_part(item: Item<'_>) -> Option<KeyPart> {
    let text =
        item.string_like("a key part or an array of them", "such as \"client_ip\" or \"header:x-api-key\"")?;
    part(&text, &text.value)
}

/// Reads the part that stands in a text.
pub(in crate::config) fn part(text: &Text<'_>, spelled: &str) -> Option<KeyPart> {
    if let Some(part) = KeyPart::parse(spelled) {
        return Some(part);
    }
    let (kind, name) = spelled.split_once(':').map_or((spelled, None), |(kind, name)| (kind, Some(name)));
    let problem = text.error(format!("{} is not a key part", text.quoted()));
    let named =
        KeyPart::FORMS.iter().find(|form| form.split_once(':').is_some_and(|(named, _)| named == kind));
    let kinds = KeyPart::FORMS.iter().map(|form| form.split(':').next().unwrap_or(form));
    text.refuse(match (named, nearest(kind, kinds)) {
        (Some(&"tls:subject"), _) => problem.help("write \"tls:subject\""),
        (Some(form), _) if name.is_none_or(str::is_empty) => problem.help(format!("say which: \"{form}\"")),
        (Some(_), _) => problem.help(format!("what stands after `{kind}:` can't be the name of one")),
        (None, Some(near)) if near == kind => problem.help(format!("write \"{near}\" alone")),
        (None, Some(near)) => problem.help(format!("did you mean `{near}`?")),
        (None, None) => problem.help(format!("the parts are {}", KeyPart::FORMS.join(", "))),
    })
}

/// Reads the status of a request that is refused because it lacks a part.
pub(super) fn missing_status(item: Option<Item<'_>>, on_missing: Option<OnMissing>) -> Option<StatusCode> {
    let Some(item) = item else { return Some(StatusCode::FORBIDDEN) };
    let status = answers::status(item, &MISSING)?;
    if on_missing.is_some_and(|on_missing| on_missing != OnMissing::Deny) {
        let problem =
            item.error("`missing_status` is for requests that are refused, and this limit refuses none");
        return item.refuse(problem.help("add on_missing = \"deny\", or leave `missing_status` out"));
    }
    Some(status)
}

/// Reads what becomes of a request that lacks a part.
pub(super) fn on_missing(item: Option<Item<'_>>) -> Option<OnMissing> {
    use OnMissing::{ClientIp, Deny, Skip};
    let choices = [("client_ip", ClientIp), ("skip", Skip), ("deny", Deny)];
    item.map_or(Some(OnMissing::default()), |item| item.choice(&choices, &[]))
}
