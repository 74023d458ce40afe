//! `[answers]`.

use http::StatusCode;

use super::headers;
use super::item::Item;
use super::keys::ANSWER;
use super::table::Table;
use crate::proxy::{CustomReplies, CustomReply, Escaping, RateHeaders, ResponsePolicy, Template};

/// Reads `[answers]`.
pub(super) fn answers(table: Table<'_>) -> Option<ResponsePolicy> {
    let rate_headers = rate_headers(&table);
    let reset_is_epoch = table.choice("reset", &[("delta", false), ("epoch", true)]);
    let retry_after_max = table.duration_or_off("retry_after_max");
    let jitter = table.decimal("retry_after_jitter");
    let custom = custom_replies(&table);
    table.close();
    Some(ResponsePolicy {
        rate_headers: rate_headers?,
        reset_is_epoch: reset_is_epoch?,
        retry_after_max: retry_after_max.ok()?,
        retry_after_jitter: jitter?,
        custom: Box::new(custom?),
    })
}

fn rate_headers(table: &Table<'_>) -> Option<RateHeaders> {
    let of = |x_ratelimit, draft_11| RateHeaders { x_ratelimit, draft_11 };
    let meanings = [
        ("x-ratelimit", of(true, false)),
        ("draft-11", of(false, true)),
        ("both", of(true, true)),
        ("none", of(false, false)),
    ];
    table.choice("rate_headers", &meanings)
}

fn custom_replies(table: &Table<'_>) -> Option<CustomReplies> {
    let read = |name| table.optional(name, custom_reply);
    // All are read before the first error ends this, so that all mistakes show at once.
    let (denied, unauthorized, forbidden) = (read("denied"), read("unauthorized"), read("forbidden"));
    let (not_found, bad_request) = (read("not_found"), read("bad_request"));
    let (payload_too_large, unavailable) = (read("payload_too_large"), read("unavailable"));
    let (bad_gateway, timeout) = (read("bad_gateway"), read("timeout"));
    Some(CustomReplies {
        denied: denied.ok()?,
        unauthorized: unauthorized.ok()?,
        forbidden: forbidden.ok()?,
        not_found: not_found.ok()?,
        bad_request: bad_request.ok()?,
        payload_too_large: payload_too_large.ok()?,
        unavailable: unavailable.ok()?,
        bad_gateway: bad_gateway.ok()?,
        timeout: timeout.ok()?,
    })
}

fn custom_reply(item: Item<'_>) -> Option<CustomReply> {
    let table = Table::of(item, format!("`{}`", item.name), &ANSWER)?;
    let status = table.optional("status", |_| status(&table, "status"));
    let content_type = table.item("content_type").string().and_then(|text| headers::value(&text));
    let escaping = content_type.as_ref().map_or(Escaping::None, Escaping::of);
    let body = table.required("body").and_then(Item::string);
    let body = body.map(|text| Template::parse(&text.value, escaping));
    table.close();
    Some(CustomReply { status: status.ok()?, content_type: content_type?, body: body? })
}

/// The status code that a key has.
pub(super) fn status(table: &Table<'_>, name: &'static str) -> Option<StatusCode> {
    let status = table.integer(name)?;
    u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok())
}
