//! Describes limits that grant units ahead of requests, or keep freed slots.

use crate::limit::{Ahead, Policy, Quota, Slots};
use crate::time::{Micros, format_duration};

/// What a proxy may hold of a limit, and for how long; `None` for a limit without `ahead`.
pub(super) fn describe(policy: &Policy) -> Option<String> {
    let shown = |span: Micros| format_duration(span.into());
    if let Quota::Concurrency(slots) = &policy.quota {
        let most = Some(slots.max_kept()).filter(|most| policy.keeps_slots && *most > 0)?;
        let kept_for = shown(Slots::KEPT_FOR);
        return Some(format!(
            "freed slots are kept: a proxy holds at most {most} of a key, for {kept_for} at most"
        ));
    }
    let ahead @ Ahead { span, share } = policy.ahead?;
    if !ahead.may_grant(&policy.quota) {
        return Some("Redis decides every request: the limit has too few units for a grant".to_owned());
    }
    // Units whose proxy does not report them stay reserved until their generation ends.
    let (granted_for, held_for) = (shown(span), shown(Micros(2 * span.0)));
    let most = if share.get() == 1 { "all".to_owned() } else { format!("1/{share}") };
    Some(format!(
        "a grant lasts for {granted_for} and has at most {most} of the available units, which are reserved for {held_for} at most"
    ))
}
