//! The explanation of a request: made once, printed as text or JSON.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::StatusCode;
use serde::Serialize;

use crate::gate::BodyFields;
use crate::http1::RequestHead;

/// The explanation of a request.
#[derive(Default, Serialize)]
pub(in crate::cli) struct Explained {
    pub request: RequestInfo,
    /// The normal path, which routes match; none if the path is rejected.
    pub path: Option<String>,
    /// The host that the request names.
    pub host: Option<String>,
    /// The address that counts as that of the client.
    pub client: Option<IpAddr>,
    pub consumer: Option<String>,
    /// The name of the route that matches.
    pub route: Option<String>,
    pub limits: Vec<ExplainedLimit>,
    pub response: ResponseInfo,
    /// What its limits count; none if the response does not depend on limits.
    #[serde(skip)]
    pub counted: Option<CountedRequest>,
    /// The text, which also says why.
    #[serde(skip)]
    pub rows: TextRows,
}

/// What limits count of a request.
pub(in crate::cli) struct CountedRequest {
    /// The head, of an authorization request that of the original request.
    pub head: RequestHead,
    /// The fields of its body that limits count by.
    pub body: BodyFields,
}

#[derive(Default, Serialize)]
pub(in crate::cli) struct RequestInfo {
    pub method: String,
    pub url: String,
    pub from: Option<IpAddr>,
}

/// How a limit applies.
#[derive(Default, Serialize)]
pub(in crate::cli) struct ExplainedLimit {
    pub name: String,
    pub algorithm: &'static str,
    /// `enforce`, `shadow` or `mark`.
    pub mode: &'static str,
    /// The rate and what belongs to it, as the file has them, of the limit itself or of its tier or override.
    pub numbers: String,
    pub key: Vec<KeyPartInfo>,
    /// `charged`, `allowed` or `skipped`; or a denial whatever the counts are: `blocked`, `missing` or `too_many_values`.
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub overridden: Option<String>,
    /// The class of a request, if the limit reserves slots for classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'static str>,
    /// The units of a request that is charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The tag of the key, as `tidegate keys` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The key in Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_as: Option<String>,
}

#[derive(Serialize)]
pub(in crate::cli) struct KeyPartInfo {
    pub part: String,
    /// None if the request lacks it, or has several values that differ.
    pub value: Option<String>,
}

/// The response to the client, if no limit denies the request.
#[derive(Default, Serialize)]
pub(in crate::cli) struct ResponseInfo {
    /// `forward`, `respond`, `limits`, `block`, `preflight` or `reject`; `allow` for a decision; `unknown` if a consumer in Redis decides.
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The upstream of `forward`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The URL of the request at each of its servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
}

impl ResponseInfo {
    pub fn new(kind: &'static str, status: StatusCode) -> Self {
        Self { kind, status: Some(status.as_u16()), ..Self::default() }
    }

    pub fn rejected(status: StatusCode, reason: &impl ToString) -> Self {
        Self { reason: Some(reason.to_string()), ..Self::new("reject", status) }
    }

    /// Whether a request with this response passes, if a proxy asks for the decision.
    pub fn is_success(&self) -> bool {
        match self.kind {
            "forward" | "limits" => true,
            "respond" => self.status.is_some_and(|status| status < 300),
            _ => false,
        }
    }
}

/// The column at which the text after a label starts.
const INDENT: usize = 10;

/// Lines of a label and a text.
#[derive(Default)]
pub(in crate::cli) struct TextRows(String);

impl TextRows {
    /// Appends a line.
    pub fn row(&mut self, label: &str, text: impl AsRef<str>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "{label:<INDENT$}{}", text.as_ref());
    }

    /// Appends an indented line, with a label of its own.
    pub fn sub_row(&mut self, label: &str, text: impl AsRef<str>) {
        self.row("", format!("{label:<INDENT$}{}", text.as_ref()));
    }

    /// Appends an empty line.
    pub fn gap(&mut self) {
        self.0.push('\n');
    }

    /// Appends these lines.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// The text, without a line end after the last line.
    pub fn into_text(mut self) -> String {
        self.0.truncate(self.0.trim_end().len());
        self.0
    }
}
