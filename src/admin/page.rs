//! The page for operators: `GET /`, one document without requests to other servers. It has no data itself: its script
//! reads the interface as any client does.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY};

use super::response::{self, AdminBody, AdminResponse};

/// The document, with a comment at the place of its style and of its script.
const DOCUMENT: &str = include_str!("page/page.html");
const STYLE: &str = concat!(
    "\n",
    include_str!("page/base.css"),
    include_str!("page/layout.css"),
    include_str!("page/parts.css"),
);
/// One module, whose files are in the order of their imports if they had some.
const SCRIPT: &str = concat!(
    "\n",
    include_str!("page/dom.js"),
    include_str!("page/format.js"),
    include_str!("page/api.js"),
    include_str!("page/series.js"),
    include_str!("page/chart.js"),
    include_str!("page/rows.js"),
    include_str!("page/findings.js"),
    include_str!("page/tables.js"),
    include_str!("page/overload.js"),
    include_str!("page/top.js"),
    include_str!("page/actions.js"),
    include_str!("page/inspector.js"),
    include_str!("page/main.js"),
);

static PAGE: LazyLock<Page> = LazyLock::new(Page::assemble);

/// The document and the Content-Security-Policy that belongs to it.
struct Page {
    html: Bytes,
    policy: HeaderValue,
}

impl Page {
    fn assemble() -> Self {
        let html = DOCUMENT.replacen("/* style */", STYLE, 1).replacen("/* script */", SCRIPT, 1);
        // `trusted-types 'none'` denies every way to turn text into HTML: the values of keys are written by clients.
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            source_hash(STYLE),
            source_hash(SCRIPT)
        );
        let policy = HeaderValue::try_from(policy).expect("hashes in Base64 are valid in a header");
        Self { html: html.into(), policy }
    }
}

/// The source expression of CSP for an inline element with this text.
fn source_hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// The page.
pub(super) fn response() -> AdminResponse {
    let mut response = response::with_body("text/html; charset=utf-8", AdminBody::Whole(PAGE.html.clone()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The description of the interface, in the format `OpenAPI` 3.1.
pub(super) const OPENAPI: &str = include_str!("../../docs/openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::OPENAPI;
    use crate::admin::handle::{OPERATIONS, Operation};

    #[test]
    fn the_document_has_every_operation_and_no_other() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let methods = |(path, item): (&String, &Value)| -> Vec<String> {
            item.as_object().unwrap().keys().map(|method| format!("{method} {path}")).collect()
        };
        let described: BTreeSet<String> =
            document["paths"].as_object().unwrap().iter().flat_map(methods).collect();
        let served = OPERATIONS.iter().map(|(path, operation)| match operation {
            Operation::Page | Operation::Probe(_) | Operation::Read(_) => format!("get {path}"),
            Operation::Change(_) | Operation::Reload => format!("post {path}"),
        });
        assert_eq!(described, served.collect());
        for (path, operation) in OPERATIONS {
            let security = document["paths"][path]["get"]["security"].as_array();
            let needs_no_token = matches!(operation, Operation::Page | Operation::Probe(_));
            assert_eq!(security.is_some_and(Vec::is_empty), needs_no_token, "{path}");
        }
    }
}
