//! Locations, in the order in which nginx prefers them, as paths of routes.

use super::patterns::path_of_regex;
use super::scope::Scope;
use super::tree::Directive;
use crate::cli::convert::note::Note;

/// A location, or a server itself for its requests that match no location.
#[derive(Clone)]
pub(super) struct Location<'d> {
    pub directive: &'d Directive,
    /// The path of a route.
    pub path: String,
    /// The prefix, of which `proxy_pass` may replace the path.
    pub prefix: &'d str,
    pub scope: Scope<'d>,
    rank: Rank,
}

/// Which location nginx prefers: those of a lower rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    /// A prefix that hides regular expressions.
    Firm(Longest),
    /// A regular expression, by its number.
    Regex(usize),
    Prefix(Longest),
}

/// Longer prefixes are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Longest(std::cmp::Reverse<usize>);

/// The locations of a server.
pub(super) struct Locations<'d> {
    pub locations: Vec<Location<'d>>,
    /// Locations that can't be converted.
    pub notes: Vec<Note>,
}

/// The locations of a block, in the order of routes.
pub(super) fn locations<'d>(block: &'d [Directive], scope: &Scope<'d>) -> Locations<'d> {
    let mut found = Locations { locations: Vec::new(), notes: Vec::new() };
    collect(block, scope, &mut found);
    hide_regexes(&mut found.locations);
    found.locations.sort_by_key(|location| location.rank);
    found
}

fn collect<'d>(block: &'d [Directive], scope: &Scope<'d>, found: &mut Locations<'d>) {
    for directive in block.iter().filter(|directive| directive.name == "location") {
        let inner = scope.within(directive.directives());
        let (modifier, text) = match &directive.args[..] {
            [text] if text.starts_with('@') => {
                found.notes.push(directive.finding("tidegate has no internal locations"));
                continue;
            }
            [text] => ("", &**text),
            [modifier, text] => (&**modifier, &**text),
            _ => continue,
        };
        match path(modifier, text, found.locations.len()) {
            Ok((path, rank)) => {
                let prefix = if modifier.starts_with('~') { "" } else { text };
                found.locations.push(Location { directive, path, prefix, scope: inner.clone(), rank });
                collect(directive.directives(), &inner, found);
            }
            Err(reason) => found.notes.push(directive.finding(reason)),
        }
    }
}

/// The path and the rank of a location.
fn path(modifier: &str, text: &str, number: usize) -> Result<(String, Rank), String> {
    let is_plain = text.starts_with('/') && !text.contains(['*', '{', '}']);
    let longest = Longest(std::cmp::Reverse(text.len()));
    match modifier {
        "=" if is_plain => Ok((text.to_owned(), Rank::Exact)),
        "" if is_plain => Ok((format!("{text}*"), Rank::Prefix(longest))),
        "^~" if is_plain => Ok((format!("{text}*"), Rank::Firm(longest))),
        "~" => {
            let path = path_of_regex(text);
            let path = path.ok_or(
                "a route's path has no regular expressions, only `{name}` for a segment and `*` at the end",
            )?;
            Ok((path, Rank::Regex(number)))
        }
        "~*" => Err("a route's path has no regular expressions, and its case matters".to_owned()),
        _ => Err("a route's path has no counterpart".to_owned()),
    }
}

/// A `^~` location is preferred to regular expressions only where it is the longest match, so those with a longer plain
/// location below them must stay behind it.
fn hide_regexes(locations: &mut [Location<'_>]) {
    let plain: Vec<String> = locations
        .iter()
        .filter(|location| matches!(location.rank, Rank::Prefix(_)))
        .map(|location| location.prefix.to_owned())
        .collect();
    for location in locations {
        if let Rank::Firm(longest) = location.rank
            && plain
                .iter()
                .any(|longer| longer.len() > location.prefix.len() && longer.starts_with(location.prefix))
        {
            location.rank = Rank::Prefix(longest);
        }
    }
}
