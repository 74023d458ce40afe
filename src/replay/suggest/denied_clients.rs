//! The clients of which limits deny most requests.

use std::cmp::Reverse;

use serde::Serialize;

use super::check::check;
use super::history::History;
use super::peaks::{WINDOWS, peaks};
use super::shape::Shape;
use crate::limit::{Key, Quota};

/// How many clients are shown.
const SHOWN: usize = 10;

/// A client of which requests are denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeniedClient {
    /// Its key in a readable form.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Those that are denied.
    pub denied: u64,
    /// Its most units in 1 s, 10 s, 1 min, 10 min, 1 h and 1 d.
    pub peaks: [u64; WINDOWS.len()],
    /// What its requests look like over time.
    pub shape: Shape,
}

/// The clients of which most requests are denied, over all of the time.
pub(super) fn top_denied(history: &History, quotas: &[Quota]) -> Vec<DeniedClient> {
    let Some(span) = history.span() else { return Vec::new() };
    let (_, mut denied) = check(history, span, quotas);
    denied.sort_by_key(|client| (Reverse(client.denied), client.position));
    let mut buffer = Vec::new();
    let shown = denied.into_iter().take(SHOWN);
    shown
        .filter_map(|client| {
            let read = history.read(client.position, span, &mut buffer)?;
            Some(DeniedClient {
                name: history.name(read.key).map_or_else(|| tag(read.key), str::to_owned),
                requests: client.requests,
                denied: client.denied,
                peaks: peaks(read.arrivals),
                shape: Shape::of(read.arrivals),
            })
        })
        .collect()
}

/// The form of a key of which no name is known.
fn tag(key: Key) -> String {
    format!("{}{key}", Key::TAG)
}
