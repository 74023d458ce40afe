//! `[answers]`.

use http::StatusCode;

use super::headers;
use super::item::Item;
use super::keys::keys;
use super::keys::kinds::words;
use super::table::Table;
use crate::proxy::{CustomReplies, CustomReply, Escaping, RateHeaders, ResponsePolicy, Template};

words!(RateHeadersWords: RateHeaders = [
    ("x-ratelimit", RateHeaders { x_ratelimit: true, draft_11: false, openai: false }),
    ("draft-11", RateHeaders { x_ratelimit: false, draft_11: true, openai: false }),
    ("both", RateHeaders { x_ratelimit: true, draft_11: true, openai: false }),
    ("openai", RateHeaders { x_ratelimit: false, draft_11: false, openai: true }),
    ("none", RateHeaders { x_ratelimit: false, draft_11: false, openai: false }),
]);
words!(ResetWords: bool = [("delta", false), ("epoch", true)]);

keys! {
    /// The keys of `[answers]`.
    AnswersKeys {
        /// Rate-limit headers: `X-RateLimit-*`, or `"draft-11"` for `RateLimit-Policy` and `RateLimit`, `"both"`,
        /// `"openai"` for `x-ratelimit-limit-tokens` and the others of OpenAI, `"none"`
        rate_headers: Choice<RateHeadersWords> = "x-ratelimit", by hand;
        /// `X-RateLimit-Reset` in seconds from now, or `"epoch"` as Unix time
        reset: Choice<ResetWords> = "delta", by hand;
        /// The highest value of `Retry-After`; the body still has the whole wait
        retry_after_max: DurationOrOff<SECOND, YEAR> = "off", by hand;
        /// Up to this share is added to `Retry-After` at random
        retry_after_jitter: Decimal<0, 1> = 0.0, by hand;
        /// The response to a request that a limit denies with 429, such as `{ body = "wait {retry_after} seconds"
        /// }`
        denied: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 401: a credential or a key part is missing or not known
        unauthorized: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 403: the client is blocked, or its tier may not use the route
        forbidden: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 404: no route matches
        not_found: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 400, 405, 408, 431 and 501: the request is not accepted as it is
        bad_request: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 413: the body is larger than `max_body`
        payload_too_large: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 503: limits can't be checked, or no connection to the upstream is free
        unavailable: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 502 and 508: the upstream gave no valid response, or the request loops
        bad_gateway: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
        /// The same for 504: the upstream did not respond in time
        timeout: KeyTable<AnswerKeys>, or "problem+json" => custom_reply;
    }
    reads CustomReplies(table)
}

keys! {
    /// The keys of `denied` and of the other responses.
    AnswerKeys {
        /// Another status
        status: Integer<400, 599, StatusCode>, or "the same";
        /// The media type of the body
        content_type: Text = "text/plain; charset=utf-8";
        /// The body; see below for its placeholders
        body: Text, required "wait {retry_after} seconds";
    }
}

/// Reads `[answers]`.
pub(super) fn answers(table: Table<'_, AnswersKeys>) -> Option<ResponsePolicy> {
    let (rate_headers, reset_is_epoch) = (table.rate_headers().read(), table.reset().read());
    let (retry_after_max, jitter) = (table.retry_after_max().read(), table.retry_after_jitter().read());
    let custom = AnswersKeys::read(&table);
    table.close();
    Some(ResponsePolicy {
        rate_headers: rate_headers?,
        reset_is_epoch: reset_is_epoch?,
        retry_after_max: retry_after_max?,
        retry_after_jitter: jitter?,
        custom: Box::new(custom?),
    })
}

fn custom_reply(item: Item<'_>) -> Option<CustomReply> {
    let table = Table::<AnswerKeys>::of(item, format!("`{}`", item.name))?;
    let status = table.status().read();
    let content_type = table.content_type().read().and_then(|text| headers::value(&text));
    let escaping = content_type.as_ref().map_or(Escaping::None, Escaping::of);
    let body = table.body().read().map(|text| Template::parse(&text.value, escaping));
    table.close();
    Some(CustomReply { status: status.ok()?, content_type: content_type?, body: body? })
}
