//! A proxy with a listener of the rate-limit service, and requests to it.

use std::net::SocketAddr;

use prost::Message as _;
use serde_json::{Value, json};

use super::messages::{Descriptor, Pair, RateLimitRequest, RateLimitResponse};
use crate::support::{Client, GrpcClient, RedisServer, Tidegate};

pub const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A proxy whose second listener is the service.
pub struct Service {
    pub proxy: Tidegate,
    pub address: SocketAddr,
}

/// The file of a proxy with these rules.
pub fn file(rules: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nserve = \"envoy-ratelimit\"\n{rules}"
    )
}

impl Service {
    /// Starts one that counts in this process.
    #[track_caller]
    pub fn start(rules: &str) -> Self {
        Self::of(Tidegate::start(&file(rules)))
    }

    /// Starts one that counts in this Redis.
    #[track_caller]
    pub fn start_with(redis: &RedisServer, rules: &str) -> Self {
        Self::of(Tidegate::start_with(redis, &file(rules)))
    }

    #[track_caller]
    pub fn of(proxy: Tidegate) -> Self {
        let address = proxy.addresses(2)[1];
        Self { proxy, address }
    }

    /// Sends a request in JSON; returns the status and the response.
    #[track_caller]
    pub fn json(&self, request: &Value) -> (u16, Value) {
        let text = request.to_string();
        let request =
            format!("POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        let response = Client::connect(self.address).ask(&request);
        (response.status(), serde_json::from_slice(&response.body).unwrap_or(Value::Null))
    }

    /// Sends descriptors, written `key=value,key=value`; returns whether they are within their limits.
    #[track_caller]
    pub fn allows(&self, domain: &str, descriptors: &[&str]) -> bool {
        let descriptors: Vec<Value> = descriptors.iter().map(|text| json_descriptor(text)).collect();
        let (status, response) = self.json(&json!({ "domain": domain, "descriptors": descriptors }));
        match (status, response["overallCode"].as_str()) {
            (200, Some("OK")) => true,
            (429, Some("OVER_LIMIT")) => false,
            other => panic!("{other:?}: {response}"),
        }
    }

    /// How many of these requests in a row are within the limits.
    #[track_caller]
    pub fn allowed(&self, times: usize, domain: &str, descriptors: &[&str]) -> usize {
        (0..times).filter(|_| self.allows(domain, descriptors)).count()
    }

    pub async fn client(&self) -> GrpcClient {
        GrpcClient::connect(format!("http://{}", self.address), None).await
    }
}

/// A descriptor in JSON, from `key=value,key=value`.
pub fn json_descriptor(text: &str) -> Value {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        json!({ "key": key, "value": value })
    };
    json!({ "entries": text.split(',').map(entry).collect::<Vec<_>>() })
}

/// A descriptor as a message, from `key=value,key=value`.
pub fn descriptor(text: &str) -> Descriptor {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        Pair { key: key.to_owned(), value: value.to_owned() }
    };
    Descriptor { entries: text.split(',').map(entry).collect(), ..Descriptor::default() }
}

/// A request with descriptors, written `key=value,key=value`.
pub fn rate_limit_request(domain: &str, descriptors: &[&str]) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|text| descriptor(text)).collect();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// Asks over gRPC.
pub async fn should_rate_limit(client: &GrpcClient, request: &RateLimitRequest) -> RateLimitResponse {
    let response = client.unary(METHOD, request.encode_to_vec()).await.unwrap();
    RateLimitResponse::decode(response.into_inner()).unwrap()
}
