//! Locations, in the order in which nginx prefers them, as paths of routes.

use super::patterns::{paths_of_regex, start_of_regex};
use super::scope::{Scope, is_restricted};
use super::tree::Directive;
use crate::note::Note;

/// A location, or a server itself for its requests that match no location.
#[derive(Clone)]
pub(super) struct Location<'d> {
    pub directive: &'d Directive,
    /// The path of a route.
    pub path: String,
    /// The prefix, of which `proxy_pass` may replace the path.
    pub prefix: &'d str,
    pub scope: Scope<'d>,
    /// Why it can't be converted; requests that it may match must not reach another location.
    pub lost: Option<String>,
    rank: Rank,
}

/// A location that can't be converted exactly.
struct Lost<'d> {
    /// With a path that includes all of its paths.
    location: Location<'d>,
    /// A path that includes its paths in the same case, if it is narrower than the block around it.
    narrow: Option<String>,
    /// Its paths in the same case, if they are known.
    same_case: Option<Vec<String>>,
}

/// Which location nginx prefers: those of a lower rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    /// A regular expression within another location, which is not converted: its route must precede the routes of that location
    /// and of regular expressions outside of it.
    Nested(usize),
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
    let mut collector = Collector { hides_regexes: hides_regexes(block), ..Collector::default() };
    collector.collect(block, scope, "/", false);
    let mut found = std::mem::take(&mut collector.found);
    for Lost { location: mut lost, narrow, same_case } in std::mem::take(&mut collector.lost) {
        let inherits_more = found.iter().any(|other| lost.scope.restricts_more_than(&other.scope));
        if inherits_more || is_restricted(lost.directive.directives()) {
            lost.lost = lost.lost.map(|reason| format!("{reason}: it restricts access"));
        } else if let Some(paths) = same_case {
            let reason =
                "nginx ignores the case of its paths; in another case they get the routes of other locations";
            collector.notes.push(lost.directive.finding(reason));
            collector.lose_limits(&lost, &found, "it is lost for paths in another case");
            found.extend(paths.into_iter().map(|path| Location { path, lost: None, ..lost.clone() }));
            continue;
        } else if let Some(path) = narrow {
            lost.path = path;
        } else {
            let reason =
                lost.lost.take().unwrap_or_default() + ": its requests get the routes of other locations";
            collector.notes.push(lost.directive.finding(reason).of_block());
            let reason = format!("`{}`, which has it, is not converted", lost.directive.text());
            collector.lose_limits(&lost, &found, &reason);
            continue;
        }
        found.push(lost);
    }
    hide_regexes(&mut found);
    found.sort_by_key(|location| location.rank);
    Locations { locations: found, notes: collector.notes }
}

#[derive(Default)]
struct Collector<'d> {
    /// Whether a `^~` location is preferred to regular expressions for a part of its paths only.
    hides_regexes: bool,
    found: Vec<Location<'d>>,
    lost: Vec<Lost<'d>>,
    notes: Vec<Note>,
}

impl<'d> Collector<'d> {
    /// Notes the limits of a location that requests lose which get the routes of the others.
    fn lose_limits(&mut self, lost: &Location<'d>, others: &[Location<'d>], reason: &str) {
        let limits =
            lost.scope.limits().filter(|limit| !others.iter().all(|other| other.scope.has_limit(limit)));
        self.notes.extend(limits.map(|limit| limit.finding(reason.to_owned()).lost()));
    }

    /// Adds the locations of a block, whose own location has this prefix.
    fn collect(&mut self, block: &'d [Directive], scope: &Scope<'d>, within: &str, is_nested: bool) {
        for directive in block.iter().filter(|directive| directive.name == "location") {
            let inner = scope.within(directive.directives());
            let (modifier, text) = match &directive.args[..] {
                [text] if text.starts_with('@') => {
                    self.notes.push(directive.finding("tidegate has no internal locations").of_block());
                    continue;
                }
                [text] => {
                    let modifiers = ["^~", "~*", "~", "="].into_iter();
                    let mut split = modifiers.filter_map(|it| Some((it, text.strip_prefix(it)?)));
                    split.next().unwrap_or(("", text))
                }
                [modifier, text] => (&**modifier, &**text),
                _ => continue,
            };
            let number = self.found.len() + self.lost.len();
            let has_nested = directive.directives().iter().any(|inner| inner.name == "location");
            let located = paths(modifier, text, number).and_then(|located| match modifier {
                "~" if is_nested => Err(NOT_NESTED.to_owned()),
                "~" if located.0.iter().any(|path| has_stars(path)) && (has_nested || self.hides_regexes) => {
                    Err(if has_nested { "it has other locations within" } else { NOT_HIDDEN }.to_owned())
                }
                _ => Ok(located),
            });
            match located {
                Ok((paths, rank)) => {
                    let prefix = if modifier.starts_with('~') { "" } else { text };
                    let scope = inner.clone();
                    let location =
                        Location { directive, path: String::new(), prefix, scope, lost: None, rank };
                    self.found.extend(paths.into_iter().map(|path| Location { path, ..location.clone() }));
                    self.collect(
                        directive.directives(),
                        &inner,
                        if prefix.is_empty() { within } else { prefix },
                        true,
                    );
                }
                Err(reason) => {
                    let longer =
                        |start: String| if start.starts_with(within) { start } else { within.to_owned() };
                    let path = format!("{}*", longer(start(modifier, text)));
                    let narrow = longer(start(modifier.trim_end_matches('*'), text));
                    let narrow = (narrow.len() > within.len()).then(|| narrow + "*");
                    let is_known = modifier == "~*" && !is_nested && !has_nested && !self.hides_regexes;
                    let same_case = if is_known { paths_of_regex(text) } else { None };
                    let rank = if is_nested { Rank::Nested(number) } else { Rank::Regex(number) };
                    let lost = Some(reason);
                    let location = Location { directive, path, prefix: "", scope: inner, lost, rank };
                    self.lost.push(Lost { location, narrow, same_case });
                }
            }
        }
    }
}

/// The text with which all paths begin that a location matches.
fn start(modifier: &str, text: &str) -> String {
    let start = match modifier {
        "~" => start_of_regex(text, true),
        "~*" => start_of_regex(text, false),
        _ => text.split(['*', '{', '}']).next().unwrap_or("").to_owned(),
    };
    if start.starts_with('/') { start } else { "/".to_owned() }
}

/// Why a regular expression within a location is not converted: nginx tries it before those outside, and only for the paths of
/// its location.
const NOT_NESTED: &str = "it is within another location";
/// Why a pattern is not converted if a location prefers itself to regular expressions for a part of its paths only.
const NOT_HIDDEN: &str =
    "a `^~` location has a longer location below it, so it is not certain for which paths it is tried";

/// Whether a path has asterisks elsewhere than at its end.
fn has_stars(path: &str) -> bool {
    path.strip_suffix('*').unwrap_or(path).contains('*')
}

/// The paths of a location, and its rank.
fn paths(modifier: &str, text: &str, number: usize) -> Result<(Vec<String>, Rank), String> {
    let is_plain = text.starts_with('/') && !text.contains(['*', '{', '}']);
    let longest = Longest(std::cmp::Reverse(text.len()));
    match modifier {
        "=" if is_plain => Ok((vec![text.to_owned()], Rank::Exact)),
        "" if is_plain => Ok((vec![format!("{text}*")], Rank::Prefix(longest))),
        "^~" if is_plain => Ok((vec![format!("{text}*")], Rank::Firm(longest))),
        "~" => {
            let paths = paths_of_regex(text);
            let reason = "no patterns of paths match what this regular expression matches";
            Ok((paths.ok_or(reason)?, Rank::Regex(number)))
        }
        "~*" => Err("the case of a route's path matters".to_owned()),
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

/// Whether a `^~` location of a block has a longer plain location below it.
fn hides_regexes(block: &[Directive]) -> bool {
    let of = |modifier: &'static str| {
        let all = block.iter().filter(|directive| directive.name == "location");
        all.filter_map(move |directive| match &directive.args[..] {
            [text] if modifier.is_empty() && text.starts_with('/') => Some(&**text),
            [text] => text.strip_prefix(modifier).filter(|_| !modifier.is_empty()),
            [own, text] if own == modifier => Some(&**text),
            _ => None,
        })
    };
    of("^~").any(|firm| of("").any(|plain| plain.len() > firm.len() && plain.starts_with(firm)))
}
