//! What has happened in the last hour: in the whole process, and of one key.

use std::io::{self, Write};
use std::sync::Arc;

use super::activity::HISTORY_SECONDS;
use super::api::{KeyHistoryResponse, KeySlotInfo};
use super::limits;
use super::response::{self, AdminResponse};
use super::sessions::AdminSession;
use super::state::Admin;
use crate::limit::{Key, PolicyId};
use crate::telemetry::{self, Frame};
use crate::time::{Micros, monotonic};

/// The frames of the last hour.
pub(super) fn response(admin: &Admin, session: &AdminSession) -> AdminResponse {
    let frames = admin.activity.history();
    // It fails when the client has disconnected.
    let body = session.stream(move |out| drop(write(&frames, out)));
    response::with_body("application/json", body)
}

/// Writes a frame in a line.
fn write(frames: &[Arc<Frame>], out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"seconds\": {HISTORY_SECONDS}, \"frames\": [")?;
    let mut separator = "\n";
    for frame in frames {
        out.write_all(separator.as_bytes())?;
        // In one piece, since it is written in many small ones.
        out.write_all(&serde_json::to_vec(&**frame)?)?;
        separator = ",\n";
    }
    out.write_all(b"\n]}\n")?;
    out.flush()
}

/// The requests of a key in the last hour.
pub(super) fn of_key(admin: &Admin, limit: PolicyId, key: Key) -> KeyHistoryResponse {
    let policy = &admin.snapshot.gate.limits.policies[limit];
    let (now, time) = (monotonic(), Micros(admin.clock.now().0).as_secs_f64());
    let history = admin.top.as_ref().map(|top| top.key_history(&policy.name, key, now));
    let (slots, max_error) = history.map_or((Vec::new(), 0), |history| (history.slots, history.max_error));
    let slot = |slot: &telemetry::KeySlot| KeySlotInfo {
        from: rounded(time - now.saturating_duration_since(slot.start).as_secs_f64()),
        seconds: rounded(slot.length.as_secs_f64()),
        requests: slot.traffic,
        denials: slot.denials,
    };
    KeyHistoryResponse {
        limit: policy.name.to_string(),
        key: limits::tag(key),
        mode: limits::mode(policy).to_owned(),
        max_error,
        slots: slots.iter().map(slot).collect(),
    }
}

/// Rounds to a millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
