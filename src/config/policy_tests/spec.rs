//! Tests of a configuration, as they are read.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use http::StatusCode;

use crate::config::sources::{Source, Sources};
use crate::time::Timestamp;

/// A test: requests in steps, with counts that begin empty.
#[derive(Debug)]
pub struct PolicyTest {
    /// What it shows.
    pub name: String,
    /// The file that has it.
    pub file: String,
    /// Where its clock begins.
    pub start: Timestamp,
    /// Its steps, at least one.
    pub steps: Vec<TestStep>,
    pub(super) place: Place,
}

/// Equal requests, and what is expected of the last of them.
#[derive(Debug)]
pub struct TestStep {
    /// How long after the last request of the step before it the first request is sent.
    pub after: Duration,
    /// The request.
    pub request: TestRequest,
    /// How many times it is sent; at least once.
    pub repeat: u64,
    /// The time over which the requests are spread.
    pub within: Duration,
    /// What is expected.
    pub expect: Expectation,
    pub(super) place: Place,
}

/// A request of a test.
#[derive(Clone, Debug)]
pub struct TestRequest {
    /// The method.
    pub method: String,
    /// The host.
    pub host: String,
    /// The path with the query.
    pub path: String,
    /// `http` or `https`; none for that of the listener.
    pub scheme: Option<&'static str>,
    /// Names and values.
    pub headers: Option<Vec<(String, String)>>,
    /// The body, if there is one.
    pub body: Option<String>,
    /// The address of the peer.
    pub client: IpAddr,
    /// The subject of its certificate, if it has one.
    pub tls_subject: Option<String>,
    /// The subject alternative name of that certificate by which it is counted.
    pub tls_san: Option<String>,
    /// The name of the listener.
    pub listener: Option<String>,
    /// The consumer, whatever the credential.
    pub consumer: Option<String>,
    /// The claims of its token, as if it had been verified.
    pub claims: Option<Vec<(String, String)>>,
    /// The status of the upstream's response.
    pub upstream_status: StatusCode,
    /// The units that its response costs each limit that settles; none if that is unknown.
    pub settle: Option<u64>,
    /// The time from the arrival to the end of the response.
    pub duration: Duration,
}

/// What is expected of a request; nothing of what is none or empty.
#[derive(Debug)]
pub struct Expectation {
    /// What becomes of it.
    pub outcome: Option<Outcome>,
    /// The name of the route; empty if none matches.
    pub route: Option<String>,
    /// The names of the limits that count it.
    pub limits: Option<Vec<String>>,
    /// The names of its keys, by limit.
    pub keys: Option<Vec<(String, String)>>,
    /// The tiers, by limit; empty if none applies.
    pub tiers: Option<Vec<(String, String)>>,
    /// The name of the consumer; empty if none is known.
    pub consumer: Option<String>,
    /// The status of a response of the proxy itself.
    pub status: Option<u16>,
    /// The name of the limit that denies it.
    pub limit: Option<String>,
    /// The wait that the response names.
    pub retry_after: Option<Duration>,
    /// The delay before it is forwarded.
    pub delay: Option<Duration>,
    /// How many of the requests no limit denies.
    pub allowed: Option<u64>,
    /// The units that remain, by limit.
    pub remaining: Option<Vec<(String, u64)>>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is sent to an upstream.
    Forwarded,
    /// The proxy itself responds, as its route or its listener says.
    Responded,
    /// A limit denies it.
    Denied,
    /// It is rejected for another reason.
    Rejected,
}

/// Where a test or a step is in its file.
#[derive(Clone)]
pub(in crate::config) struct Place {
    /// The first byte among all texts of the configuration.
    at: usize,
    /// The line, from 1, once it has been counted.
    line: usize,
}

impl Place {
    pub fn new(span: &Range<usize>) -> Self {
        Self { at: span.start, line: 0 }
    }

    fn count(&mut self, source: &Source) {
        let before = source.text.as_bytes().iter().take(self.at.saturating_sub(source.start));
        self.line = before.filter(|byte| **byte == b'\n').count() + 1;
    }
}

/// Without the numbers: files that say the same in another layout have equal configurations.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

impl PolicyTest {
    /// Its line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.place.line
    }

    /// Notes the file, and counts the lines of its text.
    pub(in crate::config) fn locate(&mut self, sources: &Sources) {
        let source = sources.of(self.place.at);
        self.file.clone_from(&source.name);
        self.place.count(source);
        for step in &mut self.steps {
            step.place.count(source);
        }
    }
}

impl TestStep {
    /// The line of its expectation.
    #[must_use]
    pub fn line(&self) -> usize {
        self.place.line
    }
}

impl Outcome {
    /// The word of the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Responded => "responded",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
        }
    }
}

impl Expectation {
    /// Whether it expects nothing.
    pub(super) fn is_empty(&self) -> bool {
        let Self { outcome, route, limits, keys, tiers, consumer, .. } = self;
        let Self { status, limit, retry_after, delay, allowed, remaining, .. } = self;
        let of_request = outcome.is_none() && route.is_none() && consumer.is_none() && limits.is_none();
        let of_limits = keys.is_none() && tiers.is_none() && remaining.is_none() && limit.is_none();
        let of_response = status.is_none() && retry_after.is_none() && delay.is_none();
        of_request && of_limits && of_response && allowed.is_none()
    }
}
