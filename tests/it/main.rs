//! Tests of the whole, in one binary so that they link once: the real binary, real sockets, a real Redis and
//! the real curl. A folder has one subject; a new test goes into the file whose behaviour it is about, and a new
//! behaviour gets a file of its own.

// A test that panics has failed, which is what a failed `unwrap` should come to.
#![allow(clippy::unwrap_used)]

/// What a hostile client or server can use up, while good clients are served.
mod abuse;
/// The access log: its lines, its fields, and when they are written.
mod access_log {
    mod clients;
    mod delivery;
    mod lines;
    mod replay;
    mod upstream_fields;
}
/// Certificates that are obtained from an ACME server, a real Pebble.
#[cfg(feature = "acme")]
mod acme {
    mod challenges;
    mod failures;
    mod front;
    mod obtaining;
    mod renewal;
    mod renewal_info;
    pub mod setup;
    mod waits;
}
/// The admin interface: metrics, readiness, limits and keys.
mod admin {
    mod bounds;
    mod events;
    mod interface;
    mod metrics;
    mod openapi;
    mod page;
    mod page_access;
    mod page_limits;
    mod page_pictures;
    mod tls;
    mod tokens;
    mod top;
    mod unix_socket;
}
/// External authorization: what servers are asked, and what their responses do.
mod authorization {
    mod decisions;
    mod limits;
    mod overload;
    mod setup;
    mod tools;
}
/// The commands of the program, their output and their exit status.
mod cli;
/// The configuration file: reading, defaults, error reports; its documentation compared with the code.
mod config {
    mod error_reports;
    mod generated;
    mod include;
    mod json_schema;
    mod loading;
    mod reference;
    mod secrets;
    mod settled_costs;
}
/// Consumers: credentials, tiers, the file of consumers, and what upstreams learn.
mod consumers {
    mod afternoon;
    mod file;
    mod forwarding;
    mod identification;
    mod in_redis;
    pub mod setup;
}
/// The documentation: links, TOML blocks, commands that are run as they are written, and the book.
mod docs {
    mod book;
    mod console;
    mod links;
    mod measurements;
    pub mod pages;
    mod recipes;
    mod server;
    mod snippets;
    mod stage;
}
/// Forward auth: decisions for other proxies, and the recipes of its page with the real ones.
mod forward_auth {
    mod configuration;
    mod connections;
    mod decisions;
    mod equivalence;
    mod recipes;
    mod responses;
    pub mod setup;
}
/// Envoy's rate-limit service.
mod envoy {
    mod access_log;
    mod decisions;
    mod health;
    mod matching;
    mod messages;
    mod protocol;
    mod real_envoy;
    mod real_reference;
    mod reference;
    mod setup;
    mod stores;
}
/// What is forwarded: headers, paths, statuses and Via, in both directions.
mod forwarding {
    mod client_headers;
    mod cors;
    mod cors_in_a_browser;
    mod custom_replies;
    mod headers;
    mod paths;
    mod via;
}
/// The bodies of the fuzz targets, over the corpus and over generated input.
mod fuzz;
/// gRPC calls and their statuses.
mod grpc;
/// HTTP/1.1 with clients: framing, keep-alive, closing, early responses, the PROXY protocol.
mod http1 {
    mod curl;
    mod early_response;
    mod flow_control;
    mod half_close;
    mod header_case;
    mod hostile_clients;
    mod idle_parking;
    mod interim;
    mod max_body;
    mod messages;
    mod proxy_protocol;
    mod server_sent_events;
    mod unread_body;
}
/// HTTP/2 with clients and with upstream servers.
mod http2;
/// Tokens: verification, claims as keys, and fetching of key sets.
mod jwt {
    mod requests;
    mod required;
    mod verification;
}
/// The Helm chart and the manifests for Kubernetes.
mod kubernetes {
    mod chart;
    mod monitors;
    mod objects;
    mod processes;
    mod references;
    mod security;
    pub mod setup;
    mod values;
}
/// The library: limits inside of another program.
mod library {
    mod decisions;
    mod layer;
    mod redis;
    mod reload;
    mod settled;
    pub mod setup;
    mod surface;
}
/// Start, accept, reload, drain and stop of the process; its limits of connections.
mod lifecycle {
    mod accept;
    mod connection_limits;
    pub mod drain;
    mod idle;
    mod logs;
    mod overload;
    mod reload;
    mod reload_state;
    mod start;
    mod watched_files;
}
/// Limits as clients see them: counting, keys, tiers, overrides, concurrency, rate headers.
mod limits {
    mod ahead;
    mod allow_and_block;
    mod bans;
    mod body_keys_at_servers;
    mod canonical_keys;
    mod charge_by_status;
    mod concurrency;
    mod costs;
    pub mod counting;
    mod delay;
    mod denials;
    mod deny_status;
    mod estimates;
    mod head_first;
    mod keys;
    mod llm_clients;
    mod overrides;
    mod own_limits;
    mod quotas;
    mod required_keys;
    mod reserved_units;
    mod response_headers;
    pub mod setup;
    mod shadow_mode;
    mod soft;
    mod tiers;
}
/// Tables of malformed or ambiguous messages, over HTTP/1.1 and HTTP/2, from clients and servers.
mod malformed {
    pub mod cases;
    mod http2_frames;
    mod http2_requests;
    mod http2_responses;
    mod requests;
    mod responses;
    mod strict_parser;
}
/// The dashboard, the alert rules and the demo, with a real Prometheus.
mod monitoring {
    mod alerts;
    mod board;
    mod demo;
    mod night;
    pub mod setup;
}
/// Installation: `make install`, the Debian package, the unit for systemd, the container image.
mod packaging;
/// The algorithms of limits against models: both stores, random arrivals, `PROOF_FACTOR`.
mod proof;
/// Access logs: those of other servers, and limits suggested for a trace of known clients.
mod replay {
    mod servers;
    mod suggestions;
}
/// Which route a request matches.
mod routing {
    mod conditions;
    mod geo;
    mod listeners;
    mod matching;
    mod redirects;
}
/// Limits whose cost the response decides, from requests to what they are charged.
mod settle {
    mod budget;
    mod changes;
    mod encodings;
    mod endings;
    mod errors_in_flight;
    mod outages;
    mod protocols;
    pub mod setup;
    mod several;
    mod sources;
    mod stops;
    mod trust;
}
/// Rules that the source code keeps: order of modules, sizes, libraries.
mod source {
    mod circles;
    mod citations;
    pub mod files;
    mod functions;
    mod graph;
    mod lua_blocks;
    mod rules;
    mod sizes;
}
/// The in-memory store and Redis: equal decisions, topologies, faults, outages.
mod store {
    mod availability;
    pub mod both_stores;
    mod faults;
    mod lua_timelines;
    mod outage;
    mod redis;
    mod settled;
    mod topologies;
}
/// Processes, sockets, clients and servers that the tests are made of.
mod support;
/// TLS with clients and with upstream servers.
mod tls {
    mod certificates;
    mod client_certificates;
    mod downstream;
    pub mod upstream;
}
/// Traces of requests: what is passed on, and what is exported.
mod tracing {
    mod export;
    mod propagation;
}
/// Upstreams: load balancing, health checks, retries, pools of connections, failures.
mod upstream {
    mod balancing;
    mod connection_limits;
    mod connection_pool;
    mod failures;
    mod health_checks;
    mod outage_log;
    mod overload;
    mod responses;
    mod restarts;
    mod retries;
    mod route_times;
    pub mod setup;
    mod shares;
    mod silent_exchanges;
    mod slow_clients;
    mod unix_sockets;
}
/// WebSocket tunnels.
mod websocket;
