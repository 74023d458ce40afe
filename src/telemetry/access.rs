//! The access log: a line on standard output for each request.
//!
//! A worker formats its line and hands it over; one thread writes. Nothing waits for that thread: while it
//! can't keep up, lines are dropped and counted.

mod forwarding;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderValue, Method, StatusCode, Uri, Version};
use serde::{Serialize, Serializer};

pub use self::forwarding::Forwarding;
use super::escape::{Escaped, SafeJson, cut};
use super::lines::Lines;
use super::{AccessLog, AccessOnly, LogSpec};
use crate::time::{Micros, Timestamp};

/// What stands for the status of an answer where there was none, as many logs have it.
const CLIENT_GONE: u16 = 499;

/// Room that most lines need in JSON.
const LINE: usize = 512;

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

    /// Lines that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
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
    fn json(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(LINE);
        // Writing to memory can't fail.
        let _ = self.serialize(&mut serde_json::Serializer::with_formatter(&mut line, SafeJson));
        line
    }

    fn text(&self) -> Vec<u8> {
        let (client, time, status, bytes) = (self.client, self.time(), self.status(), self.bytes);
        let took = Micros::from(self.took).0;
        let [method, host, target, id] = self.of_client();
        let [method, host, target, id] = [&method, &host, &target, &id].map(|text| Escaped(text));
        let mut line =
            format!("{time} {client} {method} {host}{target} {status} {bytes}B {took}us request_id={id}");
        for (name, value) in self.named() {
            // Writing to a string can't fail.
            let _ = write!(line, " {name}={value}");
        }
        line.into_bytes()
    }

    /// What the client, or a trusted proxy, has chosen freely: method, host, target and request id; cut where it is
    /// long.
    fn of_client(&self) -> [Cow<'_, str>; 4] {
        let is_path = self.target.authority().is_none();
        let target = match self.target.path_and_query().filter(|_| is_path) {
            Some(path) => cut(path.as_str()),
            None => Cow::Owned(cut(&self.target.to_string()).into_owned()),
        };
        // An id has visible characters only.
        let id = self.request_id.to_str().unwrap_or_default();
        [cut(self.method.as_str()), cut(&self.host), target, cut(id)]
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

    fn time(&self) -> String {
        let time = UNIX_EPOCH + Duration::from(Micros(self.time.0));
        humantime::format_rfc3339_millis(time).to_string()
    }
}

/// As JSON; without a tree before it, which would cost more than all else that is done for a line.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (time, client) = (self.time(), self.client.to_string());
        let [method, host, target, id] = self.of_client();
        let head = [
            ("time", Value::Text(&time)),
            ("client", Value::Text(&client)),
            ("method", Value::Text(&method)),
            ("host", Value::Text(&host)),
            ("target", Value::Text(&target)),
            ("status", Value::Number(self.status().into())),
            ("bytes", Value::Number(self.bytes)),
            ("took_us", Value::Number(Micros::from(self.took).0)),
            ("request_id", Value::Text(&id)),
        ];
        serializer.collect_map(head.into_iter().chain(self.named()))
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => Escaped(text).fmt(f),
            Self::Number(number) => write!(f, "{number}"),
            Self::List(texts) => Escaped(&texts.join(",")).fmt(f),
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
        let line: serde_json::Value = serde_json::from_slice(&record().json()).unwrap();
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
    fn what_clients_choose_is_cut_and_escaped() {
        let odd = "/?\u{85}\u{2028}\u{202e}".parse::<Uri>().unwrap();
        let record = Record {
            host: "h".repeat(5_000),
            method: Method::from_bytes(&[b'M'; 5_000]).unwrap(),
            target: odd.clone(),
            request_id: HeaderValue::from_bytes(&[b'i'; 5_000]).unwrap(),
            ..record()
        };
        let (json, text) = (record.json(), String::from_utf8(record.text()).unwrap());
        assert!(json.len().max(text.len()) < 8_000);
        let line: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(line["target"], odd.to_string());
        for field in ["host", "method", "request_id"] {
            assert!(line[field].as_str().unwrap().ends_with("…(5000 bytes)"), "{field}");
        }
        let json = String::from_utf8(json).unwrap();
        for line in [&json, &text] {
            assert!(line.contains("/?\\u0085\\u2028\\u202e"), "{line}");
        }
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
        let text = |record: Record| String::from_utf8(record.text()).unwrap();
        assert_eq!(
            text(bare),
            "2026-09-21T14:13:20.123Z 192.0.2.7 GET api.example.com/a?b=%22 200 244B 87us request_id=4a5b \
             protocol=HTTP/1.0"
        );
        let full = " request_id=4a5b route=search denied_by=per-key error=connect_failed shadow_denied_by=strict,wide \
                    protocol=HTTP/2 upstream=search server=http://10.0.0.7:8080 attempts=2 upstream_us=61";
        assert!(text(record()).ends_with(full));
    }
}
