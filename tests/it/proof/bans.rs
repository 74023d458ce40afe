//! Bans and blocks against a model of them.

use proptest::prelude::*;
use tidegate::limit::{Ban, Decision, DenyReason, PolicyId};
use tidegate::store::StateChange;
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, SECOND, any_cost, any_move, any_timed, for_all, key, memory};
use super::model::Model;

/// An event of a key.
#[derive(Clone, Copy, Debug)]
enum Event {
    Take(u64),
    Block(u64),
    Unblock,
    Reset,
}

/// The model of a ban or block, and of the quota.
struct Held {
    quota: Model,
    ban: Ban,
    /// The time of the last change; the time of a key does not run backwards.
    stamp: u64,
    opened: u64,
    denials: u64,
    banned: u64,
    blocked: u64,
}

impl Held {
    fn take(&mut self, now: u64, cost: u64) -> Decision {
        let at = now.max(self.stamp);
        let mut tried = self.quota.clone();
        let said = tried.take(now, cost);
        let is_held = |end: u64| end > at;
        if !is_held(self.banned) && !is_held(self.blocked) {
            if said.allowed {
                self.quota = tried;
                let window = if self.denials > 0 { self.opened + self.ban.within.0 } else { 0 };
                let is_over = window.max(self.banned).max(self.blocked) <= now;
                match cost {
                    0 => {}
                    // An expired ban or block is removed by the next charge.
                    _ if is_over => {
                        (self.stamp, self.denials, self.banned, self.blocked) = (0, 0, 0, 0);
                    }
                    _ => self.stamp = at,
                }
                return said;
            }
            let is_open = self.denials > 0 && at < self.opened + self.ban.within.0;
            (self.opened, self.denials) = if is_open { (self.opened, self.denials + 1) } else { (at, 1) };
            self.stamp = at;
            if self.denials < self.ban.after {
                return said;
            }
            (self.denials, self.banned) = (0, at + self.ban.length.0);
        }
        let rest = self.banned.max(self.blocked) - now;
        let present = self.quota.clone().take(now, 0);
        Decision {
            allowed: false,
            remaining: 0,
            reset_after: present.reset_after.max(Micros(rest)),
            retry_after: said.retry_after.map(|wait| wait.max(Micros(rest))),
            delay: Micros::ZERO,
            reason: if is_held(self.blocked) { DenyReason::Block } else { DenyReason::Ban },
            ..present
        }
    }

    fn change(&mut self, now: u64, change: StateChange, fresh: Model) {
        let at = now.max(self.stamp);
        match change {
            StateChange::Block(length) => (self.stamp, self.blocked) = (at, at + length.0),
            StateChange::Unblock => (self.stamp, self.denials, self.banned, self.blocked) = (0, 0, 0, 0),
            StateChange::Reset => {
                (self.quota, self.denials, self.banned) = (fresh, 0, 0);
                (self.stamp, self.blocked) = if self.blocked > at { (at, self.blocked) } else { (0, 0) };
            }
        }
    }
}

/// Denials count in a window that the first opens; the denial that exceeds the bound bans the key. A ban denies peeks as well,
/// which do not extend it. A block denies until its end. Unblock and reset remove them.
#[test]
fn bans_and_blocks_match_their_model() {
    let span = || prop_oneof![Just(1_000_u64), 1..4_000_u64, 1..2_000_000_u64, Just(60_000_000)];
    let ban = (1..6_u64, span(), span()).prop_map(|(after, within, length)| Ban {
        after,
        within: Micros(within),
        length: Micros(length),
    });
    let event = prop_oneof![
        12 => any_cost().prop_map(Event::Take),
        1 => span().prop_map(Event::Block),
        1 => Just(Event::Unblock),
        1 => Just(Event::Reset)
    ];
    let events = prop::collection::vec((any_move(), event), 1..60);
    for_all(600, &(any_timed(), ban, events), |(numbers, ban, events)| {
        let memory = memory();
        let policies = [kit::with(numbers.policy("a"), Some(ban), false)];
        let mut model =
            Held { quota: numbers.model(), ban, stamp: 0, opened: 0, denials: 0, banned: 0, blocked: 0 };
        let (mut course, mut last) = (Course::behind(SECOND), None);
        for (step, event) in events {
            let now = course.go(step, numbers.period(), last.as_ref());
            memory.clock().set(Timestamp(now));
            let change = match event {
                Event::Take(cost) => {
                    let actual = memory.take(&policies, &[kit::charge(0, 1, cost)])[0];
                    prop_assert_eq!(actual, model.take(now, cost), "{} units at {}", cost, now);
                    last = Some(actual);
                    continue;
                }
                Event::Block(length) => StateChange::Block(Micros(length)),
                Event::Unblock => StateChange::Unblock,
                Event::Reset => StateChange::Reset,
            };
            let _ = memory.change(&policies, &[(PolicyId(0), key(1))], change);
            model.change(now, change, numbers.model());
        }
        Ok(())
    });
}
