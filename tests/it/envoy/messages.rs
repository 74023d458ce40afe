//! The messages of the rate-limit service as a client writes and reads them.

#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Pair>,
    #[prost(message, optional, tag = "2")]
    pub limit: Option<Limit>,
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<Number>,
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// An entry of a descriptor, or a header.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pair {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Number {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Limit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub unit: i32,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<Status>,
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<Pair>,
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<Pair>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<Limit>,
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Duration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A request for the health has a text, and its response a number.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Health {
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthStatus {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// `OK` and `OVER_LIMIT`.
pub const OK: i32 = 1;
pub const OVER: i32 = 2;
