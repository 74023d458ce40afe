//! Interim responses of servers, such as `103 Early Hints`, for clients over HTTP/1.1 (RFC 9110 §15.2).

use super::client::ClientConnection;
use super::hop;
use super::snapshot::Proxy;
use crate::http1::write_interim;

/// Writes the interim responses to the client's present request that have arrived, with the changes that its route makes to
/// responses.
pub fn write_interim_responses(proxy: &Proxy, client: &ClientConnection, out: &mut Vec<u8>) {
    let Some(route) = client.forwarded_route() else { return };
    for mut head in client.interim().take() {
        hop::remove_hop_by_hop(&mut head.fields);
        proxy.snapshot.actions[route].response_headers.apply(&mut head.fields);
        write_interim(out, &head);
    }
}
