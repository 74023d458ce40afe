//! Whether the conversion accounts for all restrictions of the origin.

use std::collections::{HashMap, HashSet};

use super::model::{Converted, TomlRoute, TomlTarget};
use super::note::{FileLine, Finding, Note};
use super::restrictions::Restriction;

/// Why a line is lost that only routes have to which no requests get.
const HIDDEN: &str = "it is lost for some of its requests: an earlier route for the same host and path gets them, without this line";

/// Compares the restrictions of the origin with the output and its remarks. Adds a remark on each that has none of its own.
pub(super) fn account(converted: &mut Converted) {
    let routed: HashSet<&String> = converted.named_limits().collect();
    let limits = converted.limits.iter().filter(|limit| routed.contains(&limit.name));
    let mut written: HashSet<FileLine> = limits.clone().flat_map(|limit| limit.uses.clone()).collect();
    written.extend(converted.routes.iter().flat_map(|route| route.uses.clone()));
    let (mut remarked, mut blocks) = (HashSet::new(), HashMap::new());
    let mut lost = hidden(&converted.routes);
    for note in converted.notes_without_limits().chain(limits.flat_map(|limit| &limit.notes)) {
        if let Note::Origin(place, _) = note {
            written.insert(place.clone());
        }
    }
    for Finding { place, is_of_block, is_lost, changes_behaviour, .. } in converted.findings() {
        if is_of_block {
            *blocks.entry(place.clone()).or_insert(false) |= changes_behaviour;
        }
        if is_lost {
            lost.insert(place.clone());
        }
        remarked.insert(place);
    }
    for Restriction { place, text, is_limit, within } in std::mem::take(&mut converted.restrictions) {
        let tally = if is_limit { &mut converted.account.limits } else { &mut converted.account.access };
        tally.all += 1;
        let is_lost = lost.contains(&place) || within.iter().any(|block| lost.contains(block));
        if written.contains(&place) && !is_lost {
            tally.converted += 1;
        } else if !remarked.contains(&place) {
            let mut named = within.iter().filter_map(|block| blocks.get(block)).peekable();
            let is_named = named.peek().is_some();
            let changes_behaviour = !is_named || named.any(|changes| *changes);
            converted.account.lost += usize::from(!is_named && !is_lost);
            let reason = if is_named {
                "what it belongs to is not converted"
            } else if is_lost {
                HIDDEN
            } else {
                "ACCESS IS OPEN: the conversion lost this line. Write what it does yourself"
            };
            let note = Note::finding(&place, &text, reason);
            converted.notes.push(if changes_behaviour || is_lost { note } else { note.for_information() });
        }
    }
}

/// The lines of routes that get no requests, since an earlier route selects the same ones and forwards them without these lines.
fn hidden(routes: &[TomlRoute]) -> HashSet<FileLine> {
    let mut earlier: HashMap<(Option<&String>, &String), Vec<&TomlRoute>> = HashMap::new();
    let mut hidden = HashSet::new();
    for route in routes {
        let same = earlier.entry((route.host.as_ref(), &route.path)).or_default();
        match same.iter().find(|earlier| earlier.selects_the_same(route)) {
            Some(earlier) if matches!(earlier.target, TomlTarget::Upstream(_)) => {
                hidden.extend(route.uses.iter().filter(|line| !earlier.uses.contains(line)).cloned());
            }
            Some(_) => {}
            None => same.push(route),
        }
    }
    hidden
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::restrictions::{Account, Tally};

    #[test]
    fn restrictions_are_in_the_output_or_in_a_remark_or_lost() {
        let place = |line| FileLine { order: 0, file: Arc::from("f"), line, column: 1 };
        let limit = |line, within| Restriction::limit(place(line), format!("line {line}"), within);
        let mut converted = Converted {
            notes: vec![
                Note::origin(&place(1), "converted"),
                Note::finding(&place(2), "named", "why"),
                Note::finding(&place(3), "block", "why").of_block(),
                Note::finding(&place(7), "block", "why"),
            ],
            restrictions: vec![
                limit(1, vec![]),
                limit(2, vec![]),
                limit(4, vec![place(3)]),
                limit(5, vec![place(1), place(7)]),
                Restriction::access(place(6), "line 6".to_owned(), vec![]),
            ],
            ..Converted::default()
        };
        account(&mut converted);
        let tally = |converted, all| Tally { converted, all };
        assert_eq!(converted.account, Account { limits: tally(1, 4), access: tally(0, 1), lost: 2 });
        let findings = converted.findings();
        let lost: Vec<usize> =
            findings.iter().filter(|it| it.reason.contains("lost")).map(|it| it.place.line).collect();
        assert_eq!((findings.len(), lost), (6, vec![5, 6]));
    }
}
