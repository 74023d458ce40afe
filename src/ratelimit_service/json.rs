//! The JSON form of responses, and of values of requests (`ProtoJSON`), for `POST /json`.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::messages::{Code, DescriptorStatus, Duration, HeaderValue, RateLimitResponse, Unit};

/// The text of a response. Members with default values are left out, as `ProtoJSON` requires.
pub(super) fn response(response: &RateLimitResponse) -> String {
    let mut object = Map::new();
    object.insert("overallCode".into(), code(response.overall_code).into());
    if !response.statuses.is_empty() {
        object.insert("statuses".into(), response.statuses.iter().map(status).collect());
    }
    let RateLimitResponse { response_headers_to_add, request_headers_to_add, .. } = response;
    let header = |header: &HeaderValue| json!({ "key": header.key, "value": header.value });
    for (name, headers) in
        [("responseHeadersToAdd", response_headers_to_add), ("requestHeadersToAdd", request_headers_to_add)]
    {
        if !headers.is_empty() {
            object.insert(name.into(), headers.iter().map(header).collect());
        }
    }
    Value::Object(object).to_string()
}

fn status(status: &DescriptorStatus) -> Value {
    let mut object = Map::new();
    object.insert("code".into(), code(status.code).into());
    if let Some(limit) = &status.current_limit {
        let mut current = Map::new();
        if !limit.name.is_empty() {
            current.insert("name".into(), limit.name.clone().into());
        }
        if limit.requests_per_unit > 0 {
            current.insert("requestsPerUnit".into(), limit.requests_per_unit.into());
        }
        if limit.unit() != Unit::Unknown {
            current.insert("unit".into(), limit.unit().name().into());
        }
        object.insert("currentLimit".into(), current.into());
    }
    if status.limit_remaining > 0 {
        object.insert("limitRemaining".into(), status.limit_remaining.into());
    }
    if let Some(reset) = &status.duration_until_reset {
        object.insert("durationUntilReset".into(), duration(reset).into());
    }
    object.into()
}

fn code(code: i32) -> &'static str {
    match Code::try_from(code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        _ => "UNKNOWN",
    }
}

/// A span of time in seconds, with three digits for milliseconds or six for microseconds if there are any.
fn duration(duration: &Duration) -> String {
    let Duration { seconds, nanos } = duration;
    match nanos {
        0 => format!("{seconds}s"),
        nanos if nanos % 1_000_000 == 0 => format!("{seconds}.{:03}s", nanos / 1_000_000),
        nanos => format!("{seconds}.{:06}s", nanos / 1_000),
    }
}

/// A number, or a text with one: 64-bit numbers are texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number that is not negative, or a text")]
enum Written {
    Number(u64),
    Text(String),
    Null,
}

/// Reads a value, or null in place of the default.
pub(super) fn or_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// Reads a number that may be a text.
pub(super) fn number<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64> + FromStr + Default,
    <T as FromStr>::Err: Display,
{
    match Written::deserialize(input)? {
        Written::Number(number) => {
            T::try_from(number).map_err(|_| D::Error::custom("the number is too large"))
        }
        Written::Text(text) => text.parse().map_err(D::Error::custom),
        Written::Null => Ok(T::default()),
    }
}

/// Reads a unit of time, by its name or its number.
pub(super) fn unit<'de, D: Deserializer<'de>>(input: D) -> Result<i32, D::Error> {
    match Written::deserialize(input)? {
        Written::Number(number) => {
            i32::try_from(number).map_err(|_| D::Error::custom("there is no such unit"))
        }
        Written::Text(name) => {
            let unit =
                Unit::named(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is not a unit")))?;
            Ok(unit as i32)
        }
        Written::Null => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{
        DescriptorEntry, EnvoyRateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    };
    use super::*;

    #[test]
    fn requests_have_names_in_both_forms() {
        let camel = r#"{"domain": "d", "hitsAddend": "3", "descriptors": [{"entries": [{"key": "k", "value": "v"}],
            "hitsAddend": "0", "limit": {"requestsPerUnit": 5, "unit": "HOUR"}}]}"#;
        let snake = r#"{"domain": "d", "hits_addend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}],
            "hits_addend": 0, "limit": {"requests_per_unit": "5", "unit": 3}}]}"#;
        let [camel, snake]: [RateLimitRequest; 2] =
            [camel, snake].map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(camel, snake);
        assert_eq!((camel.hits_addend, camel.descriptors[0].hits_addend.unwrap().value), (3, 0));
        for wrong in [
            r#"{"domain": 5}"#,
            r#"{"domains": "d"}"#,
            r#"{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#,
            r#"{"hitsAddend": -1}"#,
            r#"{"hitsAddend": 4294967296}"#,
            "",
        ] {
            assert!(serde_json::from_str::<RateLimitRequest>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn null_is_the_default_of_each_field() {
        let entry = r#"{"entries": [{"key": null, "value": null}], "limit": {"requestsPerUnit": null, "unit": null},
            "hitsAddend": null, "isNegativeHits": null}"#;
        let text = format!(
            r#"{{"domain": null, "hitsAddend": null, "descriptors": [{entry}, {{"entries": null, "limit": null}}]}}"#
        );
        let read: RateLimitRequest = serde_json::from_str(&text).unwrap();
        let limit = Some(RateLimitOverride::default());
        let first =
            RateLimitDescriptor { entries: vec![DescriptorEntry::default()], limit, ..Default::default() };
        assert_eq!(read.descriptors, [first, RateLimitDescriptor::default()]);
        assert_eq!((&*read.domain, read.hits_addend), ("", 0));
        let empty: RateLimitRequest = serde_json::from_str(r#"{"descriptors": null}"#).unwrap();
        assert_eq!(empty, RateLimitRequest::default());
    }

    #[test]
    fn an_error_says_what_a_number_is() {
        let error = serde_json::from_str::<RateLimitRequest>(r#"{"hitsAddend": -1}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("it must be a number that is not negative, or a text"),
            "{error}"
        );
    }

    #[test]
    fn responses_leave_default_values_out() {
        let status = |code, remaining, nanos| DescriptorStatus {
            code,
            current_limit: Some(EnvoyRateLimit { requests_per_unit: 5, unit: 2, name: "a".into() }),
            limit_remaining: remaining,
            duration_until_reset: Some(Duration { seconds: 7, nanos }),
        };
        let message = RateLimitResponse {
            overall_code: 2,
            statuses: vec![
                status(2, 0, 0),
                status(1, 4, 500_000_000),
                DescriptorStatus { code: 1, ..DescriptorStatus::default() },
            ],
            response_headers_to_add: vec![HeaderValue { key: "x".into(), value: "1".into() }],
            request_headers_to_add: Vec::new(),
        };
        assert_eq!(
            serde_json::from_str::<Value>(&response(&message)).unwrap(),
            json!({
                "overallCode": "OVER_LIMIT",
                "statuses": [
                    { "code": "OVER_LIMIT", "currentLimit": { "name": "a", "requestsPerUnit": 5, "unit": "MINUTE" },
                      "durationUntilReset": "7s" },
                    { "code": "OK", "currentLimit": { "name": "a", "requestsPerUnit": 5, "unit": "MINUTE" },
                      "limitRemaining": 4, "durationUntilReset": "7.500s" },
                    { "code": "OK" },
                ],
                "responseHeadersToAdd": [{ "key": "x", "value": "1" }],
            })
        );
    }
}
