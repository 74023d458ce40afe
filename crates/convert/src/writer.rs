//! Writes a converted configuration as TOML, with its notes as comments.

mod routes;

use std::fmt::{Display, Write as _};

use self::routes::write_route;
use super::model::{Converted, DenyStatus, Limit, TomlAlgorithm, TomlDescriptor, TomlListener, TomlUpstream};
use super::note::Note;

/// The columns of a line of comment.
const WIDTH: usize = 110;
/// The address of a configuration whose origin names none.
const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// The text of a configuration. `title` is its first comment.
#[must_use]
pub fn toml(converted: &Converted, title: &str) -> String {
    let mut out = TomlWriter::default();
    out.comment(title);
    for note in &converted.notes {
        out.note(note);
    }
    write_top(&mut out, converted);
    write_sections(&mut out, converted);
    for limit in &converted.limits {
        write_limit(&mut out, limit);
    }
    for upstream in &converted.upstreams {
        write_upstream(&mut out, upstream);
    }
    for route in &converted.routes {
        write_route(&mut out, route);
    }
    for descriptor in &converted.descriptors {
        write_descriptor(&mut out, descriptor);
    }
    out.text
}

#[derive(Default)]
struct TomlWriter {
    text: String,
}

impl TomlWriter {
    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Words in comment lines of limited width.
    fn comment(&mut self, text: &str) {
        let mut line = String::from("#");
        for word in text.split_whitespace() {
            let columns = line.chars().count() + 1 + word.chars().count();
            if columns > WIDTH && line.len() > 1 {
                self.line(&line);
                "#  ".clone_into(&mut line);
            }
            line.push(' ');
            // A control character would end the comment, or make the file invalid.
            line.extend(word.chars().map(|c| if c.is_control() { '?' } else { c }));
        }
        self.line(&line);
    }

    fn note(&mut self, note: &Note) {
        self.comment(&note.to_string());
    }

    /// The notes and the header of a table.
    fn header(&mut self, notes: &[Note], header: &str) {
        self.line("");
        for note in notes {
            self.note(note);
        }
        self.line(header);
    }

    /// A key with a value that is TOML already.
    fn value(&mut self, key: &str, value: impl Display) {
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{key} = {value}");
    }

    fn string(&mut self, key: &str, text: &str) {
        self.value(key, quoted(text));
    }

    fn some(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.string(key, text);
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            self.value(key, strings(values));
        }
    }

    /// An inline table, unless it is empty. The values are TOML.
    fn table(&mut self, key: &str, entries: &[(String, String)]) {
        if !entries.is_empty() {
            let entries: Vec<String> =
                entries.iter().map(|(name, value)| format!("{} = {value}", bare(name))).collect();
            let _ = writeln!(self.text, "{key} = {{ {} }}", entries.join(", "));
        }
    }
}

fn strings(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(", "))
}

/// A string of the configuration, in which `${` is literal.
fn quoted(text: &str) -> String {
    toml_string(&text.replace("${", "$${"))
}

/// A key, in quotes if it needs them.
fn bare(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

fn write_top(out: &mut TomlWriter, converted: &Converted) {
    let is_short = |listener: &TomlListener| {
        listener.certificates.is_empty()
            && !listener.proxy_protocol
            && listener.max_connections.is_none()
            && listener.serves.is_none()
            && listener.name.is_none()
            && listener.timeouts.is_empty()
    };
    match &converted.listeners[..] {
        [] => {
            out.line("");
            out.comment("The origin names no address. Clients connect to:");
            out.string("listen", DEFAULT_LISTEN);
        }
        [only] if is_short(only) => {
            out.line("");
            for note in &only.notes {
                out.note(note);
            }
            out.string("listen", &only.address);
        }
        _ => {}
    }
    out.list("default_limits", &converted.default_limits);
    if converted.listeners.len() > 1 || converted.listeners.iter().any(|it| !is_short(it)) {
        for listener in &converted.listeners {
            write_listener(out, listener);
        }
    }
}

fn write_listener(out: &mut TomlWriter, listener: &TomlListener) {
    out.header(&listener.notes, "[[listeners]]");
    out.string("address", &listener.address);
    out.some("name", listener.name.as_deref());
    out.some("serve", listener.serves);
    if listener.proxy_protocol {
        out.value("proxy_protocol", true);
    }
    if let Some(most) = listener.max_connections {
        out.value("max_connections", most);
    }
    for (key, timeout) in &listener.timeouts {
        out.string(key, timeout);
    }
    let file =
        |(cert, key): &(String, String)| format!("{{ cert = {}, key = {} }}", quoted(cert), quoted(key));
    let files: Vec<String> = listener.certificates.iter().map(file).collect();
    if !files.is_empty() {
        let client_ca = listener.client_ca.iter().map(|file| format!(", client_ca = {}", quoted(file)));
        let client_ca: String = client_ca.collect();
        out.line(&format!("tls = {{ certificates = [{}]{client_ca} }}", files.join(", ")));
    }
}

fn write_sections(out: &mut TomlWriter, converted: &Converted) {
    let client_ip = &converted.client_ip;
    if !client_ip.notes.is_empty() || !client_ip.trusted_proxies.is_empty() || client_ip.ipv6_prefix.is_some()
    {
        out.header(&client_ip.notes, "[client_ip]");
        out.list("trusted_proxies", &client_ip.trusted_proxies);
        out.some("header", client_ip.header.as_deref());
        if let Some(bits) = client_ip.ipv6_prefix {
            out.value("ipv6_prefix", bits);
        }
    }
    if let Some(store) = &converted.store {
        out.header(&store.notes, "[store]");
        out.string("url", &store.url);
    }
    if let Some(denied) = &converted.denied {
        out.header(&denied.notes, "[answers]");
        let entries = [("status", denied.status.to_string()), ("body", quoted(&denied.body))];
        out.table("denied", &entries.map(|(name, value)| (name.to_owned(), value)));
    }
}

fn write_descriptor(out: &mut TomlWriter, descriptor: &TomlDescriptor) {
    out.header(&descriptor.notes, "[[descriptors]]");
    out.string("domain", &descriptor.domain);
    out.list("match", &descriptor.entries);
    out.list("limits", &descriptor.limits);
    if descriptor.blocks {
        out.value("block", true);
    }
    out.some("name", descriptor.name.as_deref());
    out.list("replaces", &descriptor.replaces);
}

fn write_limit(out: &mut TomlWriter, limit: &Limit) {
    out.header(&limit.notes, &format!("[limits.{}]", limit.name));
    write_algorithm(out, &limit.algorithm);
    match &limit.key[..] {
        [single] => out.string("key", single),
        parts => out.list("key", parts),
    }
    out.some("on_missing", limit.on_missing);
    out.list("allow", &limit.allow);
    out.list("block", &limit.block);
    if let Some(status) = limit.deny_status.filter(|status| *status != DenyStatus::DEFAULT) {
        out.value("deny_status", status.toml());
    }
    if !limit.charge_on.is_empty() {
        let statuses: Vec<String> = limit.charge_on.iter().map(u16::to_string).collect();
        out.value("charge_on", format!("[{}]", statuses.join(", ")));
    }
    if limit.is_shadow {
        out.string("mode", "shadow");
    }
    out.some("on_store_failure", limit.on_store_failure);
    if !limit.overrides.is_empty() {
        out.line(&format!("\n[limits.{}.overrides]", limit.name));
        for (name, rate) in &limit.overrides {
            out.table(&bare(name), &[("rate".to_owned(), quoted(rate))]);
        }
    }
}

fn write_algorithm(out: &mut TomlWriter, algorithm: &TomlAlgorithm) {
    let (name, rate, other) = match algorithm {
        TomlAlgorithm::TokenBucket { rate, burst } => ("token_bucket", Some(rate), Some(("burst", *burst))),
        TomlAlgorithm::FixedWindow { rate } => ("fixed_window", Some(rate), None),
        TomlAlgorithm::SlidingWindow { rate, buckets } => {
            ("sliding_window", Some(rate), Some(("buckets", *buckets)))
        }
        TomlAlgorithm::Gcra { rate, burst } => ("gcra", Some(rate), Some(("burst", *burst))),
        TomlAlgorithm::LeakyBucket { rate, queue } => ("leaky_bucket", Some(rate), Some(("queue", *queue))),
        TomlAlgorithm::Concurrency { max_in_flight } => {
            ("concurrency", None, Some(("max_in_flight", *max_in_flight)))
        }
    };
    out.string("algorithm", name);
    out.some("rate", rate.map(String::as_str));
    if let Some((key, value)) = other {
        out.value(key, value);
    }
}

fn write_upstream(out: &mut TomlWriter, upstream: &TomlUpstream) {
    out.header(&upstream.notes, &format!("[upstreams.{}]", bare(&upstream.name)));
    let server = |(url, weight): &(String, u64)| match weight {
        1 => quoted(url),
        _ => format!("{{ url = {}, weight = {weight} }}", quoted(url)),
    };
    let servers: Vec<String> = upstream.servers.iter().map(server).collect();
    out.line(&format!("servers = [{}]", servers.join(", ")));
    out.some("balance", upstream.balance.as_deref());
    if let Some(retries) = upstream.retries {
        out.value("retries", retries);
    }
    if let Some(most) = upstream.max_connections {
        out.value("max_connections", most);
    }
    for (key, timeout) in &upstream.timeouts {
        out.string(key, timeout);
    }
    write_timeout(out, upstream.timeout.as_deref());
    if let Some(path) = &upstream.health_path {
        let others = upstream.health.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        let entries: Vec<_> = [("path".to_owned(), quoted(path))].into_iter().chain(others).collect();
        out.table("health", &entries);
    }
    if let Some((after, seconds)) = upstream.eject {
        let entries = [("after", after.to_string()), ("for", quoted(&format!("{seconds}s")))];
        out.table("eject", &entries.map(|(name, value)| (name.to_owned(), value)));
    }
    if upstream.speaks_h2 {
        out.string("protocol", "h2");
    }
}

/// Writes the longest time without a byte of a server.
fn write_timeout(out: &mut TomlWriter, timeout: Option<&str>) {
    out.some("response_timeout", timeout);
    out.some("stall_timeout", timeout);
}

/// A basic string of TOML, in quotes.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            _ if character.is_control() => {
                // Writing to a String can't fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_for_toml() {
        assert_eq!(toml_string("header:x-\"a\\b\"\n\r"), r#""header:x-\"a\\b\"\n\u000d""#);
    }
}
