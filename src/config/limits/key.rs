//! A limit's `key`.

use http::StatusCode;

use super::key_form;
use super::limit_keys::LimitKeys;
use crate::config::item::{Item, Text};
use crate::config::table::Table;
use crate::gate::{KeyPart, OnMissing};
use crate::suggest::nearest;

/// Reads one part or several.
pub(super) fn key(item: Item<'_>) -> Option<Vec<KeyPart>> {
    if !item.is_array() {
        return key_part(item).map(|part| vec![part]);
    }
    let items = item.list("")?;
    if items.is_empty() {
        let problem = item.error("a key needs at least one part");
        return item.reject(problem.help("for one count of all requests write: key = \"global\""));
    }
    item.list_of("", key_part)
}

/// Reads one part.
pub(super) fn key_part(item: Item<'_>) -> Option<KeyPart> {
    let text =
        item.string_like("a key part or an array of them", "such as \"client_ip\" or \"header:x-api-key\"")?;
    part(&text, &text.value)
}

/// Parses a part; problems are reported at `text`, which contains it.
pub(in crate::config) fn part(text: &Text<'_>, written: &str) -> Option<KeyPart> {
    if let Some(part) = KeyPart::parse(written) {
        return Some(part);
    }
    let (kind, name) = written.split_once(':').map_or((written, None), |(kind, name)| (kind, Some(name)));
    let problem = text.error(format!("{} is not a key part", text.quoted()));
    let named =
        KeyPart::FORMS.iter().find(|form| form.split_once(':').is_some_and(|(named, _)| named == kind));
    let kinds = KeyPart::FORMS.iter().map(|form| form.split(':').next().unwrap_or(form));
    let near = nearest(kind, kinds);
    let form = match (named, near) {
        (Some(&"tls:subject"), _) => Some("write \"tls:subject\"".to_owned()),
        (Some(form), _) if name.is_none_or(str::is_empty) => Some(format!("add the name: \"{form}\"")),
        (None, Some(near)) if near == kind => Some(format!("write \"{near}\" without a name")),
        _ => None,
    };
    // Messages do not repeat values from the environment.
    let before = text.value.strip_suffix(written).unwrap_or_default();
    let cure = form.or_else(|| if text.from_env { None } else { key_form::cure(before, written) });
    text.reject(problem.help(match (cure, named, near) {
        (Some(cure), ..) => cure,
        (None, Some(&"body:/FIELD"), _) => {
            "write a JSON Pointer (RFC 6901) after `body:`, such as \"body:/user/name\"; a slash in a name is written as ~1".to_owned()
        }
        (None, Some(_), _) => format!("the name after `{kind}:` is not valid"),
        (None, None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None, None) => format!("the parts are {}", KeyPart::FORMS.join(", ")),
    }))
}

/// Reads the status of a request that is denied because it lacks a part.
pub(super) fn missing_status(
    table: &Table<'_, LimitKeys>,
    on_missing: Option<OnMissing>,
) -> Option<StatusCode> {
    let status = table.missing_status().read()?;
    if let Some(item) = table.missing_status().given()
        && on_missing.is_some_and(|on_missing| on_missing != OnMissing::Deny)
    {
        let problem = item.error(
            "`missing_status` is for requests that are denied, and this limit denies none that lack a part",
        );
        return item.reject(problem.help("add on_missing = \"deny\", or leave `missing_status` out"));
    }
    Some(status)
}
