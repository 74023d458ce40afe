//! The options of TCP sockets, and what to change where an address can't be listened on.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Idle time before the first keep-alive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered probes after which the kernel closes the connection.
const KEEPALIVE_PROBES: u32 = 4;
/// Ports below this one need a capability, unless the system says otherwise.
const PRIVILEGED: u16 = 1024;

/// Sets `TCP_NODELAY`, since small messages would otherwise wait for acknowledgements, and TCP keep-alive, since a peer that
/// vanished without a FIN would otherwise keep its connection until a timeout. Connections inherit both options from their
/// listening socket. Fails when the socket is not a TCP socket.
pub fn set_tcp_options<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

/// What to change after listening on a TCP address has failed with this error.
#[must_use]
pub fn listen_cure(address: SocketAddr, error: &io::Error) -> Option<String> {
    let port = address.port();
    Some(match error.kind() {
        ErrorKind::AddrInUse => {
            let user = listening_user(port)
                .map_or_else(String::new, |user| format!("a process of the user `{user}` uses it; "));
            format!(
                "{user}ss -ltnp 'sport = :{port}' shows the process that uses it; run it as root to see those of other users"
            )
        }
        ErrorKind::PermissionDenied => {
            let program =
                std::env::current_exe().map_or_else(|_| "tidegate".into(), |path| path.display().to_string());
            format!(
                "ports below {} need the capability CAP_NET_BIND_SERVICE: setcap cap_net_bind_service=+ep {program}, or in a unit of \
                 systemd (systemctl edit tidegate) AmbientCapabilities=CAP_NET_BIND_SERVICE with the same CapabilityBoundingSet and \
                 PrivateUsers=no; or listen on a higher port",
                first_unprivileged()
            )
        }
        ErrorKind::AddrNotAvailable => {
            let all = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
            format!(
                "this machine does not have the address {}; {all}:{port} listens on all that it has",
                address.ip()
            )
        }
        _ => return None,
    })
}

/// What to change after listening on the path of a Unix socket has failed with this error.
#[must_use]
pub fn unix_listen_cure(path: &Path, error: &io::Error) -> Option<String> {
    let directory = path.parent().unwrap_or(Path::new("/")).display();
    Some(match error.kind() {
        ErrorKind::AddrInUse => {
            format!("ss -lxp 'src = {}' shows the process that uses it, as root", path.display())
        }
        ErrorKind::NotFound => {
            format!(
                "create the directory {directory}; under systemd RuntimeDirectory=tidegate creates /run/tidegate"
            )
        }
        ErrorKind::PermissionDenied => format!("let the user that runs tidegate write in {directory}"),
        _ => return None,
    })
}

/// What to change after connecting to a Unix socket has failed with this error.
#[must_use]
pub fn unix_connect_cure(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::NotFound => Some("no socket is at this path: start the server, or correct the path"),
        ErrorKind::PermissionDenied => Some("let the user that runs tidegate write to the socket"),
        _ => None,
    }
}

/// The name of the user, or else its number, of a process that listens on this TCP port (`proc_net_tcp` of the kernel).
fn listening_user(port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(std::fs::read_to_string);
    let local = format!(":{port:04X}");
    let user = tables.iter().flatten().flat_map(|table| table.lines()).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&local) && *fields.get(3)? == LISTEN;
        listens.then(|| fields.get(7).copied()).flatten()
    })?;
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == user).then(|| name.to_owned())
    });
    Some(named.unwrap_or_else(|| user.to_owned()))
}

fn first_unprivileged() -> u16 {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(PRIVILEGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cure_names_commands_and_settings() {
        let cure = |address: &str, kind: ErrorKind| listen_cure(address.parse().unwrap(), &kind.into());
        let privileged = cure("0.0.0.0:80", ErrorKind::PermissionDenied).unwrap();
        for part in ["setcap cap_net_bind_service=+ep /", "AmbientCapabilities=", "PrivateUsers=no"] {
            assert!(privileged.contains(part), "{privileged}");
        }
        assert!(cure("[::1]:80", ErrorKind::AddrInUse).unwrap().contains("ss -ltnp 'sport = :80'"));
        assert!(cure("[2001:db8::1]:80", ErrorKind::AddrNotAvailable).unwrap().contains("[::]:80 listens"));
        assert_eq!(cure("[::1]:80", ErrorKind::OutOfMemory), None);
        let cure = unix_listen_cure(Path::new("/run/x/admin.sock"), &ErrorKind::NotFound.into()).unwrap();
        assert!(cure.starts_with("create the directory /run/x;"), "{cure}");
    }
}
