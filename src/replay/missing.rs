//! Parts of keys that a log lacks, and how to log them.

use super::format::Format;
use crate::gate::{Cost, Gate, KeyPart, LimitRule};
use crate::limit::PolicyId;

/// Whether logs can lack this part: they have the client's address and the request line, so they have what is made of these.
pub(super) fn can_be_absent(part: &KeyPart) -> bool {
    use KeyPart::{Body, Consumer, Cookie, Header, Jwt, TlsSubject};
    matches!(part, Header(_) | Cookie(_) | Jwt(_) | TlsSubject | Consumer | Body(_))
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
        Cost::Fixed(_) => None,
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

    /// What to add for this part.
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
        Format::AlbText => "logs of load balancers of AWS have no headers; log at the backend".to_owned(),
        _ => format!("log the header, and name its field: --key-from header:{name}=FIELD"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
