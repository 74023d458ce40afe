//! Locations, in the order in which nginx prefers them, as paths of routes.

use super::patterns::{path_of_regex, start_of_regex};
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
    /// The path of a location that is lost, if it is narrower than the block around it. Its case may matter.
    narrow: Option<String>,
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
    let mut collector = Collector::default();
    collector.collect(block, scope, "/");
    let mut found = collector.found;
    for mut lost in collector.lost {
        let inherits_more = found.iter().any(|other| lost.scope.restricts_more_than(&other.scope));
        if inherits_more || is_restricted(lost.directive.directives()) {
            lost.lost = lost.lost.map(|reason| format!("{reason}: it restricts access"));
        } else if let Some(path) = lost.narrow.take() {
            lost.path = path;
        } else {
            let reason = lost.lost.unwrap_or_default() + ": its requests get the routes of other locations";
            collector.notes.push(lost.directive.finding(reason).of_block());
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
    found: Vec<Location<'d>>,
    /// Locations that can't be converted, with paths that include theirs.
    lost: Vec<Location<'d>>,
    notes: Vec<Note>,
}

impl<'d> Collector<'d> {
    /// Adds the locations of a block, whose own location has this prefix.
    fn collect(&mut self, block: &'d [Directive], scope: &Scope<'d>, within: &str) {
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
            match path(modifier, text, number) {
                Ok((path, rank)) => {
                    let prefix = if modifier.starts_with('~') { "" } else { text };
                    let scope = inner.clone();
                    self.found.push(Location {
                        directive,
                        path,
                        prefix,
                        scope,
                        lost: None,
                        narrow: None,
                        rank,
                    });
                    self.collect(
                        directive.directives(),
                        &inner,
                        if prefix.is_empty() { within } else { prefix },
                    );
                }
                Err(reason) => {
                    let longer =
                        |start: String| if start.starts_with(within) { start } else { within.to_owned() };
                    let path = format!("{}*", longer(start(modifier, text)));
                    let narrow = longer(start(modifier.trim_end_matches('*'), text));
                    let narrow = (narrow.len() > within.len()).then(|| narrow + "*");
                    let (rank, lost) = (Rank::Regex(number), Some(reason));
                    self.lost.push(Location {
                        directive,
                        path,
                        prefix: "",
                        scope: inner,
                        lost,
                        narrow,
                        rank,
                    });
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
