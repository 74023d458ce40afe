//! Tests of the whole, in one binary so that they link once: the real binary, real sockets, a real Redis and
//! the real curl.

// A test that panics has failed, which is what a failed `unwrap` should come to.
#![allow(clippy::unwrap_used)]

mod abuse;
mod accept;
mod access;
mod admin;
mod answer;
mod charge_on;
mod cli;
mod config;
mod curl;
mod documented;
mod downtime;
mod early;
mod events;
mod explain;
mod faults;
mod flight;
mod forward;
mod fuzz;
mod grpc;
mod hostile;
mod http2;
mod identity;
mod jwt;
mod keys;
mod lifecycle;
mod limit;
mod matching;
mod max_body;
mod numbers;
mod onward;
mod outage;
mod packaging;
mod partings;
mod places;
mod proof;
mod proxied;
mod reload;
mod reports;
mod rest;
mod secrets;
mod serve;
mod simulate;
mod sliding;
mod slow;
mod spellings;
mod stores;
mod support;
mod tidy;
mod tls;
mod tokens;
mod topologies;
mod unread;
mod upstreams;
mod via;
mod websocket;
mod whom;
