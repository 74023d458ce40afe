//! Where parts of requests are in a log, if not in the fields of its format; which parts of keys a log lacks, and how to log
//! them.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use super::entry::LoggedRequest;
use super::format::{Format, address, address_with_port};
use super::response_cost;
use crate::consumers::Consumer;
use crate::gate::{Cost, Gate, KeyPart, LimitRule, RecordedParts};
use crate::limit::PolicyId;

/// Fields of a log that have the address of the client or parts of keys.
#[derive(Clone, Debug, Default)]
pub struct PartSources {
    client: Option<LogField>,
    host: Option<Box<str>>,
    parts: Vec<(KeyPart, LogField)>,
    /// The fields with the costs of limits that settle.
    costs: Vec<String>,
}

/// A field of a log.
#[derive(Clone, Debug)]
struct LogField {
    name: String,
    /// Whether a line has it.
    is_found: Cell<bool>,
}

/// Why an option that names a field is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartSourceError {
    /// What is before `=` is no part of a key.
    #[error("`{0}` is not a part of a key, such as header:NAME, cookie:NAME, jwt:CLAIM or consumer")]
    UnknownPart(String),
    /// Every log has this part, or the field can't have it.
    #[error("`{0}` is in every log; the field with the address of the client is named by --client-from")]
    NotAbsent(KeyPart),
    /// No field is named.
    #[error("`{0}` names no field; write PART=FIELD or FIELD")]
    NoField(String),
    /// No part is named, and no limit has a part that a log can lack.
    #[error("no limit counts by a part that logs lack; name the part, such as header:x-api-key={0}")]
    NothingAbsent(String),
}

impl PartSources {
    /// The sources that options name: `client` a field, and each of `parts` a field for all parts that logs can lack, or
    /// `PART=FIELD` for one. Rejects an option that is malformed, or a part that logs always have.
    pub fn parse(gate: &Gate, client: Option<&str>, parts: &[String]) -> Result<Self, PartSourceError> {
        let (client, costs) = (client.map(LogField::new), response_cost::fields(gate));
        let mut sources = Self { client, host: None, parts: Vec::new(), costs };
        for text in parts {
            let Some((part, field)) = text.rsplit_once('=') else {
                let absent = absent_parts(gate);
                if absent.is_empty() {
                    return Err(PartSourceError::NothingAbsent(text.clone()));
                }
                sources.parts.extend(absent.into_iter().map(|part| (part, LogField::new(text))));
                continue;
            };
            let part = KeyPart::parse(part).ok_or_else(|| PartSourceError::UnknownPart(part.to_owned()))?;
            if !can_be_absent(&part) {
                return Err(PartSourceError::NotAbsent(part));
            }
            if field.is_empty() {
                return Err(PartSourceError::NoField(text.clone()));
            }
            sources.parts.push((part, LogField::new(field)));
        }
        Ok(sources)
    }

    /// The fields that readers must keep.
    #[must_use]
    pub fn fields(&self) -> Vec<String> {
        self.all_fields().map(|field| &field.name).chain(&self.costs).cloned().collect()
    }

    /// The fields that no line had so far.
    #[must_use]
    pub fn fields_not_found(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.all_fields().filter(|field| !field.is_found.get()).map(|field| &*field.name).collect();
        names.dedup();
        names
    }

    /// The sources, with the host of all requests of which the log has none.
    #[must_use]
    pub fn with_host(mut self, host: Option<&str>) -> Self {
        self.host = host.map(Into::into);
        self
    }

    /// The host of all requests of which the log has none.
    pub(super) fn host(&self) -> Option<&[u8]> {
        self.host.as_deref().map(str::as_bytes)
    }

    fn all_fields(&self) -> impl Iterator<Item = &LogField> {
        self.client.iter().chain(self.parts.iter().map(|(_, field)| field))
    }

    /// The parts that have a field of their own.
    pub(super) fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        self.parts.iter().map(|(part, _)| part)
    }

    /// The client of a request.
    pub(super) fn client(&self, gate: &Gate, entry: &LoggedRequest<'_>) -> Option<IpAddr> {
        let Some(field) = &self.client else { return entry.client };
        let Some(value) = field.value(entry) else {
            // A request without the header came from the address itself.
            return entry.client.filter(|_| field.is_empty_in(entry));
        };
        // As X-Forwarded-For is read: the last address that is not a trusted proxy's.
        let texts = || value.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let addresses = || texts().filter_map(|text| address(text).or_else(|| address_with_port(text)));
        addresses().find(|address| !gate.client_ip.is_trusted(*address)).or_else(|| addresses().next_back())
    }

    /// What a request has in these fields.
    pub(super) fn recorded(&self, gate: &Gate, entry: &LoggedRequest<'_>) -> RecordedParts {
        let mut recorded = RecordedParts::default();
        if let Some(name) = &entry.consumer {
            recorded.consumer = consumer(gate, name);
        }
        for (part, field) in &self.parts {
            let Some(value) = field.value(entry) else { continue };
            if *part == KeyPart::Consumer {
                recorded.consumer = recorded.consumer.or_else(|| consumer(gate, &value));
            } else {
                recorded.values.push((part.to_string().into(), value.into_owned()));
            }
        }
        recorded
    }
}

/// The consumer of this name: that of the file, or where consumers can be in Redis one without a tier; none if there is none.
fn consumer(gate: &Gate, name: &[u8]) -> Option<Arc<Consumer>> {
    let rules = gate.consumers.as_ref()?;
    let name = str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
    let stored = || rules.stored.as_ref().map(|_| Arc::new(Consumer::new(name)));
    rules.named(name).ok().map(Arc::clone).or_else(stored)
}

impl LogField {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), is_found: Cell::new(false) }
    }

    fn value<'e>(&self, entry: &'e LoggedRequest<'_>) -> Option<Cow<'e, [u8]>> {
        let value = value(entry, &self.name);
        if value.is_some() && !self.is_found.get() {
            self.is_found.set(true);
        }
        value
    }

    /// Whether a line has the field, but without a value.
    fn is_empty_in(&self, entry: &LoggedRequest<'_>) -> bool {
        let is_empty = written(entry, &self.name).is_some_and(|value| is_empty(&value));
        self.is_found.set(self.is_found.get() || is_empty);
        is_empty
    }
}

/// The value of a field, unless it is empty or a dash, which is how logs write that there is no value.
fn value<'e>(entry: &'e LoggedRequest<'_>, field: &str) -> Option<Cow<'e, [u8]>> {
    written(entry, field).filter(|value| !is_empty(value))
}

fn is_empty(value: &[u8]) -> bool {
    matches!(value, b"" | b"-")
}

/// The value of a field: one that the format does not have, a request header, or one of the format's own.
fn written<'e>(entry: &'e LoggedRequest<'_>, field: &str) -> Option<Cow<'e, [u8]>> {
    let header = field.strip_prefix("header:").unwrap_or(field);
    let value = entry.field(field).or_else(|| entry.header(header.as_bytes())).or(match field {
        "user" => entry.user.as_deref(),
        "consumer" => entry.consumer.as_deref(),
        "host" => entry.host.as_deref(),
        "user_agent" => entry.user_agent.as_deref(),
        "referer" => entry.referer.as_deref(),
        _ => None,
    });
    if field == "client" && value.is_none() {
        return entry.client.map(|client| Cow::Owned(client.to_string().into_bytes()));
    }
    value.map(Cow::Borrowed)
}

/// Whether logs can lack this part: they have the client's address and the request line, so they have what is made of these.
pub(super) fn can_be_absent(part: &KeyPart) -> bool {
    use KeyPart::{Body, Consumer, Cookie, Header, Jwt, TlsSan, TlsSubject};
    matches!(part, Header(_) | Cookie(_) | Jwt(_) | TlsSubject | TlsSan | Consumer | Body(_))
}

/// The parts that the limits count by, and that logs can lack.
pub(super) fn absent_parts(gate: &Gate) -> Vec<KeyPart> {
    let mut parts: Vec<KeyPart> = Vec::new();
    for (limit, _) in gate.limits() {
        for part in parts_of(&gate.limit_rules[limit]) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    parts
}

/// The parts of requests that a limit reads for its key, its tiers or its cost, and that logs can lack.
pub(super) fn absent_parts_of(gate: &Gate, limit: PolicyId) -> Vec<KeyPart> {
    parts_of(&gate.limit_rules[limit]).collect()
}

fn parts_of(rule: &LimitRule) -> impl Iterator<Item = KeyPart> {
    let tiers = rule.tiers.iter().map(|tiers| tiers.by.clone()).filter(|by| !rule.key.parts.contains(by));
    let cost = match &rule.cost {
        Cost::Header { name, .. } => Some(KeyPart::Header(name.clone())),
        Cost::Fixed(_) | Cost::Settled(_) => None,
    };
    rule.key.parts.iter().cloned().chain(tiers).chain(cost).filter(can_be_absent)
}

/// Advises what to add to the configuration of a server so that its log has parts that it lacks.
#[derive(Debug)]
pub(super) struct LogAdvice {
    format: Format,
    /// How many further fields, `extra1` and so on, the lines have.
    extra_fields: usize,
    /// The parts that would become further fields, in their order.
    added: Vec<KeyPart>,
}

impl LogAdvice {
    /// Advice for a log of this format, whose lines have so many further fields.
    pub fn new(format: Format, extra_fields: usize) -> Self {
        Self { format, extra_fields, added: Vec::new() }
    }

    /// The lines to add to the configuration of the log for this part.
    pub fn how_to_log(&mut self, part: &KeyPart) -> String {
        let position = self.added.iter().position(|added| added == part).unwrap_or_else(|| {
            self.added.push(part.clone());
            self.added.len() - 1
        });
        how_to_log(part, &self.format, self.extra_fields + position + 1)
    }
}

/// `extra` is the number of the further field that the part would be.
fn how_to_log(part: &KeyPart, format: &Format, extra: usize) -> String {
    let field = |text: String| format!("{text}, and name its field: --key-from {part}=FIELD");
    match (part, format) {
        (KeyPart::Header(name), Format::TidegateJson | Format::TidegateText) => {
            format!("add headers = [\"{name}\"] to [log]")
        }
        (KeyPart::Header(name), _) => header(name.as_str(), format, extra),
        (KeyPart::Cookie(name), Format::Common | Format::Combined | Format::NginxJson) => {
            field(format!("log $cookie_{name} (nginx) or %{{{name}}}C (Apache)"))
        }
        (KeyPart::Consumer, Format::TidegateJson | Format::TidegateText) => {
            "logged where [consumers] is used; these lines are of requests without a consumer".to_owned()
        }
        (KeyPart::Jwt(_) | KeyPart::Consumer, _) => {
            field("log the name of the authenticated user, not the token".to_owned())
        }
        (KeyPart::TlsSubject, Format::Common | Format::Combined | Format::NginxJson) => {
            field("log $ssl_client_s_dn (nginx) or %{SSL_CLIENT_S_DN}x (Apache)".to_owned())
        }
        (KeyPart::Body(_), _) => {
            field("access logs have no bodies; let the backend log the value".to_owned())
        }
        _ => field("log it in a field of its own".to_owned()),
    }
}

fn header(name: &str, format: &Format, extra: usize) -> String {
    let extra = format!("extra{extra}");
    let variable = name.replace('-', "_");
    let from = |log: String, field: &str| format!("{log}, and use --key-from header:{name}={field}");
    match format {
        Format::NginxJson => format!("add \"http_{variable}\": \"$http_{variable}\" to log_format"),
        Format::VhostCombined => from(format!("add \\\"%{{{name}}}i\\\" to the end of LogFormat"), &extra),
        Format::Common | Format::Combined => from(
            format!(
                "add \"$http_{variable}\" (nginx) or \\\"%{{{name}}}i\\\" (Apache) to the end of the format"
            ),
            &extra,
        ),
        Format::CaddyJson => "Caddy logs headers, but not credentials: see log_credentials".to_owned(),
        Format::TraefikJson => format!("set accessLog.fields.headers.names.{name} = \"keep\""),
        Format::EnvoyJson => format!(
            "add \"{name}\": \"%REQ({name})%\" to json_format, and use --key-from header:{name}={name}"
        ),
        Format::HaproxyHttp => {
            from(format!("add http-request capture req.hdr({name}) len 128"), "capture.req.0")
        }
        Format::CloudflareJson => format!("add {name} to the custom fields of request headers in Logpush"),
        Format::AlbText | Format::ElbText => {
            "logs of load balancers of AWS have no headers; log at the backend".to_owned()
        }
        _ => format!("log the header, and name its field: --key-from header:{name}=FIELD"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn gate(text: &str) -> Gate {
        let file = format!(
            "listen = \"127.0.0.1:0\"\n{text}\n[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = {{ status = 200 }}\n"
        );
        config::parse(&file, "t.toml", &|_| None).unwrap().config.snapshot.gate
    }

    const BY_KEY: &str = "[client_ip]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[limits.a]\nrate = \"2/minute\"\nkey = [\"header:x-api-key\", \"path\"]";

    #[test]
    fn the_client_is_the_last_address_that_is_not_of_a_proxy() {
        let gate = gate(BY_KEY);
        let sources = PartSources::parse(&gate, Some("extra1"), &[]).unwrap();
        let client = |value: &'static str| {
            let fields = vec![(Cow::Borrowed("extra1"), Cow::Borrowed(value.as_bytes()))];
            let entry = LoggedRequest { client: "10.9.9.9".parse().ok(), fields, ..LoggedRequest::default() };
            sources.client(&gate, &entry).map(|client| client.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(client("203.0.113.9, 192.0.2.1, 10.0.0.1"), some("192.0.2.1"));
        assert_eq!(client("10.0.0.2, 10.0.0.1"), some("10.0.0.2"));
        assert_eq!(client("[2001:db8::1]:443"), some("2001:db8::1"));
        assert_eq!(client("-"), some("10.9.9.9"), "without the header it is the address");
        assert_eq!(client("unknown"), None);
    }

    #[test]
    fn a_field_is_for_one_part_or_for_all_that_logs_lack() {
        let gate = gate(BY_KEY);
        let parse = |text: &str| PartSources::parse(&gate, None, &[text.to_owned()]);
        let parts = |text: &str| parse(text).unwrap().parts().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(parts("user"), ["header:x-api-key"]);
        assert_eq!(parts("jwt:sub=user"), ["jwt:sub"]);
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("path=user"), PartSourceError::NotAbsent(KeyPart::Path));
        assert_eq!(error("jwt:sub="), PartSourceError::NoField("jwt:sub=".to_owned()));
        assert!(matches!(error("apikey=user"), PartSourceError::UnknownPart(_)));
    }

    #[test]
    fn recorded_values_are_those_of_the_fields() {
        let gate = gate(BY_KEY);
        let sources = PartSources::parse(&gate, None, &["user".to_owned()]).unwrap();
        let recorded = |user: &'static [u8]| {
            let entry = LoggedRequest { user: Some(Cow::Borrowed(user)), ..LoggedRequest::default() };
            sources.recorded(&gate, &entry).values
        };
        assert_eq!(recorded(b"ann"), [("header:x-api-key".into(), b"ann".to_vec())]);
        assert_eq!(recorded(b"-"), []);
    }

    #[test]
    fn each_server_logs_headers_in_its_way() {
        let part = KeyPart::parse("header:x-api-key").unwrap();
        for (format, expected) in [
            (Format::Combined, "$http_x_api_key"),
            (Format::NginxJson, "$http_x_api_key"),
            (Format::HaproxyHttp, "req.hdr(x-api-key)"),
            (Format::TidegateJson, "headers = [\"x-api-key\"]"),
            (Format::TraefikJson, "names.x-api-key"),
            (Format::EnvoyText, "--key-from header:x-api-key=FIELD"),
        ] {
            let text = how_to_log(&part, &format, 2);
            assert!(text.contains(expected), "{format}: {text}");
        }
    }
}
