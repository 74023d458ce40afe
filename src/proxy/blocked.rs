//! Requests that the `block` list of a limit rejects, which have no plan.

use super::log_entry::LogEntry;
use super::snapshot::Proxy;
use crate::gate::Subject;
use crate::limit::PolicyId;
use crate::telemetry::{KeyEvent, LogKeys};

/// Counts such a request among those of its key, and records its consumer and its key in the access log. A request without a
/// key, whose address is blocked, has neither count nor key.
pub(super) fn record(
    proxy: &Proxy,
    subject: &Subject<'_>,
    limit: PolicyId,
    log_entry: Option<&mut LogEntry>,
) {
    let gate = &proxy.snapshot.gate;
    let consumer = subject.identity.name();
    let key = gate.limit_rules[limit].key.find(subject, &gate.hasher).key();
    if let (Some(top), Some(key)) = (&proxy.top, key) {
        let event = KeyEvent { key, consumer, is_denied: true };
        top.record(limit, event, || gate.key_name_of(limit, key, subject));
    }
    let Some(entry) = log_entry else { return };
    entry.set_consumer(consumer);
    if let Some(key) = key.filter(|_| entry.keys() != LogKeys::Off) {
        let name = (entry.keys() == LogKeys::Plain).then(|| gate.key_name_of(limit, key, subject));
        entry.set_key(&key, name.flatten());
    }
}
