//! The access log: a line on standard output for each request.
//!
//! A worker formats its line and hands it over; one thread writes. Nothing waits for that thread: while it
//! can't keep up, lines are dropped and counted.

mod forwarding;

use std::fmt::{self, Write as _};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderValue, Method, StatusCode, Uri, Version};
use serde::{Serialize, Serializer};

pub use self::forwarding::Forwarding;
use super::lines::Lines;
use super::{AccessLog, AccessOnly, LogSpec};
use crate::time::{Micros, Timestamp};

/// What stands for the status of an answer where there was none, as many logs have it.
const CLIENT_GONE: u16 = 499;

/// What is said of one request.
#[derive(Debug)]
pub struct Record {
    /// When its head was there.
    pub time: Timestamp,
    /// The client's address.
    pub client: IpAddr,
    /// What it speaks.
    pub version: Version,
    /// Its method.
    pub method: Method,
    /// The host that it asked for.
    pub host: String,
    /// Its target.
    pub target: Uri,
    /// The name of the route that it matched.
    pub route: Option<String>,
    /// What it is called on its way, here and elsewhere.
    pub request_id: HeaderValue,
    /// Where it went.
    pub forwarding: Forwarding,
    /// Whether a limit refused it.
    pub is_denied: bool,
    /// The limit that refused it, if one did by itself.
    pub denied_by: Option<String>,
    /// The limits in shadow mode that would have refused it.
    pub shadow_denied_by: Vec<String>,
    /// In a word, why no server gave an answer, or not all of it.
    pub error: Option<&'static str>,
    /// What it was answered with; none if its client was gone before that.
    pub status: Option<StatusCode>,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// From its head to the last byte of its answer.
    pub took: Duration,
}

/// What stands behind a name.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'r> {
    Text(&'r str),
    Number(u64),
    List(&'r [String]),
}

/// Takes records to the writing thread.
#[derive(Clone, Debug)]
pub struct AccessWriter {
    spec: LogSpec,
    lines: Lines,
}

impl AccessWriter {
    /// Starts the writing thread, which ends when the last writer is gone; none if no thread can be had.
    #[must_use]
    pub fn start() -> Option<Self> {
        // A descriptor of its own: what fails must not stay in a buffer, as it would in that of the process.
        let out = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let lines = out.and_then(|out| Lines::to(out, "access log"));
        let lines = lines.inspect_err(|error| tracing::error!("no access log: {error}")).ok()?;
        Some(Self { spec: LogSpec::default(), lines })
    }

    /// The same writer, which writes what and how `spec` says; none if that wants no access log.
    #[must_use]
    pub fn with(&self, spec: LogSpec) -> Option<Self> {
        (spec.access != AccessLog::Off).then(|| Self { spec, ..self.clone() })
    }

    /// Whether a request that begins now is to be logged.
    #[must_use]
    pub fn draws(&self) -> bool {
        self.spec.access_sample >= 1.0 || fastrand::f64() < self.spec.access_sample
    }

    /// Lines that were dropped since the start; shared with the writer.
    #[must_use]
    pub fn dropped(&self) -> Arc<AtomicU64> {
        self.lines.dropped()
    }

    /// Waits until everything that was handed over is written, so long at most; says whether it is.
    #[must_use]
    pub fn flush(&self, patience: Duration) -> bool {
        self.lines.flush(patience)
    }

    /// Writes a record, soon, if it is one to be written; never waits.
    pub fn write(&self, record: &Record) {
        if self.spec.access_only == AccessOnly::Denied && !record.is_denied {
            return;
        }
        let line = match self.spec.access {
            AccessLog::Text => record.text(),
            _ => record.json(),
        };
        self.lines.put(line);
    }
}

impl Record {
    fn json(&self) -> String {
        // Writing to memory can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn text(&self) -> String {
        let Self { client, method, target, bytes, .. } = self;
        let (time, status, took) = (self.time(), self.status(), Micros::from(self.took).0);
        let mut line = format!("{time} {client} {method} {}{target} {status} {bytes}B {took}us", self.host);
        // Writing to a string can't fail.
        let _ = write!(line, " request_id={}", self.request_id());
        for (name, value) in self.named() {
            let _ = write!(line, " {name}={value}");
        }
        line
    }

    /// What both forms have under the same names, in the order of the text; for the most part not of every request.
    fn named(&self) -> impl Iterator<Item = (&'static str, Value<'_>)> {
        let Forwarding { upstream, server, attempts, head_took, .. } = &self.forwarding;
        let watching = Some(&*self.shadow_denied_by).filter(|limits| !limits.is_empty());
        let all = [
            ("route", self.route.as_deref().map(Value::Text)),
            ("denied_by", self.denied_by.as_deref().map(Value::Text)),
            ("error", self.error.map(Value::Text)),
            ("shadow_denied_by", watching.map(Value::List)),
            ("protocol", Some(Value::Text(self.protocol()))),
            ("upstream", upstream.as_deref().map(Value::Text)),
            ("server", server.as_deref().map(Value::Text)),
            ("attempts", (*attempts > 1).then(|| Value::Number(u64::from(*attempts)))),
            ("upstream_us", head_took.map(|took| Value::Number(Micros::from(took).0))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    fn protocol(&self) -> &'static str {
        match self.version {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2",
            _ => "HTTP/1.1",
        }
    }

    fn status(&self) -> u16 {
        self.status.map_or(CLIENT_GONE, |status| status.as_u16())
    }

    /// It has visible characters only.
    fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    fn time(&self) -> String {
        let time = UNIX_EPOCH + Duration::from(Micros(self.time.0));
        humantime::format_rfc3339_millis(time).to_string()
    }
}

/// As JSON; without a tree before it, which would cost more than all else that is done for a line.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (time, client, target) = (self.time(), self.client.to_string(), self.target.to_string());
        let head = [
            ("time", Value::Text(&time)),
            ("client", Value::Text(&client)),
            ("method", Value::Text(self.method.as_str())),
            ("host", Value::Text(&self.host)),
            ("target", Value::Text(&target)),
            ("status", Value::Number(self.status().into())),
            ("bytes", Value::Number(self.bytes)),
            ("took_us", Value::Number(Micros::from(self.took).0)),
            ("request_id", Value::Text(self.request_id())),
        ];
        serializer.collect_map(head.into_iter().chain(self.named()))
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::List(texts) => f.write_str(&texts.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Record {
        Record {
            time: Timestamp(1_790_000_000_123_456),
            client: [192, 0, 2, 7].into(),
            version: Version::HTTP_2,
            method: Method::GET,
            host: "api.example.com".to_owned(),
            target: "/a?b=%22".parse().unwrap(),
            route: Some("search".to_owned()),
            request_id: HeaderValue::from_static("4a5b"),
            forwarding: Forwarding {
                upstream: Some("search".into()),
                server: Some("http://10.0.0.7:8080".into()),
                attempts: 2,
                head_took: Some(Duration::from_micros(61)),
                ..Forwarding::default()
            },
            is_denied: true,
            denied_by: Some("per-key".to_owned()),
            shadow_denied_by: vec!["strict".to_owned(), "wide".to_owned()],
            error: Some("connect_failed"),
            status: Some(StatusCode::TOO_MANY_REQUESTS),
            bytes: 244,
            took: Duration::from_micros(87),
        }
    }

    #[test]
    fn json_is_json() {
        let line: serde_json::Value = serde_json::from_str(&record().json()).unwrap();
        assert_eq!(line["time"], "2026-09-21T14:13:20.123Z");
        assert_eq!(line["target"], "/a?b=%22");
        assert_eq!(line["shadow_denied_by"], json!(["strict", "wide"]));
        assert_eq!(line["error"], "connect_failed");
        assert_eq!((&line["status"], &line["took_us"]), (&json!(429), &json!(87)));
        assert_eq!((&line["attempts"], &line["upstream_us"]), (&json!(2), &json!(61)));
        assert_eq!((&line["upstream"], &line["server"]), (&json!("search"), &json!("http://10.0.0.7:8080")));
        assert_eq!(line["protocol"], "HTTP/2");
    }

    #[test]
    fn text_is_one_line() {
        let bare = Record {
            version: Version::HTTP_10,
            route: None,
            forwarding: Forwarding::default(),
            denied_by: None,
            shadow_denied_by: Vec::new(),
            error: None,
            status: Some(StatusCode::OK),
            ..record()
        };
        assert_eq!(
            bare.text(),
            "2026-09-21T14:13:20.123Z 192.0.2.7 GET api.example.com/a?b=%22 200 244B 87us request_id=4a5b \
             protocol=HTTP/1.0"
        );
        let full = " request_id=4a5b route=search denied_by=per-key error=connect_failed shadow_denied_by=strict,wide \
                    protocol=HTTP/2 upstream=search server=http://10.0.0.7:8080 attempts=2 upstream_us=61";
        assert!(record().text().ends_with(full));
    }
}
