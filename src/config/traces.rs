//! `[tracing]`.

use super::headers;
use super::item::{Item, Text};
use super::keys::TRACING;
use super::report::Problem;
use super::table::Table;
use crate::otlp::{CollectorUrl, ExportSpec, TracingSpec};
use crate::telemetry::{ParentTrust, Sampling};
use crate::tls::ClientTls;

const FORM: &str = "such as \"http://localhost:4318\"";
/// Headers that are written by the exporter itself.
const OWN: [&str; 2] = ["host", "content-type"];

/// Reads `[tracing]`.
pub(super) fn tracing(item: Item<'_>) -> Option<TracingSpec> {
    let table = Table::of(item, "[tracing]", &TRACING)?;
    let trust = table.choice("trust", &[("proxies", ParentTrust::Proxies), ("any", ParentTrust::Any)]);
    let ratio = table.decimal("sample");
    let endpoint = table.optional("endpoint", endpoint);
    let header = |item| headers::pairs(item, header);
    let headers = table.optional("headers", header);
    let timeout = table.duration("timeout");
    let resource = resource(&table);
    check_use(&table);
    table.close();
    let (headers, timeout, resource) = (headers.ok()?.unwrap_or_default(), timeout?, resource?);
    let export = |(endpoint, tls)| ExportSpec { endpoint, tls, headers, timeout, resource };
    Some(TracingSpec {
        sampling: Sampling { ratio: ratio?, trust: trust? },
        export: endpoint.ok()?.map(export),
    })
}

/// Reads the URL of the collector, and makes TLS to it if it needs that.
fn endpoint(item: Item<'_>) -> Option<(CollectorUrl, Option<ClientTls>)> {
    let text = item.string_like("the URL of a collector", FORM)?;
    let endpoint = match CollectorUrl::parse(&text.value) {
        Ok(endpoint) => endpoint,
        Err(error) => return text.reject(text.error(error.to_string()).help(FORM)),
    };
    if !endpoint.is_tls() {
        return Some((endpoint, None));
    }
    match ClientTls::with_system_roots() {
        Ok(tls) => Some((endpoint, Some(tls))),
        Err(error) => text.reject(text.error(error.to_string())),
    }
}

fn header(key: &super::table::Name<'_>, item: Item<'_>) -> Option<(http::HeaderName, http::HeaderValue)> {
    let name = headers::name(key, item);
    if let Some(name) = &name
        && (OWN.contains(&name.as_str()) || headers::OWN.contains(&name.as_str()))
    {
        let title = format!("`{name}` can't be set: tidegate writes it itself");
        return item.reject(Problem::error(key.span.clone(), title));
    }
    let mut value = item.string().and_then(|text| headers::value(&text))?;
    // Headers for a collector are credentials more often than not.
    value.set_sensitive(true);
    Some((name?, value))
}

/// Reads the attributes of the process.
fn resource(table: &Table<'_>) -> Option<Vec<(Box<str>, Box<str>)>> {
    let service = table.item("service_name").string().and_then(|text| not_empty(&text));
    let others = table.optional("resource_attributes", |item| {
        headers::pairs(item, |name, item| {
            if name.text == "service.name" {
                let problem = Problem::error(name.span.clone(), "`service.name` is the key `service_name`");
                return item.reject(problem.help("write service_name = \"…\" in [tracing]"));
            }
            Some((Box::from(name.text), item.string()?.value.into()))
        })
    });
    let version = ("service.version".into(), env!("CARGO_PKG_VERSION").into());
    let mut all = vec![("service.name".into(), service?), version];
    let others = others.ok()?.unwrap_or_default();
    all.retain(|(key, _): &(Box<str>, Box<str>)| others.iter().all(|(other, _)| other != key));
    all.extend(others);
    Some(all)
}

fn not_empty(text: &Text<'_>) -> Option<Box<str>> {
    if text.value.is_empty() {
        return text.reject(text.error("`service_name` is empty").help("leave it out for \"tidegate\""));
    }
    Some((&*text.value).into())
}

/// Warns of keys that have no effect without an endpoint.
fn check_use(table: &Table<'_>) {
    if table.given("endpoint").is_some() {
        return;
    }
    for key in ["headers", "timeout", "service_name", "resource_attributes"] {
        if let Some(span) = table.key_span(key) {
            let title = format!("`{key}` has no effect: [tracing] has no `endpoint`, so no span is exported");
            table.reader.report(Problem::warning(span, title).help(format!("add endpoint, {FORM}")));
        }
    }
}
