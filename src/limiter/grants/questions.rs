//! What is asked of the store about grants, in one call.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::held_grant::GrantCall;
use super::held_grants::{HeldGrants, Question};
use super::table::GrantTable;
use crate::limit::{Charge, ChargeKind, Decision, EntryId, Grant, GrantRequest};
use crate::limiter::limits::Limits;
use crate::store::{Decisions, Granted};
use crate::time::BootTime;

/// The questions of a call, one for each of its charges of the kind `Grant`. Dropping it ends them.
#[derive(Debug)]
pub(in crate::limiter) struct Questions {
    table: Arc<GrantTable>,
    /// What the store is asked, in the order of the charges.
    pub requests: SmallVec<[GrantRequest; 2]>,
    /// The keys for which a grant is wanted.
    wanted: SmallVec<[EntryId; 2]>,
    sent: BootTime,
    drops: u64,
}

/// The charges of a call that is sent now, and the questions for them if one is of a limit that grants units; see [`ask`].
pub(in crate::limiter) fn ask_if_granted<'a>(
    table: &Arc<GrantTable>,
    limits: &Limits,
    charges: Cow<'a, [Charge]>,
    may_want: bool,
) -> (Cow<'a, [Charge]>, Option<Questions>) {
    if !limits.grant_units(&charges) {
        return (charges, None);
    }
    let (charges, questions) = ask(table, limits, &charges, may_want, BootTime::now());
    (Cow::Owned(charges), Some(questions))
}

/// Makes the questions for `charges` of a call that is `sent` after that. A grant is asked for only if `may_want`. Returns the
/// charges as well: one with nothing to ask or to report only takes its units, which costs the store less.
pub(super) fn ask(
    table: &Arc<GrantTable>,
    limits: &Limits,
    charges: &[Charge],
    may_want: bool,
    sent: BootTime,
) -> (Vec<Charge>, Questions) {
    let drops = table.drops();
    let (requests, wanted) = (SmallVec::new(), SmallVec::new());
    let mut questions = Questions { table: Arc::clone(table), requests, wanted, sent, drops };
    let mut asking = charges.to_vec();
    for charge in asking.iter_mut().filter(|charge| charge.kind == ChargeKind::Grant) {
        let question = Question { cost: charge.cost, may_want };
        let request = table.with_key(&limits.policies, charge, sent, |held| held.ask(question, sent));
        // A key for which there is no room gets no grant.
        let request = request.unwrap_or_default();
        if request == GrantRequest::default() {
            charge.kind = ChargeKind::Take;
            continue;
        }
        if request.wanted > 0 {
            questions.wanted.push(EntryId::new(limits.policy(charge), charge.key));
        }
        questions.requests.push(request);
    }
    (asking, questions)
}

impl Questions {
    /// Whether a grant is wanted.
    pub fn want_grants(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Adds the grants of a reply to `charges` that was `received` now. Returns its decisions; those that allow a request show
    /// the held units as well.
    pub fn answer(
        self,
        limits: &Limits,
        charges: &[Charge],
        granted: &Granted,
        received: BootTime,
    ) -> Decisions {
        let mut decisions = granted.decisions.clone();
        let asked = charges.iter().zip(&mut decisions).filter(|(charge, _)| charge.kind == ChargeKind::Grant);
        for ((charge, decision), grant) in asked.zip(&granted.grants) {
            let call = GrantCall { sent: self.sent, received, decided: decision.at };
            *decision = self.add(limits, charge, *decision, (grant, call));
        }
        decisions
    }

    fn add(
        &self,
        limits: &Limits,
        charge: &Charge,
        decision: Decision,
        (grant, call): (&Grant, GrantCall),
    ) -> Decision {
        let (table, id) = (&self.table, EntryId::new(limits.policy(charge), charge.key));
        let added = table.with_key(&limits.policies, charge, call.received, |held| {
            held.record_decision(decision, call.received);
            if grant.units == 0 && self.wanted.contains(&id) {
                held.record_refusal(call.received);
            }
            if grant.units > 0 {
                table.give_back(held.add(table.next_serial(), grant, call));
                // An operator may have changed the key after the store has made the grant.
                if table.drops() != self.drops {
                    held.drop_all();
                }
                table.sweep_within(held.span());
            }
            held.shown(decision, call.received)
        });
        added.unwrap_or(decision)
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        for id in &self.wanted {
            self.table.with_known(id, HeldGrants::end_question);
        }
    }
}
