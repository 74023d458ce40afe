//! TLS to the servers of upstreams without a table `tls`.

use std::cell::OnceCell;

use crate::config::item::Item;
use crate::config::table::Reported;
use crate::tls::{ClientTls, ClientTlsSpec};
use crate::upstream::ServerSpec;

/// The protocol names of ALPN (RFC 7301).
pub(super) const ALPN_HTTP_1: &[u8] = b"http/1.1";
pub(super) const ALPN_HTTP_2: &[u8] = b"h2";

/// TLS with default options, for HTTP/1.1 and for HTTP/2. Each is made once, since loading the system's certificates is
/// slow.
#[derive(Default)]
pub(super) struct DefaultTls([OnceCell<ClientTls>; 2]);

impl DefaultTls {
    /// TLS for these servers, if any of them needs it.
    pub fn for_servers(
        &self,
        item: Item<'_>,
        servers: &[ServerSpec],
        alpn: &[u8],
    ) -> Result<Option<ClientTls>, Reported> {
        if !servers.iter().any(|server| server.is_tls) {
            return Ok(None);
        }
        let default = &self.0[usize::from(alpn == ALPN_HTTP_2)];
        if let Some(tls) = default.get() {
            return Ok(Some(tls.clone()));
        }
        let spec = ClientTlsSpec { protocols: vec![alpn.to_vec()], ..ClientTlsSpec::default() };
        match ClientTls::new(spec) {
            Ok(tls) => Ok(Some(default.get_or_init(|| tls).clone())),
            Err(error) => {
                item.reject::<()>(item.error(error.to_string()));
                Err(Reported)
            }
        }
    }
}
