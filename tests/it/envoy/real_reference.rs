//! The examples of the reference service through the real Envoy, whose actions make the descriptors of requests.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::reference::{CASES, UNLIMITED, converted};
use super::setup::Service;
use crate::support::{Upstream, WebServer, eventually, get};

/// Requests of an example that is not limited.
const MANY: usize = 15;

/// A request of an example: its path, and its headers.
struct ExampleRequest {
    path: String,
    headers: Vec<String>,
}

/// The action that makes an entry, as applications use it for such an entry.
fn action(key: &str, value: &str) -> Value {
    match key {
        "remote_address" => json!({ "remote_address": {} }),
        "path" => json!({ "request_headers": { "header_name": ":path", "descriptor_key": key } }),
        "message_type" | "to_number" | "service" | "user" => {
            json!({ "request_headers": { "header_name": format!("x-{key}"), "descriptor_key": key } })
        }
        "ldap" | "azure" => json!({ "header_value_match": {
            "descriptor_key": key,
            "descriptor_value": value,
            "headers": [{ "name": "x-example", "present_match": true }],
        } }),
        _ => json!({ "generic_key": { "descriptor_key": key, "descriptor_value": value } }),
    }
}

fn entries(descriptor: &str) -> impl Iterator<Item = (&str, &str)> {
    descriptor.split(',').map(|entry| entry.split_once('=').unwrap())
}

/// The request from which the actions make these descriptors.
fn request(example: usize, descriptors: &[&str]) -> ExampleRequest {
    let mut request = ExampleRequest { path: "/".into(), headers: vec![format!("x-example: {example}")] };
    for (key, value) in descriptors.iter().flat_map(|descriptor| entries(descriptor)) {
        let header = match key {
            "remote_address" => format!("x-forwarded-for: {value}"),
            "path" => {
                value.clone_into(&mut request.path);
                continue;
            }
            _ => format!("x-{key}: {value}"),
        };
        if !request.headers.contains(&header) {
            request.headers.push(header);
        }
    }
    request
}

/// The route of an example.
fn route(example: usize, (domain, descriptors, _): &(&str, &[&str], usize)) -> Value {
    let actions = |descriptor: &&str| -> Value {
        let actions: Vec<Value> = entries(descriptor).map(|(key, value)| action(key, value)).collect();
        json!({ "actions": actions })
    };
    json!({
        "match": {
            "prefix": "/",
            "headers": [{ "name": "x-example", "string_match": { "exact": example.to_string() } }],
        },
        "route": { "cluster": "api" },
        "typed_per_filter_config": { "envoy.filters.http.ratelimit": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
            "domain": domain,
            "rate_limits": descriptors.iter().map(actions).collect::<Vec<_>>(),
        } },
    })
}

/// A cluster with one endpoint on the loopback interface; `options` are added to it.
fn cluster(name: &str, port: u16, options: &Value) -> Value {
    let address = json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let mut cluster = json!({
        "name": name,
        "connect_timeout": "9s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address } }] }],
        },
    });
    let options = options.as_object().unwrap().clone();
    cluster.as_object_mut().unwrap().extend(options);
    cluster
}

/// The file of Envoy. Without a decision requests are denied with 500, so that none is taken for an allowed one.
fn bootstrap(port: u16, service: u16, server: u16) -> Value {
    let http2 = json!({ "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { "http2_protocol_options": {} },
        },
    } });
    let limit = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": "none",
        "timeout": "9s",
        "failure_mode_deny": true,
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": { "envoy_grpc": { "cluster_name": "tidegate" } },
        },
    });
    let router = json!({ "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" });
    let examples: Vec<Value> = CASES.iter().enumerate().map(|(index, case)| route(index, case)).collect();
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        // The address of the client is the last one in X-Forwarded-For.
        "use_remote_address": true,
        "xff_num_trusted_hops": 1,
        "http_filters": [
            { "name": "envoy.filters.http.ratelimit", "typed_config": limit },
            { "name": "envoy.filters.http.router", "typed_config": router },
        ],
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": examples }] },
    });
    json!({ "static_resources": {
        "listeners": [{
            "address": { "socket_address": { "address": "127.0.0.1", "port_value": port } },
            "filter_chains": [{ "filters": [
                { "name": "envoy.filters.network.http_connection_manager", "typed_config": manager },
            ] }],
        }],
        "clusters": [cluster("tidegate", service, &http2), cluster("api", server, &json!({}))],
    } })
}

/// Starts Envoy in front of a server that responds with 200, with a rate-limit service.
fn start(service: &Service, server: &Upstream) -> WebServer {
    let ready = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (service, server) = (service.address.port(), server.addr().port());
    WebServer::start("envoy", ready, |directory, port| {
        fs::write(directory.join("envoy.json"), bootstrap(port, service, server).to_string()).unwrap();
        let arguments = "-c envoy.json --concurrency 1 --disable-hot-restart --log-level error";
        arguments.split(' ').map(str::to_owned).collect()
    })
}

#[test]
fn the_examples_of_the_reference_service_have_its_verdicts_through_envoy() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            if caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let service = converted();
    let envoy = start(&service, &server);
    let address = envoy.addr(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ask = |example: usize, descriptors: &[&str]| {
        let ExampleRequest { path, headers } = request(example, descriptors);
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        get(address, &path, &headers).status()
    };
    let unlimited = CASES.iter().position(|(domain, ..)| *domain == "unknown").unwrap();
    eventually("Envoy asks the service", || ask(unlimited, CASES[unlimited].1) == 200);
    for (example, (domain, descriptors, most)) in CASES.iter().enumerate() {
        let (times, most) = if *most == UNLIMITED { (MANY, MANY) } else { (most + 2, *most) };
        let statuses: Vec<u16> = (0..times).map(|_| ask(example, descriptors)).collect();
        let expected: Vec<u16> = (0..times).map(|index| if index < most { 200 } else { 429 }).collect();
        assert_eq!(statuses, expected, "{domain} {descriptors:?}");
    }
}
