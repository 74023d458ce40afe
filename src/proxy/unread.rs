//! Request bodies that were not read, because the proxy has responded without them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Version;
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use crate::http1::RequestHead;
use crate::http1::names::CONNECTION;
use crate::socket::Alarm;
use crate::time::monotonic;

/// The longest body that is read and thrown away so that its connection can be used again, in bytes.
const MAX_LENGTH: u64 = 64 * 1024;
/// How long such a body is read in all.
pub(super) const MAX_TIME: Duration = Duration::from_secs(1);

/// Whether a connection ends after this request because its client wants that (RFC 9112 §9.3).
pub(super) fn is_last(head: &RequestHead) -> bool {
    let has_option =
        |name: &[u8]| head.fields.elements(CONNECTION).any(|option| option.eq_ignore_ascii_case(name));
    if head.version == Version::HTTP_10 { !has_option(b"keep-alive") } else { has_option(b"close") }
}

/// A body over HTTP/1.1 that is read and thrown away while its response is sent, and for a moment after it.
#[derive(Debug)]
pub(super) struct Unread {
    body: Incoming,
    until: Instant,
    alarm: Alarm,
}

impl Unread {
    /// None if the body is too long for that, or of unknown length.
    pub fn of(body: Incoming) -> Option<Self> {
        let is_short = body.size_hint().upper().is_some_and(|length| length <= MAX_LENGTH);
        is_short.then(|| Self { body, until: monotonic() + MAX_TIME, alarm: Alarm::default() })
    }

    /// Reads on; ready at the end of the body or of the time, and with whether the body is complete.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => return Poll::Ready(true),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Pending => return self.alarm.wait_until(self.until, cx).map(|()| false),
            }
        }
    }
}
