//! `[admin]`.

use std::net::SocketAddr;
use std::path::Path;

use super::item::{Item, TextItem};
use super::keys::keys;
use super::table::{Reported, Table};
use super::tls::{self, ServerTlsKeys};
use crate::admin::{AdminAddress, AdminSpec, AdminToken};
use crate::server::ListenerSpec;
use crate::tls::ServerTls;

const FORM: &str = "such as \"127.0.0.1:9900\" or \"unix:/run/tidegate/admin.sock\"";
/// The most bytes of the path of a Unix socket: `sun_path` has 108 on Linux, one of them for the end.
const MAX_PATH: usize = 107;

/// The protocols of the interface (ALPN).
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

keys! {
    /// The keys of `[admin]`.
    AdminKeys {
        /// Address and port, such as `"127.0.0.1:9900"`, not the address of a listener; or a Unix socket, such as
        /// `"unix:/run/tidegate/admin.sock"`
        listen: Text, required "127.0.0.1:9900";
        /// Permissions of the Unix socket in octal digits: `"0660"` lets its group connect too
        mode: Text = "0600";
        /// The secret that a client must send as `Authorization: Bearer TOKEN`: at least 16 visible ASCII
        /// characters, such as the output of `openssl rand -hex 32`. Required unless `listen` is on the
        /// loopback interface or a Unix socket, or `tls` has `client_ca`
        token: Text;
        /// Another secret, for clients that may read and change nothing, such as a monitoring system: a change with
        /// it gets 403. Needs `token`
        read_token: Text;
        /// TLS, with the keys of `tls` of a [listener](listeners.md#tls-to-clients): `certificates` and `client_ca`.
        /// Not for a Unix socket
        tls: KeyTable<ServerTlsKeys>;
    }
    mistaken IN_ADMIN
}

/// Reads the admin interface; `others` are the listeners for clients. Files are relative to `directory`.
pub(super) fn admin(item: Item<'_>, directory: &Path, others: Option<&[ListenerSpec]>) -> Option<AdminSpec> {
    let table = Table::<AdminKeys>::of(item, "[admin]")?;
    let listen = table.listen().item();
    let address = listen.and_then(|listen| address(listen, &table));
    let has_token = table.token().given().is_some();
    let tokens = tokens(&table);
    let tls = table.tls().with(|item| match &address {
        Some(AdminAddress::Unix { .. }) => {
            let problem = item.error("`tls` is for an address with a port, and `listen` is a Unix socket");
            item.reject(problem.help("leave it out: what is sent over a Unix socket stays on this machine"))
        }
        _ => tls::admin(item, directory, &PROTOCOLS),
    });
    table.close();
    let (address, listen, tls) = (address?, listen?, tls.ok()?);
    if let Some(address) = address.tcp() {
        let has_client_ca = tls.as_ref().is_some_and(ServerTls::requires_client_certificate);
        check_tcp(address, listen, has_token || has_client_ca, others.unwrap_or_default())?;
    }
    let (token, read_token) = tokens.ok()?;
    Some(AdminSpec { address, tls, token, read_token })
}

/// Reads `token` and `read_token`.
fn tokens(table: &Table<'_, AdminKeys>) -> Result<(Option<AdminToken>, Option<AdminToken>), Reported> {
    let (item, has_token) = (table.read_token().given(), table.token().given().is_some());
    let (token, read_token) = (table.token().with(token), table.read_token().with(token));
    if let Some(item) = item {
        if !has_token {
            let problem = item.error("`read_token` is given without `token`: no token would allow changes");
            item.reject::<()>(
                problem.help("add token = \"${ADMIN_TOKEN}\" for clients that may change keys"),
            );
            return Err(Reported);
        }
        if matches!((&token, &read_token), (Ok(token), Ok(read_token)) if token == read_token) {
            let problem = item.error("`read_token` is the same as `token`, which allows changes");
            item.reject::<()>(problem.help("make another one with: openssl rand -hex 32"));
            return Err(Reported);
        }
    }
    Ok((token?, read_token?))
}

/// Reads the address, and the mode of a Unix socket.
fn address(listen: Item<'_>, table: &Table<'_, AdminKeys>) -> Option<AdminAddress> {
    let text = listen.string_like("an address with a port, or a Unix socket", FORM)?;
    let mode = table.mode().given();
    let Some(path) = text.value.strip_prefix("unix:") else {
        if let Some(mode) = mode {
            let problem = mode.error("`mode` is for a Unix socket, and `listen` is not one");
            mode.reject::<()>(problem.help("leave it out, or listen on \"unix:/run/tidegate/admin.sock\""));
        }
        return text
            .parsed("an address with a port, nor a Unix socket", FORM, |text| text.parse().ok())
            .map(AdminAddress::Tcp);
    };
    let mode = table.mode().with(self::mode);
    let path = socket_path(&text, path)?;
    Some(AdminAddress::Unix { path: path.into(), mode: mode? })
}

fn socket_path<'p>(text: &TextItem<'_>, path: &'p str) -> Option<&'p str> {
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        let problem = text.error("the path of a Unix socket starts with `/` and names a file");
        return text.reject(problem.help(FORM));
    }
    if path.len() > MAX_PATH {
        let problem = text.error(format!("the path of a Unix socket has at most {MAX_PATH} bytes"));
        return text.reject(problem.help("choose a shorter one"));
    }
    Some(path)
}

/// Reads the permissions of a file.
fn mode(item: Item<'_>) -> Option<u32> {
    let form = "write octal digits in quotes: \"0600\" for its own user, \"0660\" also for its group";
    let text = item.string_like("the mode of a file", form)?;
    text.parsed("the mode of a file", form, |text| {
        let is_octal =
            (3..=4).contains(&text.len()) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
    })
}

/// Rejects an address beyond loopback to which any client has access, and the address of a listener.
fn check_tcp(
    address: SocketAddr,
    listen: Item<'_>,
    is_restricted: bool,
    others: &[ListenerSpec],
) -> Option<()> {
    if !is_restricted && !address.ip().to_canonical().is_loopback() {
        let problem = listen.error("an admin interface on an address other than loopback needs a token");
        return listen.reject(problem.help(
            "add token = \"${ADMIN_TOKEN}\" and set this variable, for example to the output of `openssl rand -hex 32`; or listen on 127.0.0.1",
        ));
    }
    if address.port() != 0 && others.iter().any(|other| other.address == address) {
        let problem = listen.error("a listener for clients has this address already");
        return listen.reject(problem.help("choose another port for [admin]"));
    }
    Some(())
}

fn token(item: Item<'_>) -> Option<AdminToken> {
    let text = item.string()?;
    match AdminToken::new(&text.value) {
        Ok(token) => Some(token),
        // The message does not quote the token.
        Err(error) => item.reject(item.error(error.to_string()).help("make one with: openssl rand -hex 32")),
    }
}
