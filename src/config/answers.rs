//! `[answers]` and `[log]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tracing::Level;

use super::headers;
use super::reader::Item;
use crate::proxy::{CustomDenial, Escaping, RateHeaders, ResponsePolicy, Template};
use crate::telemetry::{AccessLog, AccessOnly, LogSpec};

const RETRY_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(8_760);
/// Of something, from nothing to all of it.
const SHARE: RangeInclusive<f64> = 0.0..=1.0;

/// Reads how answers speak of limits.
pub(super) fn answers(item: Option<Item<'_>>) -> Option<ResponsePolicy> {
    let default = ResponsePolicy::default();
    let Some(item) = item else { return Some(default) };
    let mut table = item.table("[answers]")?;
    let rate_headers = table.item("rate_headers").map_or(Some(default.rate_headers), rate_headers);
    let reset_is_epoch = table
        .item("reset")
        .map_or(Some(default.reset_is_epoch), |item| item.choice(&[("delta", false), ("epoch", true)], &[]));
    let retry_after_max = table
        .item("retry_after_max")
        .map_or(Some(default.retry_after_max), |item| item.duration_or_off(&RETRY_AFTER));
    let jitter = table
        .item("retry_after_jitter")
        .map_or(Some(default.retry_after_jitter), |item| item.decimal(&SHARE));
    let denied = table.item("denied").map_or(Some(None), |item| denied(item).map(Some));
    table.close();
    Some(ResponsePolicy {
        rate_headers: rate_headers?,
        reset_is_epoch: reset_is_epoch?,
        retry_after_max: retry_after_max?,
        retry_after_jitter: jitter?,
        denied: denied?,
    })
}

fn rate_headers(item: Item<'_>) -> Option<RateHeaders> {
    let of = |x_ratelimit, draft_11| RateHeaders { x_ratelimit, draft_11 };
    let choices = [
        ("x-ratelimit", of(true, false)),
        ("draft-11", of(false, true)),
        ("both", of(true, true)),
        ("none", of(false, false)),
    ];
    item.choice(&choices, &[])
}

fn denied(item: Item<'_>) -> Option<CustomDenial> {
    let mut table = item.table("`denied`")?;
    let status =
        table.item("status").map_or(Some(StatusCode::TOO_MANY_REQUESTS), |item| status(item, &(400..=599)));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let content_type = table.item("content_type").map_or(Some(plain), |item| headers::value(&item.string()?));
    let escaping = content_type.as_ref().map_or(Escaping::None, Escaping::of);
    let body = table
        .required("body", "body = \"wait {retry_after} seconds\"")
        .and_then(Item::string)
        .map(|text| Template::parse(&text.value, escaping));
    table.close();
    Some(CustomDenial { status: status?, content_type: content_type?, body: body? })
}

/// A status within bounds.
pub(super) fn status(item: Item<'_>, range: &RangeInclusive<u64>) -> Option<StatusCode> {
    let status = item.integer(range)?;
    u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok())
}

/// Reads what is logged.
pub(super) fn log(item: Option<Item<'_>>) -> Option<LogSpec> {
    let default = LogSpec::default();
    let Some(item) = item else { return Some(default) };
    let mut table = item.table("[log]")?;
    let access = table.item("access").map_or(Some(default.access), |item| {
        item.choice(&[("json", AccessLog::Json), ("text", AccessLog::Text), ("off", AccessLog::Off)], &[])
    });
    let access_only = table.item("access_only").map_or(Some(default.access_only), |item| {
        item.choice(&[("all", AccessOnly::All), ("denied", AccessOnly::Denied)], &[])
    });
    let access_sample =
        table.item("access_sample").map_or(Some(default.access_sample), |item| item.decimal(&SHARE));
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    let level = table.item("level").map_or(Some(default.level), |item| item.choice(&levels, &[]));
    table.close();
    Some(LogSpec { level: level?, access: access?, access_only: access_only?, access_sample: access_sample? })
}
