//! Names of limits and upstreams, made from those of the origin.

use std::collections::HashSet;

/// The longest name of a limit.
const LONGEST: usize = 64;

/// Names that are in use.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// A name of a limit that is not in use yet, as similar as possible to this one.
    pub fn unique(&mut self, wanted: &str) -> String {
        let base = valid(wanted);
        let numbered = (2_usize..).map(|number| {
            let suffix = format!("-{number}");
            let kept: String = base.chars().take(LONGEST - suffix.len()).collect();
            kept + &suffix
        });
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(base);
        self.0.insert(name.clone());
        name
    }
}

/// The text with the characters of names of limits only: `a-z`, `0-9`, `-` and `_`.
fn valid(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let replaced = text.to_lowercase().replace(|c| !allowed(c), "-");
    let trimmed: String = replaced.trim_matches('-').chars().take(LONGEST).collect();
    if trimmed.is_empty() { "limit".to_owned() } else { trimmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = Names::default();
        let long = "x".repeat(100);
        let wanted = ["Per IP", "per ip", "per/ip", "", "é", &long, &long];
        let found = wanted.map(|name| names.unique(name));
        let expected = ["per-ip", "per-ip-2", "per-ip-3", "limit", "limit-2", &long[..64]];
        assert_eq!(found[..6], expected);
        assert_eq!(found[6], format!("{}-2", &long[..62]));
    }
}
