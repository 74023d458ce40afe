//! Routes of the output, and their conditions.

use std::net::IpAddr;

use ipnet::IpNet;

use super::note::{FileLine, Note};

/// Whether the value of a request header has no text that would be a placeholder.
pub(super) fn is_literal(text: &str) -> bool {
    text.match_indices('{').all(|(at, _)| {
        let after = &text[at + 1..];
        let end = after.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(after.len());
        end == 0 || !after[end..].starts_with('}')
    })
}

/// `[[routes]]`.
#[derive(Clone, Debug, Default)]
pub(super) struct TomlRoute {
    pub notes: Vec<Note>,
    pub name: Option<String>,
    /// `listener`, where it is a condition.
    pub listener: Option<String>,
    /// `scheme`, where it is a condition.
    pub scheme: Option<&'static str>,
    pub host: Option<String>,
    pub path: String,
    pub methods: Vec<String>,
    pub conditions: Vec<Condition>,
    /// Conditions under which it refuses requests, with the lines that say so: each becomes a route before it.
    pub refused: Vec<(Condition, Note)>,
    /// The authorization server that has to allow its requests.
    pub authorization: Option<TomlAuthorization>,
    /// The status of a redirect of its requests by plain HTTP to HTTPS, with the line that says so.
    pub https_redirect: Option<(u16, Note)>,
    /// Names of limits.
    pub limits: Vec<String>,
    /// `deny_status`, where it is not that of the limits.
    pub deny_status: Option<DenyStatus>,
    pub target: TomlTarget,
    pub strip_prefix: Option<String>,
    pub add_prefix: Option<String>,
    /// The whole path that servers get.
    pub rewrite_path: Option<String>,
    /// The Host header that servers get, where it is not the client's.
    pub rewrite_host: Option<String>,
    pub set_headers: Vec<(String, String)>,
    pub remove_headers: Vec<String>,
    pub set_response_headers: Vec<(String, String)>,
    pub remove_response_headers: Vec<String>,
    /// `response_timeout` and `stall_timeout`, such as `"30s"`, where they are not those of the upstream.
    pub timeout: Option<String>,
    /// `total_timeout`, where it is not that of the upstream.
    pub total_timeout: Option<String>,
    /// `retries`, where they are not those of the upstream.
    pub retries: Option<u64>,
    /// A size, such as `"10MiB"`.
    pub max_body: Option<String>,
    /// Lines that it is made of, besides those of its notes.
    pub uses: Vec<FileLine>,
}

/// `authorize`: an authorization server that has to allow the requests of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TomlAuthorization {
    /// The name of an upstream, or a URL.
    pub upstream: String,
    pub path: String,
    /// Names of headers, or `*`.
    pub send: Vec<String>,
    pub copy: Vec<String>,
    /// A duration such as `"30s"`.
    pub timeout: String,
    /// Whether the server is asked before the limits are checked.
    pub is_first: bool,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TomlTarget {
    /// The name of an upstream, or a URL.
    Upstream(String),
    Respond {
        status: u16,
        body: String,
    },
    /// The client is sent to this target with this status.
    Redirect {
        status: u16,
        location: String,
    },
    Block,
    /// The connection is closed without a response.
    Close,
}

impl Default for TomlTarget {
    fn default() -> Self {
        Self::Respond { status: 404, body: String::new() }
    }
}

impl TomlTarget {
    /// The response of a route whose origin can't be converted: its requests must not reach another route instead.
    pub fn missing() -> Self {
        Self::Respond { status: 501, body: "This route was not converted.\n".to_owned() }
    }
}

/// `deny_status`: what a client gets whose request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DenyStatus {
    Status(u16),
    /// No response.
    Close,
}

impl DenyStatus {
    /// That of denials without `deny_status`.
    pub const DEFAULT: Self = Self::Status(429);
    /// The status by which nginx closes the connection.
    const CLOSE: u16 = 444;

    /// That of a status of nginx; `None` for a number that is no status of a denial.
    pub fn of(status: u16) -> Option<Self> {
        match status {
            Self::CLOSE => Some(Self::Close),
            400..=599 => Some(Self::Status(status)),
            _ => None,
        }
    }

    /// It as TOML.
    pub fn toml(self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::Close => "\"close\"".to_owned(),
        }
    }
}

/// A condition on the client's address, a header, a query parameter or a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub kind: ConditionKind,
    pub name: String,
    pub test: Test,
}

/// The part of a request that a condition is about; the order is that of the keys of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConditionKind {
    /// Its values are networks.
    ClientIp,
    Header,
    Query,
    Cookie,
}

/// When a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// A value matches one of these patterns.
    Any(Vec<String>),
    /// No value matches one of these patterns.
    Not(Vec<String>),
    /// The name is present, or absent.
    Present(bool),
}

impl Condition {
    /// The address of the client is in one of these networks, or in none of them. Fails if one is no network.
    pub fn client_ip(networks: &[String], is_within: bool) -> Result<Self, String> {
        let network = |text: &String| {
            let address = text.parse::<IpAddr>().map(|address| address.to_string());
            let network = || text.parse::<IpNet>().map(|network| network.trunc().to_string());
            address.or_else(|_| network()).map_err(|_| format!("`{text}` is no network and no address"))
        };
        let networks = networks.iter().map(network).collect::<Result<Vec<_>, _>>()?;
        if networks.is_empty() {
            return Err("it names no network".to_owned());
        }
        let test = if is_within { Test::Any(networks) } else { Test::Not(networks) };
        Ok(Self { kind: ConditionKind::ClientIp, name: "client_ip".to_owned(), test })
    }
}

impl TomlRoute {
    /// Refuses requests under this condition, which a line says.
    pub fn refuse(&mut self, condition: Condition, place: &FileLine, text: &str) {
        self.refused.push((condition, Note::origin(place, text)));
    }

    /// Whether it selects the same requests as another route.
    pub fn selects_the_same(&self, other: &Self) -> bool {
        (self.scheme, &self.listener, &self.host, &self.path)
            == (other.scheme, &other.listener, &other.host, &other.path)
            && self.methods == other.methods
            && self.conditions == other.conditions
    }

    /// The routes for the requests that it refuses, and the route. If it has a condition of this kind already, it gets no requests.
    pub fn with_refusals(mut self) -> Vec<Self> {
        let mut routes: Vec<Self> = Vec::new();
        for (condition, note) in std::mem::take(&mut self.refused) {
            if self.conditions.iter().any(|known| known.kind == condition.kind) {
                let reason = "a route has one condition on addresses: requests get 501 until you replace it";
                self.notes.push(match &note {
                    Note::Origin(place, text) => Note::finding(place, text, reason),
                    _ => note,
                });
                self.target = TomlTarget::missing();
                continue;
            }
            routes.push(Self {
                notes: vec![note],
                scheme: self.scheme,
                listener: self.listener.clone(),
                host: self.host.clone(),
                path: self.path.clone(),
                methods: self.methods.clone(),
                conditions: self.conditions.iter().cloned().chain([condition]).collect(),
                target: TomlTarget::Block,
                ..Self::default()
            });
        }
        routes.push(self);
        routes
    }
}
