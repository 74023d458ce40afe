//! What the limits of a route read of a request.

use std::net::IpAddr;

use super::{Query, Route};
use crate::http1::RequestHead;
use crate::jwt::Token;

/// What is known of a request when its key is looked for.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Its head.
    pub head: &'a RequestHead,
    /// Its query.
    pub query: &'a Query<'a>,
    /// The host that it asks for, in the form in which hosts are compared.
    pub host: &'a str,
    /// Its path, in the form in which paths are matched.
    pub path: &'a str,
    /// Who sends it: the client, or a proxy before us.
    pub peer: IpAddr,
    /// The subject of the sender's certificate, if it has shown one.
    pub tls_subject: Option<&'a str>,
    /// The client's whole address.
    pub address: IpAddr,
    /// The client's address, cut to the part that is counted.
    pub client: IpAddr,
    /// The route that it matches.
    pub route: Option<&'a Route>,
    /// Its token.
    pub token: Token<'a>,
}

impl<'a> Subject<'a> {
    pub(crate) fn path_param(&self, name: &str) -> Option<&'a str> {
        self.route.and_then(|route| route.path.param(name, self.path))
    }

    pub(crate) fn route_name(&self) -> &'a str {
        self.route.map_or("", |route| &route.name)
    }
}
