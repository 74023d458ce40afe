//! Who is asking, in the headers that tell an upstream server of it: X-Forwarded-* and Forwarded.

use std::net::IpAddr;

use super::ClientConnection;
use super::client::{element, format_address};
use crate::gate::{ClientIp, forwarded_value, host_of};
use crate::http1::names::{FORWARDED, HOST, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::http1::{FieldName, Fields, NameSet};

/// The headers that tell a server who is asking.
const INTRODUCTION: NameSet = NameSet::of(&[X_FORWARDED_FOR, FORWARDED, X_FORWARDED_PROTO, X_FORWARDED_HOST]);

/// What a trusted proxy says of the client's own request.
#[derive(Default)]
struct Original {
    scheme: Option<&'static str>,
    host: Option<String>,
}

/// Tells the server who is asking. What other clients say of themselves is replaced. Of a trusted proxy, which asks for
/// `client`, the dialect is continued that `client_ip.header` names, and the other is written anew from it: that one may
/// be a client's, passed on by a proxy that doesn't know it.
pub(super) fn add_forwarded(
    fields: &mut Fields,
    peer: &ClientConnection,
    client: IpAddr,
    client_ip: &ClientIp,
) {
    // Only HTTP/1.0 comes without a host.
    let said = peer.forwarded_fields(fields.get(HOST).unwrap_or_default());
    if !client_ip.is_trusted(peer.ip()) {
        fields.remove_all(INTRODUCTION);
        fields.extend(&said.fields);
        return;
    }
    let believed = FieldName::from(&client_ip.header);
    let original = Original::read(fields, peer, client_ip);
    let is_other = client != peer.ip();
    let chain = |name: FieldName<'_>, client: &dyn Fn() -> Vec<u8>| {
        let list = if name == believed { joined(fields, name) } else { Vec::new() };
        if list.is_empty() && is_other { client() } else { list }
    };
    let addresses = chain(X_FORWARDED_FOR, &|| format_address(client).to_vec());
    let elements = chain(FORWARDED, &|| original.forwarded_element(client));
    set_list(fields, X_FORWARDED_FOR, &addresses, peer.address_text());
    set_list(fields, FORWARDED, &elements, &said.forwarded);
    if believed == FORWARDED {
        fields.set(X_FORWARDED_PROTO, original.scheme.unwrap_or(peer.scheme()).as_bytes());
        fields.set(X_FORWARDED_HOST, original.host.as_ref().map_or(&*said.host, String::as_bytes));
    } else {
        fields.set_default(X_FORWARDED_PROTO, peer.scheme().as_bytes());
        fields.set_default(X_FORWARDED_HOST, &said.host);
    }
}

impl Original {
    /// Reads it from the dialect that is believed.
    fn read(fields: &Fields, peer: &ClientConnection, client_ip: &ClientIp) -> Self {
        let (scheme, host) = if FieldName::from(&client_ip.header) == FORWARDED {
            let entry = client_ip.client_entry(peer.ip(), fields);
            (forwarded_value(entry, "proto"), forwarded_value(entry, "host"))
        } else {
            (fields.get_str(X_FORWARDED_PROTO), fields.get_str(X_FORWARDED_HOST))
        };
        let is = |known: &&str| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(known));
        Self {
            scheme: ["http", "https"].into_iter().find(is),
            host: host.filter(|host| host_of(host).is_some()).map(str::to_owned),
        }
    }

    /// What Forwarded says of the client.
    fn forwarded_element(&self, client: IpAddr) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or_default();
        element(client, &format_address(client), host.as_bytes(), self.scheme).to_vec()
    }
}

/// The values of a list in one.
fn joined(fields: &Fields, name: FieldName<'_>) -> Vec<u8> {
    fields.get_all(name).collect::<Vec<_>>().join(&b", "[..])
}

/// Sets a header to a list, which may be empty, with one more element.
fn set_list(fields: &mut Fields, name: FieldName<'_>, list: &[u8], element: &[u8]) {
    fields.set_with(name, |out| {
        if !list.is_empty() {
            out.extend_from_slice(list);
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(element);
    });
}
