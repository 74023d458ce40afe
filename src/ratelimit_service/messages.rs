//! The messages of the rate-limit service: `envoy.service.ratelimit.v3`, with what it needs of
//! `envoy.extensions.common.ratelimit.v3` and `grpc.health.v1`. They are written by hand, so that a build needs no protoc; the
//! numbers and names are those of the proto files.

use serde::Deserialize;

use super::json_input;
use super::unit::Unit;

/// A request to the service.
#[derive(Clone, PartialEq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimitRequest {
    /// The container of the rules.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "json_input::or_default")]
    pub domain: String,
    /// What is counted.
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "json_input::or_default")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The hits of each descriptor that names no number of its own; 0 counts as 1.
    #[prost(uint32, tag = "3")]
    #[serde(alias = "hits_addend", deserialize_with = "json_input::number")]
    pub hits_addend: u32,
}

/// What is counted: a list of entries.
#[derive(Clone, PartialEq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimitDescriptor {
    /// The entries, in their order.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "json_input::or_default")]
    pub entries: Vec<Entry>,
    /// Numbers in place of those of the configuration.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The hits of this descriptor; 0 only checks.
    #[prost(message, optional, tag = "3")]
    #[serde(alias = "hits_addend")]
    pub hits_addend: Option<UInt64Value>,
    /// Whether hits are given back.
    #[prost(bool, tag = "4")]
    #[serde(alias = "is_negative_hits", deserialize_with = "json_input::or_default")]
    pub is_negative_hits: bool,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "json_input::or_default")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "json_input::or_default")]
    pub value: String,
}

/// Numbers in place of those of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RateLimitOverride {
    /// The hits in one unit of time.
    #[prost(uint32, tag = "1")]
    #[serde(alias = "requests_per_unit", deserialize_with = "json_input::number")]
    pub requests_per_unit: u32,
    /// The unit of time.
    #[prost(enumeration = "Unit", tag = "2")]
    #[serde(deserialize_with = "json_input::unit")]
    pub unit: i32,
}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, ::prost::Message, Deserialize)]
#[serde(transparent)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    #[serde(deserialize_with = "json_input::number")]
    pub value: u64,
}

/// Whether hits are within a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ::prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Not known.
    Unknown = 0,
    /// They are.
    Ok = 1,
    /// They are not.
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
