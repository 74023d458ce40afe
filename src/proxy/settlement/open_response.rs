//! A response that is being sent, and the limits that it settles at its end.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Body as _;
use tokio::time::timeout;

use super::cost::{End, Seen};
use super::observer::Observer;
use super::pending::Pending;
use crate::upstream::ResponseBody;

/// The most bytes that are read of a response whose client has gone.
const MAX_ABANDONED: u64 = 16 * 1024 * 1024;

/// A response that is being sent, and the limits that it settles at its end.
pub(super) struct OpenResponse {
    pub pending: Pending,
    pub observer: Observer,
    /// The bytes of the body so far.
    pub bytes: u64,
    pub trailers: Option<HeaderMap>,
}

impl OpenResponse {
    pub fn new(pending: Pending, observer: Observer) -> Self {
        Self { pending, observer, bytes: 0, trailers: None }
    }

    /// Adds bytes that are passed on.
    pub fn add(&mut self, data: &Bytes) {
        self.bytes += data.len() as u64;
        self.observer.add(data);
    }

    /// Settles the limits at the end of the response.
    pub fn settle(&mut self, end: End) {
        let observed = self.observer.finish();
        let seen = Seen {
            end,
            observed: observed.as_ref().map_err(|why| *why),
            is_stream: self.observer.is_stream(),
            bytes: self.bytes,
            trailers: self.trailers.as_ref(),
        };
        self.pending.settle(&seen);
    }

    /// What the limit at `index` would be charged if the response ended now.
    pub fn so_far(&self, index: usize) -> Option<u64> {
        let seen = Seen {
            end: End::Early,
            observed: self.observer.so_far(),
            is_stream: self.observer.is_stream(),
            bytes: self.bytes,
            trailers: None,
        };
        self.pending.so_far(index, &seen)
    }

    /// Reads the rest of a response whose client has gone, for as long as a limit allows, and settles.
    pub async fn read_on(mut self, mut body: Box<ResponseBody>) {
        let longest = self.pending.costs().map(|cost| cost.finish_abandoned).max().unwrap_or_default();
        let rest = async {
            let start = self.bytes;
            while self.bytes - start < MAX_ABANDONED {
                match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => {
                            self.add(&data);
                            self.observer.read();
                        }
                        Err(frame) => self.trailers = frame.into_trailers().ok(),
                    },
                    Some(Err(_)) => return End::Early,
                    None => return End::Whole,
                }
            }
            End::Early
        };
        let end = timeout(longest, rest).await.unwrap_or(End::Early);
        // Before the body is dropped, which releases the slots of the request.
        self.settle(end);
    }

    /// Whether the rest of the response is read if its client has gone.
    pub fn reads_on(&self) -> bool {
        self.pending.costs().any(|cost| !cost.finish_abandoned.is_zero())
    }
}
