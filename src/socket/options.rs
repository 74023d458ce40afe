//! TCP socket options.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Idle time before the first keep-alive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered probes after which the kernel closes the connection.
const KEEPALIVE_PROBES: u32 = 4;

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
