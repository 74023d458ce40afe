//! Whether the other end of a silent connection is still there.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// After so long a silence the kernel asks.
const SILENT: Duration = Duration::from_mins(1);
/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(15);
/// Questions without an answer, after which the connection is broken.
const QUESTIONS: u32 = 4;

/// Has the kernel find out whether the other end of a connection is still there, when nothing is said for long: one that
/// has vanished without a word would hold its place for as long as silence is allowed. Of a listening socket, the
/// connections that come from it have this too.
///
/// # Errors
/// When the socket is none of TCP.
pub fn keep_alive<'s>(socket: impl Into<SockRef<'s>>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(SILENT).with_interval(INTERVAL).with_retries(QUESTIONS);
    socket.into().set_tcp_keepalive(&keepalive)
}
