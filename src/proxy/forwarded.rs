//! Who is asking, in the headers that tell an upstream server of it: X-Forwarded-* and Forwarded.

use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::Peer;
use super::peer::{element, text_of};
use crate::gate::{ClientIp, forwarded_value, host_of};
use crate::http1::Fields;

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What a trusted proxy says of the client's own request.
#[derive(Default)]
struct Original {
    scheme: Option<&'static str>,
    host: Option<HeaderValue>,
}

/// Tells the server who is asking. What other clients say of themselves is replaced. Of a trusted proxy, which asks for
/// `client`, the dialect is continued that `client_ip.header` names, and the other is written anew from it: that one may
/// be a client's, passed on by a proxy that doesn't know it.
pub(super) fn introduce(headers: &mut HeaderMap, peer: &Peer, client: IpAddr, client_ip: &ClientIp) {
    // Only HTTP/1.0 comes without a host.
    let host = headers.get(HOST).cloned().unwrap_or_else(|| HeaderValue::from_static(""));
    if !client_ip.is_trusted(peer.ip()) {
        headers.insert(X_FORWARDED_FOR, peer.text().clone());
        headers.insert(FORWARDED, peer.forwarded(&host));
        headers.insert(X_FORWARDED_PROTO, peer.scheme());
        headers.insert(X_FORWARDED_HOST, host);
        return;
    }
    let original = Original::read(headers, peer, client_ip);
    let is_other = client != peer.ip();
    let chain = |believed: &HeaderName, client: &dyn Fn() -> Vec<u8>| {
        let list = if *believed == client_ip.header { joined(headers, believed) } else { Vec::new() };
        if list.is_empty() && is_other { client() } else { list }
    };
    let addresses = chain(&X_FORWARDED_FOR, &|| text_of(client).as_bytes().to_vec());
    let elements = chain(&FORWARDED, &|| original.element(client));
    insert_list(headers, X_FORWARDED_FOR, addresses, peer.text());
    insert_list(headers, FORWARDED, elements, &peer.forwarded(&host));
    if client_ip.header == FORWARDED {
        headers.insert(X_FORWARDED_PROTO, original.scheme.map_or(peer.scheme(), HeaderValue::from_static));
        headers.insert(X_FORWARDED_HOST, original.host.unwrap_or(host));
    } else {
        headers.entry(X_FORWARDED_PROTO).or_insert(peer.scheme());
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

impl Original {
    /// Reads it from the dialect that is believed.
    fn read(headers: &HeaderMap, peer: &Peer, client_ip: &ClientIp) -> Self {
        let fields;
        let (scheme, host) = if client_ip.header == FORWARDED {
            fields = Fields::from(headers);
            let entry = client_ip.client_entry(peer.ip(), &fields);
            (forwarded_value(entry, "proto"), forwarded_value(entry, "host"))
        } else {
            let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
            (text(&X_FORWARDED_PROTO), text(&X_FORWARDED_HOST))
        };
        let is = |known: &&str| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(known));
        Self {
            scheme: ["http", "https"].into_iter().find(is),
            host: host
                .filter(|host| host_of(host).is_some())
                .and_then(|host| HeaderValue::from_str(host).ok()),
        }
    }

    /// What Forwarded says of the client.
    fn element(&self, client: IpAddr) -> Vec<u8> {
        let host = self.host.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
        element(client, text_of(client).as_bytes(), host, self.scheme).to_vec()
    }
}

/// The values of a list in one.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    values.join(&b", "[..])
}

/// Sets a header to a list, which may be empty, with one more element.
fn insert_list(headers: &mut HeaderMap, name: HeaderName, mut list: Vec<u8>, element: &HeaderValue) {
    if !list.is_empty() {
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    // Joined valid values are valid.
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}
