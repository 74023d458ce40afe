//! What the kernel is told of a connection.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// After so long a silence the kernel asks.
const SILENT: Duration = Duration::from_mins(1);
/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(15);
/// Questions without an answer, after which the connection is broken.
const QUESTIONS: u32 = 4;

/// Has the kernel send what is written at once, since small messages would wait for acknowledgements otherwise; and find
/// out whether the other end is still there when nothing is said for long, since one that has vanished without a word
/// would hold its place for as long as silence is allowed. Of a listening socket, the connections that come from it have
/// both too.
///
/// # Errors
/// When the socket is none of TCP.
pub fn set_options<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(SILENT).with_interval(INTERVAL).with_retries(QUESTIONS);
    socket.set_tcp_keepalive(&keepalive)
}
