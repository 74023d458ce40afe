//! The attributes of a request that keys are made of: the request, and parts of it that a log has while the request itself is
//! gone.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderName;

use super::access::Identity;
use super::body_fields::BodyFields;
use super::descriptor::Descriptor;
use super::geo::ClientLocation;
use super::query::Query;
use super::route::Route;
use crate::consumers::Consumer;
use crate::http1::RequestHead;
use crate::jwt::Token;

/// The attributes of a request that keys are made of.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The head.
    pub head: &'a RequestHead,
    /// The query.
    pub query: &'a Query<'a>,
    /// The requested host, in its normal form.
    pub host: &'a str,
    /// The path, in the form in which paths are matched.
    pub path: &'a str,
    /// The peer's address: the client's, or that of a proxy before us.
    pub peer: IpAddr,
    /// The subject of the peer's certificate, if it has one.
    pub tls_subject: Option<&'a str>,
    /// The subject alternative name that identifies the peer, if its certificate has one.
    pub tls_san: Option<&'a str>,
    /// The client's whole address, and where it is.
    pub location: &'a ClientLocation<'a>,
    /// The client's address, cut to the prefix that is counted.
    pub client: IpAddr,
    /// The route; none if no route matches.
    pub route: Option<&'a Route>,
    /// The fields of the body that limits name, if it was read.
    pub body: Option<&'a BodyFields>,
    /// Parts that the head does not have, of a request from a log or from a tool.
    pub recorded: Option<&'a RecordedParts>,
    /// The descriptor, if a client of the rate-limit service has sent it in place of a request.
    pub descriptor: Option<&'a Descriptor<'a>>,
    /// The token.
    pub token: Token<'a>,
    /// The consumer, and whether the request is rejected for it or for the lack of it.
    pub identity: Identity,
}

impl<'a> Subject<'a> {
    /// The consumer, if it is known.
    #[must_use]
    pub fn consumer(&self) -> Option<&Consumer> {
        self.identity.consumer.as_deref()
    }

    pub(crate) fn path_param(&self, name: &str) -> Option<&'a str> {
        self.route.and_then(|route| route.path.param(name, self.path))
    }

    /// Whether an authorization server sets this header before the limits are decided.
    pub(super) fn awaits_header(&self, name: &HeaderName) -> bool {
        self.route.is_some_and(|route| route.is_header_awaited(name))
    }

    pub(crate) fn route_name(&self) -> &'a str {
        self.route.map_or("", |route| &route.name)
    }
}

/// Parts of a request that its head lacks: a log has them in fields of its own, or a tool makes them up.
#[derive(Clone, Debug, Default)]
pub struct RecordedParts {
    /// The consumer, whatever the credential.
    pub consumer: Option<Arc<Consumer>>,
    /// Whether it has a valid token, whose claims are among the values.
    pub has_token: bool,
    /// Values of key parts, by their form in the configuration. They count only if the head has none.
    pub values: Vec<(Box<str>, Vec<u8>)>,
}

impl RecordedParts {
    /// The value of the part with this form.
    pub(super) fn value(&self, part: &str) -> Option<&[u8]> {
        let found = self.values.iter().find(|(recorded, _)| **recorded == *part);
        found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }
}
