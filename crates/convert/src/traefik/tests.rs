//! Tests of whole dynamic configurations.

use std::path::Path;

use crate::model::Converted;
use crate::{SourceFile, SourceFormat, convert};

/// The conversion of a router with this middleware, and a service with these settings.
fn converted(middleware: &str, service: &str) -> Converted {
    let text = format!(
        "http:\n  routers: {{ r: {{ rule: Path(`/`), service: s, middlewares: [m] }} }}\n  middlewares: {{ m: {middleware} }}\n  \
         services: {{ s: {{ loadBalancer: {service} }} }}\n"
    );
    let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
    convert(SourceFormat::Traefik, &[file]).unwrap()
}

/// What of this changes behaviour.
fn changes(middleware: &str, service: &str) -> Vec<String> {
    let findings = converted(middleware, service).findings().into_iter();
    findings.filter(|it| it.changes_behaviour).map(|it| it.text).collect()
}

#[test]
fn a_single_server_needs_no_cookie() {
    let headers = "{ headers: {} }";
    let servers = |urls: &str| format!("{{ servers: [{urls}], sticky: {{ cookie: {{}} }} }}");
    assert!(changes(headers, &servers("{ url: http://a }")).is_empty());
    assert_eq!(changes(headers, &servers("{ url: http://a }, { url: http://b }")), ["sticky"]);
}

#[test]
fn the_case_of_settings_of_forward_auth_is_ignored() {
    let service = "{ servers: [{ url: http://a }] }";
    let changes = |middleware: &str| changes(middleware, service).join(", ");
    assert_eq!(changes("{ forwardauth: { Address: http://b, trustforwardheader: true } }"), "");
    assert_eq!(changes("{ forwardAuth: { address: http://b, maxbodysize: 1 } }"), "maxbodysize: 1");
    assert_eq!(changes("{ forwardauth: { address: http://b, forwardbody: true } }"), "m: forwardAuth");
    let converted =
        converted("{ FORWARDAUTH: { address: http://b/v, authresponseheaders: [X-User] } }", service);
    let authorization = converted.routes[0].authorization.as_ref().unwrap();
    assert_eq!((&*authorization.upstream, &authorization.copy[..]), ("http://b", &["x-user".to_owned()][..]));
}
