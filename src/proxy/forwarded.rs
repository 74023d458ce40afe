//! The headers that describe the client to an upstream server: X-Forwarded-* and Forwarded (RFC 7239).

use std::net::IpAddr;

use super::ClientConnection;
use super::client::{element, format_address};
use crate::gate::{ClientIp, forwarded_value, host_of};
use crate::http1::names::{FORWARDED, HOST, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use crate::http1::{FieldName, Fields, NameSet};

/// The headers that describe the client to a server.
const FORWARDING_HEADERS: NameSet =
    NameSet::of(&[X_FORWARDED_FOR, FORWARDED, X_FORWARDED_PROTO, X_FORWARDED_HOST]);

/// Scheme and host of the client's own request, as a trusted proxy reports them.
#[derive(Default)]
struct Original {
    scheme: Option<&'static str>,
    host: Option<String>,
}

/// Adds the forwarding headers. Those of an untrusted client are replaced. For a trusted proxy, which forwards a request
/// of `client`, the list in `client_ip.header` is extended, and the header of the other standard is written from it
/// anew: a proxy that does not know that header passes it on as the client has sent it.
pub(super) fn add_forwarded(
    fields: &mut Fields,
    connection: &ClientConnection,
    client: IpAddr,
    client_ip: &ClientIp,
) {
    // Only HTTP/1.0 comes without a host.
    let own = connection.forwarded_fields(fields.get(HOST).unwrap_or_default());
    if !client_ip.is_trusted(connection.ip()) {
        fields.remove_all(FORWARDING_HEADERS);
        fields.extend(&own.fields);
        return;
    }
    let trusted = FieldName::from(&client_ip.header);
    let original = Original::read(fields, connection, client_ip);
    let is_behind_proxy = client != connection.ip();
    let chain = |name: FieldName<'_>, client: &dyn Fn() -> Vec<u8>| {
        let list = if name == trusted { joined(fields, name) } else { Vec::new() };
        if list.is_empty() && is_behind_proxy { client() } else { list }
    };
    let addresses = chain(X_FORWARDED_FOR, &|| format_address(client).to_vec());
    let elements = chain(FORWARDED, &|| original.forwarded_element(client));
    set_list(fields, X_FORWARDED_FOR, &addresses, connection.address_text());
    set_list(fields, FORWARDED, &elements, &own.forwarded);
    if trusted == FORWARDED {
        fields.set(X_FORWARDED_PROTO, original.scheme.unwrap_or(connection.scheme()).as_bytes());
        fields.set(X_FORWARDED_HOST, original.host.as_ref().map_or(&*own.host, String::as_bytes));
    } else {
        fields.set_default(X_FORWARDED_PROTO, connection.scheme().as_bytes());
        fields.set_default(X_FORWARDED_HOST, &own.host);
    }
}

impl Original {
    /// Reads scheme and host from the trusted header, or from the headers that belong to it.
    fn read(fields: &Fields, connection: &ClientConnection, client_ip: &ClientIp) -> Self {
        let host = if FieldName::from(&client_ip.header) == FORWARDED {
            forwarded_value(client_ip.client_entry(connection.ip(), fields), "host")
        } else {
            fields.get_str(X_FORWARDED_HOST)
        };
        Self {
            scheme: client_ip.forwarded_scheme(connection.ip(), fields),
            host: host.filter(|host| host_of(host).is_some()).map(str::to_owned),
        }
    }

    /// The element of Forwarded for the client.
    fn forwarded_element(&self, client: IpAddr) -> Vec<u8> {
        let host = self.host.as_deref().unwrap_or_default();
        element(client, &format_address(client), host.as_bytes(), self.scheme).to_vec()
    }
}

/// All values of a list header, joined.
fn joined(fields: &Fields, name: FieldName<'_>) -> Vec<u8> {
    fields.get_all(name).collect::<Vec<_>>().join(&b", "[..])
}

/// Sets a header to `list`, which may be empty, followed by `element`.
fn set_list(fields: &mut Fields, name: FieldName<'_>, list: &[u8], element: &[u8]) {
    fields.set_with(name, |out| {
        if !list.is_empty() {
            out.extend_from_slice(list);
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(element);
    });
}
