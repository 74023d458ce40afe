//! Rate headers in the notation of `OpenAI`, which its client packages read: `x-ratelimit-limit-tokens`,
//! `x-ratelimit-remaining-tokens` and `x-ratelimit-reset-tokens`, and the same with `-requests`.

use crate::gate::{Cost, CostBasis, Gate};
use crate::http1::{FieldName, Fields, parse_decimal, push_decimal};
use crate::limit::{Decision, Policy, PolicyId, binding};
use crate::limiter::LimitStatus;
use crate::time::Micros;
use crate::usage::{Weight, Weights};

/// What a limit counts, if it has headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Requests,
    Tokens,
}

/// Writes the headers of both units, each by the limit that binds of those that count it. `limits` are the policies of the
/// decisions.
pub(super) fn write(fields: &mut Fields, gate: &Gate, limits: &[Policy], statuses: &[LimitStatus]) {
    for unit in [Unit::Requests, Unit::Tokens] {
        let own = statuses.iter().filter(|status| unit_of(gate, limits, status.policy) == Some(unit));
        let own: Vec<&Decision> = own.map(|status| &status.decision).collect();
        if let Some(index) = binding(own.iter().copied()) {
            write_unit(fields, unit, own[index]);
        }
    }
}

/// What the limit of a policy counts: requests if each costs one unit, tokens if every token of a kind costs one or none.
/// Costs of other kinds and requests in flight have no headers.
fn unit_of(gate: &Gate, limits: &[Policy], policy: PolicyId) -> Option<Unit> {
    let own = &limits[policy];
    let rule = gate.limit_rules.get(gate.limit_of(own.configured(policy)))?;
    match &rule.cost {
        Cost::Fixed(1) if !own.has_slots() => Some(Unit::Requests),
        Cost::Settled(cost) => match &cost.basis {
            CostBasis::Llm(llm) if !llm.prices.depend_on_model() => {
                counts_tokens(&llm.prices.of(None).0).then_some(Unit::Tokens)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether units are tokens, not money.
fn counts_tokens(weights: &Weights) -> bool {
    let Weights { input, cached_input, cache_write, output, reasoning } = *weights;
    [input, cached_input, cache_write, output, reasoning]
        .iter()
        .all(|weight| [Weight::default(), Weight::ONE].contains(weight))
}

/// Writes the headers of a unit. A server's own are kept, as a set, if their remaining count is not above ours.
fn write_unit(fields: &mut Fields, unit: Unit, decision: &Decision) {
    let [limit, remaining, reset] = match unit {
        Unit::Requests => {
            ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"]
        }
        Unit::Tokens => {
            ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"]
        }
    }
    .map(|name| FieldName::new(name.as_bytes()));
    let theirs = fields.get(remaining).and_then(parse_decimal);
    if theirs.is_some_and(|theirs| theirs <= decision.remaining) {
        return;
    }
    fields.set_with(limit, |out| push_decimal(out, decision.limit));
    fields.set_with(remaining, |out| push_decimal(out, decision.remaining));
    fields.set_with(reset, |out| push_duration(out, decision.reset_after));
}

/// Writes a duration such as `20ms`, `1s`, `6m0s` or `1h0m0s`: milliseconds below a second, otherwise seconds, rounded up.
fn push_duration(out: &mut Vec<u8>, span: Micros) {
    let millis = span.0.div_ceil(1_000);
    if (1..1_000).contains(&millis) {
        push_decimal(out, millis);
        out.extend_from_slice(b"ms");
        return;
    }
    let seconds = span.ceil_secs();
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    if hours > 0 {
        push_decimal(out, hours);
        out.push(b'h');
    }
    if seconds >= 60 {
        push_decimal(out, minutes);
        out.push(b'm');
    }
    push_decimal(out, seconds % 60);
    out.push(b's');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_notation_of_openai() {
        for (micros, expected) in [
            (0, "0s"),
            (1, "1ms"),
            (20_000, "20ms"),
            (998_001, "999ms"),
            (999_001, "1s"),
            (1_000_000, "1s"),
            (8_640_000, "9s"),
            (59_000_001, "1m0s"),
            (360_000_000, "6m0s"),
            (3_600_000_000, "1h0m0s"),
            (90_061_000_000, "25h1m1s"),
        ] {
            let mut out = Vec::new();
            push_duration(&mut out, Micros(micros));
            assert_eq!(std::str::from_utf8(&out).unwrap(), expected, "{micros}");
        }
    }

    #[test]
    fn a_servers_own_headers_stay_if_their_remaining_count_is_not_above_ours() {
        for (theirs, expected) in [("5", "5"), ("6", "6"), ("7", "6"), ("many", "6")] {
            let mut fields: Fields = [("x-ratelimit-remaining-tokens", theirs)].into_iter().collect();
            write_unit(&mut fields, Unit::Tokens, &Decision::allowed(10, 6, Micros(1)));
            let remaining = fields.get(FieldName::new(b"x-ratelimit-remaining-tokens")).unwrap();
            assert_eq!(std::str::from_utf8(remaining).unwrap(), expected, "{theirs}");
        }
    }

    #[test]
    fn units_of_money_are_not_tokens() {
        let (one, none) = (Weight::ONE, Weight::default());
        let tokens =
            Weights { input: one, cached_input: one, cache_write: one, output: one, reasoning: none };
        assert!(counts_tokens(&tokens));
        assert!(counts_tokens(&Weights { input: none, cached_input: none, cache_write: none, ..tokens }));
        let weight = Weight::parse("0.15", 3).unwrap();
        assert!(!counts_tokens(&Weights { input: weight, ..tokens }));
    }
}
