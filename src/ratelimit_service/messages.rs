//! The messages of the rate-limit service: `envoy.service.ratelimit.v3`, with what it needs of
//! `envoy.extensions.common.ratelimit.v3` and `grpc.health.v1`. They are written by hand, so that a build needs no protoc; the
//! numbers and names are those of the proto files.

use serde::Deserialize;

use super::json;

/// A request to the service.
#[derive(Clone, PartialEq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimitRequest {
    /// The container of the rules.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub domain: String,
    /// The descriptors that are counted.
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "json::or_default")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The hits of each descriptor that names no number of its own; 0 counts as 1.
    #[prost(uint32, tag = "3")]
    #[serde(alias = "hits_addend", deserialize_with = "json::number")]
    pub hits_addend: u32,
}

/// A list of entries, which is counted as one.
#[derive(Clone, PartialEq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimitDescriptor {
    /// The entries, in their order.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub entries: Vec<DescriptorEntry>,
    /// Numbers in place of those of the configuration.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The hits of this descriptor; 0 only checks.
    #[prost(message, optional, tag = "3")]
    #[serde(alias = "hits_addend")]
    pub hits_addend: Option<UInt64Value>,
    /// Whether hits are given back.
    #[prost(bool, tag = "4")]
    #[serde(alias = "is_negative_hits", deserialize_with = "json::or_default")]
    pub is_negative_hits: bool,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DescriptorEntry {
    /// The key.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "json::or_default")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "json::or_default")]
    pub value: String,
}

/// Numbers in place of those of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimitOverride {
    /// The hits in one unit of time.
    #[prost(uint32, tag = "1")]
    #[serde(alias = "requests_per_unit", deserialize_with = "json::number")]
    pub requests_per_unit: u32,
    /// The unit of time.
    #[prost(enumeration = "Unit", tag = "2")]
    #[serde(deserialize_with = "json::unit")]
    pub unit: i32,
}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message, Deserialize)]
#[serde(transparent)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    #[serde(deserialize_with = "json::number")]
    pub value: u64,
}

/// Whether hits are within a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Not known.
    Unknown = 0,
    /// The hits are within the limit.
    Ok = 1,
    /// The hits are over the limit.
    OverLimit = 2,
}

/// The answer of the service.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RateLimitResponse {
    /// Over the limit if one of the descriptors is.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// One for each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Headers for the response to the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// Headers for the request to the server.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
}

impl RateLimitResponse {
    /// Whether one of the descriptors is over the limit.
    pub fn is_over(&self) -> bool {
        self.overall_code() == Code::OverLimit
    }
}

/// The answer for one descriptor.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DescriptorStatus {
    /// Whether it is within its limits.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The limit that decides.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<EnvoyRateLimit>,
    /// The remaining units of the limit.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// When all of it is available again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// A limit.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct EnvoyRateLimit {
    /// The hits in one unit of time.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The unit of time.
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest in nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A header.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct HeaderValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A request for the health of a service.
#[derive(Clone, PartialEq, Eq, ::prost::Message)]
pub struct HealthCheckRequest {
    /// The service; empty for the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The health of a service.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message)]
pub struct HealthCheckResponse {
    /// Whether it serves.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Not known.
    Unknown = 0,
    /// It does.
    Serving = 1,
    /// It does not.
    NotServing = 2,
    /// There is no such service.
    ServiceUnknown = 3,
}

/// A unit of time: of a limit in a response, and, with the same numbers, of one in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ::prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None of the others.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// Seven days.
    Week = 7,
}

impl Unit {
    /// All units with their length in seconds and their names in JSON.
    const ALL: [(Self, u64, &'static str); 7] = [
        (Self::Second, 1, "SECOND"),
        (Self::Minute, 60, "MINUTE"),
        (Self::Hour, 3_600, "HOUR"),
        (Self::Day, 86_400, "DAY"),
        (Self::Week, 604_800, "WEEK"),
        (Self::Month, 2_592_000, "MONTH"),
        (Self::Year, 31_536_000, "YEAR"),
    ];

    /// The length in seconds; none of an unknown unit.
    pub fn seconds(self) -> Option<u64> {
        Self::ALL.iter().find(|(unit, ..)| *unit == self).map(|(_, seconds, _)| *seconds)
    }

    /// The unit of so many seconds.
    pub fn of_seconds(seconds: u64) -> Self {
        Self::ALL.iter().find(|(_, length, _)| *length == seconds).map_or(Self::Unknown, |(unit, ..)| *unit)
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(unit, ..)| *unit == self).map_or("UNKNOWN", |(.., name)| *name)
    }

    /// The unit of this name.
    pub fn named(text: &str) -> Option<Self> {
        let unknown = (text == "UNKNOWN").then_some(Self::Unknown);
        Self::ALL.iter().find(|(.., name)| *name == text).map(|(unit, ..)| *unit).or(unknown)
    }
}
