//! What the tests with real origins have in common.

use std::thread;
use std::time::Duration;

use crate::support::Upstream;

/// A request that finds out whether a server is ready.
pub const READY: &[u8] = b"GET /ready HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n";
/// How much later than planned requests may be sent.
pub const MARGIN: Duration = Duration::from_millis(300);
/// How long the server holds responses to `/slow`.
const HOLD: Duration = Duration::from_millis(600);

/// A server that responds to `/slow` after [`HOLD`], and to `/missing` with 404.
pub fn slow_upstream() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/slow") {
                thread::sleep(HOLD);
            }
            let status = if request.start.contains("/missing") { "404 Not Found" } else { "200 OK" };
            if caller.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")).is_err() {
                return;
            }
        }
    })
}
