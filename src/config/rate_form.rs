//! Rates in the forms of other programs, such as `5r/s` and `5 per minute`, for messages that propose the right form.

/// Words for what a rate counts.
const UNITS: [&str; 12] =
    ["requests", "request", "reqs", "req", "calls", "hits", "times", "tokens", "units", "r", "q", "x"];
/// Words and signs between the units and the period.
const SEPARATORS: [&str; 9] = ["/", "per ", "each ", "every ", "an ", "a ", "in ", "p", "\\"];
/// Longer numbers are no mistakes of form.
const MAX_DIGITS: usize = 9;

/// The rate that a text of another form may mean; the caller checks that it is one.
pub(super) fn meant(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (units, rest) = number(&text)?;
    let (units, rest) = match rest.strip_prefix('k') {
        Some(after) if !after.starts_with(|c: char| c.is_ascii_alphabetic()) => (units.thousands()?, after),
        _ => (units, rest),
    };
    let rest = rest.trim_start();
    let rest = UNITS.iter().find_map(|word| after_word(rest, word)).unwrap_or(rest).trim_start();
    let rest = SEPARATORS.iter().find_map(|separator| rest.strip_prefix(separator))?.trim();
    let (count, unit) = number(rest).unwrap_or((Decimal { digits: 1, places: 0 }, rest));
    let unit = unit.trim();
    let is_word = !unit.is_empty() && unit.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word.then(|| written(units, count, unit)).flatten()
}

/// A rate, and the text after it that names a burst, as in nginx: `5r/s burst=20`.
pub(super) fn with_burst(text: &str) -> Option<(&str, &str)> {
    let (rate, burst) = text.split_once("burst")?;
    let burst = burst.trim_start_matches(['=', ':', ' ']);
    let end = burst.find(|character: char| !character.is_ascii_digit()).unwrap_or(burst.len());
    let rate = rate.trim_end_matches([' ', ',', ';']);
    (end > 0 && !rate.is_empty()).then_some((rate, &burst[..end]))
}

/// A rate, and the text after it that names what it counts by: `100/minute/ip`, `100/minute per client`.
pub(super) fn with_key(text: &str) -> Option<&str> {
    let (_, period) = text.split_once(['/', ' '])?;
    let at = period.find('/').or_else(|| period.rfind(" per "))?;
    let rate = &text[..text.len() - period.len() + at];
    (!rate.is_empty()).then_some(rate)
}

/// A number of which `places` digits are behind the point.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u64,
    places: u32,
}

impl Decimal {
    fn thousands(self) -> Option<Self> {
        Some(Self { digits: self.digits.checked_mul(1_000)?, ..self })
    }
}

/// The number at the start of a text, and the rest; `1,000` and `1_000` are thousands.
fn number(text: &str) -> Option<(Decimal, &str)> {
    let is_part = |character: char| character.is_ascii_digit() || matches!(character, '.' | ',' | '_');
    let end = text.find(|character: char| !is_part(character)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let number = number.replace([',', '_'], "");
    let (whole, behind) = number.split_once('.').unwrap_or((&number, ""));
    let digits = format!("{whole}{behind}");
    let digits = (digits.len() <= MAX_DIGITS).then(|| digits.parse().ok()).flatten()?;
    Some((Decimal { digits, places: u32::try_from(behind.len()).ok()? }, rest))
}

/// The text after a word that ends there, or before a separator such as the `p` in `rps`.
fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(word)?;
    let is_compact = rest.len() == 2 && rest.starts_with('p');
    (is_compact || !rest.starts_with(|character: char| character.is_ascii_alphabetic())).then_some(rest)
}

/// `units` each `count` `unit`s in whole numbers: `1.5` each second are `3/2s`.
fn written(units: Decimal, count: Decimal, unit: &str) -> Option<String> {
    let scale = |one: Decimal, other: Decimal| one.digits.checked_mul(10_u64.checked_pow(other.places)?);
    let (mut of_units, mut periods) = (scale(units, count)?, scale(count, units)?);
    if units.places > 0 || count.places > 0 {
        let divisor = greatest_common_divisor(of_units, periods).max(1);
        (of_units, periods) = (of_units / divisor, periods / divisor);
    }
    Some(match (periods, unit.len() > 3) {
        (1, _) => format!("{of_units}/{unit}"),
        (_, false) => format!("{of_units}/{periods}{unit}"),
        (_, true) => format!("{of_units}/{periods} {}s", unit.trim_end_matches('s')),
    })
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_other_programs_are_recognized() {
        for (text, rate) in [
            ("5r/s", "5/s"),
            ("5 per minute", "5/minute"),
            ("5 per 10 minutes", "5/10 minutes"),
            ("1.5/s", "3/2s"),
            ("0.5/s", "1/2s"),
            ("0.25 / minute", "1/4 minutes"),
            ("2.0/s", "2/s"),
            ("1/0.5s", "2/s"),
            ("5/1.5s", "10/3s"),
            ("100rpm", "100/m"),
            ("100 rps", "100/s"),
            ("20qps", "20/s"),
            ("10 requests/minute", "10/minute"),
            ("10 requests per minute", "10/minute"),
            ("10 Req / Second", "10/second"),
            ("5 a day", "5/day"),
            ("5 in 10s", "5/10s"),
            ("1,000/minute", "1000/minute"),
            ("1k/s", "1000/s"),
            ("1.5k/s", "1500/s"),
            ("5\\s", "5/s"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(rate), "{text}");
        }
        for text in ["", "5", "ten/s", "/s", "-5/s", "5 s", "1.2.3/s", "99999999999/s", "5/", "5/1000", "."] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    #[test]
    fn what_belongs_to_other_keys_is_split_off() {
        assert_eq!(with_burst("5r/s burst=20 nodelay"), Some(("5r/s", "20")));
        assert_eq!(with_burst("5/s, burst 20"), Some(("5/s", "20")));
        assert_eq!(with_burst("5/s burst"), None);
        assert_eq!(with_key("100/minute/ip"), Some("100/minute"));
        assert_eq!(with_key("100 per minute per ip"), Some("100 per minute"));
        assert_eq!(with_key("100/minute"), None);
    }
}
