//! Patterns of paths.

use super::path::{self, PathError};

/// A pattern of paths: literal text, `{name}` for one segment, `*` for any text within a segment, and `**` for any text. At the
/// beginning or the end `*` is any text as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pieces: Vec<Piece>,
    takes_rest: bool,
}

/// A piece of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text, in the normal form for matching.
    Literal(Box<str>),
    /// One segment that is not empty.
    Param(Box<str>),
    /// Any text within a segment, which may be empty.
    Star,
    /// Any text, with slashes.
    DoubleStar,
}

/// Why a text is no path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// More than two asterisks in a row.
    #[error("`*` matches any text within a segment, `**` any text; more asterisks are not allowed")]
    ManyStars,
    /// A parameter after `**`, or in a segment with `*`.
    #[error("no `{{name}}` can follow `**`: which segment it is would not be certain")]
    ParamAfterStars,
    /// More text after the first `*` than a matcher takes.
    #[error("at most {} characters can follow the first `*`", MAX_STEPS - 1)]
    TooLong,
    /// Braces that are not a whole segment.
    #[error("`{{name}}` must be a whole segment, as in /users/{{id}}/posts")]
    BadParam,
    /// Two parameters of one name.
    #[error("two segments have the name {0}")]
    SameName(Box<str>),
    /// A segment that no normalized path contains.
    #[error("no request can match: paths are matched without dot segments and double slashes")]
    NeverMatches,
}

impl PathPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text == "*" {
            return Ok(Self { pieces: vec![Piece::Literal("*".into())], takes_rest: false });
        }
        if !text.starts_with(['/', '*']) {
            return Err(PathError::NotAbsolute.into());
        }
        if text.contains("***") {
            return Err(PatternError::ManyStars);
        }
        let (body, takes_rest) = text.strip_suffix('*').map_or((text, false), |body| (body, true));
        // `**` at the end matches the same paths as `*`.
        let body = if takes_rest { body.strip_suffix('*').unwrap_or(body) } else { body };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut segments = body.split('/').enumerate().peekable();
        while let Some((number, segment)) = segments.next() {
            let last = segments.peek().is_none();
            if number > 0 {
                push_literal(&mut pieces, "/");
            }
            if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                if name.is_empty() || name.contains(['{', '}', '*']) || (last && takes_rest) {
                    return Err(PatternError::BadParam);
                }
                if pieces.contains(&Piece::DoubleStar) {
                    return Err(PatternError::ParamAfterStars);
                }
                pieces.push(Piece::Param(name.into()));
            } else if (!last && segment.is_empty() && number > 0)
                || (matches!(segment, "." | "..") && !(last && takes_rest))
            {
                return Err(PatternError::NeverMatches);
            } else {
                push_segment(&mut pieces, segment, number == 0)?;
            }
        }
        let pattern = Self { pieces, takes_rest };
        if pattern.matcher().is_some_and(|matcher| matcher.steps.len() > MAX_STEPS) {
            return Err(PatternError::TooLong);
        }
        match pattern.repeated_name() {
            Some(name) => Err(PatternError::SameName(name.into())),
            None => Ok(pattern),
        }
    }

    /// The names of the parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Param(name) => Some(&**name),
            _ => None,
        })
    }

    /// The segment with this name in a path that the pattern matches.
    #[must_use]
    pub fn param<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let mut slashes = 0;
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => slashes += text.bytes().filter(|&byte| byte == b'/').count(),
                Piece::Param(own) if **own == *name => return path.split('/').nth(slashes),
                _ => {}
            }
        }
        None
    }

    /// Whether [`PathPattern::rest`] is known: the pattern ends in `*`, and has no other asterisk.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.takes_rest && !self.has_stars() && !self.pieces.is_empty()
    }

    /// What the `*` at the end matches in a path that the pattern matches.
    #[must_use]
    pub fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        let slashes = |piece: &Piece| match piece {
            Piece::Literal(text) => text.bytes().filter(|&byte| byte == b'/').count(),
            _ => 0,
        };
        let segments = self.pieces.iter().map(slashes).sum::<usize>();
        let last = path.splitn(segments + 1, '/').nth(segments).filter(|_| self.has_rest())?;
        let Some(Piece::Literal(text)) = self.pieces.last() else { return None };
        // The segment may begin with literal text, as in `/a*`.
        path::strip_prefix(last, text.rsplit('/').next().unwrap_or_default())
    }

    /// Whether this pattern matches every path that `other` matches. May be false where that is so, but never true where it
    /// is not.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.shape(), other.shape());
        if self.takes_rest {
            return mine.len() <= theirs.len() && theirs[..mine.len()].iter().zip(&mine).all(|(t, m)| m == t);
        }
        !other.takes_rest && mine == theirs
    }

    /// Whether it has an asterisk elsewhere than at the end.
    #[must_use]
    pub fn has_stars(&self) -> bool {
        self.first_star().is_some()
    }

    /// The pieces before the first asterisk, except one at the end.
    pub(super) fn start(&self) -> &[Piece] {
        &self.pieces[..self.first_star().unwrap_or(self.pieces.len())]
    }

    /// The matcher of what follows [`PathPattern::start`], if that has asterisks.
    pub(super) fn matcher(&self) -> Option<Matcher> {
        Some(Matcher::new(&self.pieces[self.first_star()?..], self.takes_rest))
    }

    fn first_star(&self) -> Option<usize> {
        self.pieces.iter().position(|piece| matches!(piece, Piece::Star | Piece::DoubleStar))
    }

    pub(super) fn takes_rest(&self) -> bool {
        self.takes_rest
    }

    /// The pattern without the names of its parameters.
    fn shape(&self) -> Vec<Step> {
        self.pieces.iter().flat_map(steps).collect()
    }

    fn repeated_name(&self) -> Option<&str> {
        let names: Vec<&str> = self.params().collect();
        names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)).map(|(_, name)| *name)
    }
}

/// Adds literal text.
fn push_literal(pieces: &mut Vec<Piece>, text: &str) {
    if let Some(Piece::Literal(before)) = pieces.last_mut() {
        *before = format!("{before}{text}").into();
    } else if !text.is_empty() {
        pieces.push(Piece::Literal(text.into()));
    }
}

/// Adds a segment of literal text and asterisks.
fn push_segment(pieces: &mut Vec<Piece>, segment: &str, is_first: bool) -> Result<(), PatternError> {
    if segment.contains(['{', '}']) {
        return Err(PatternError::BadParam);
    }
    let mut rest = segment;
    while let Some(at) = rest.find('*') {
        push_literal(pieces, &path::literal(&rest[..at])?);
        let after = &rest[at + 1..];
        let is_leading = is_first && at == 0 && rest.len() == segment.len();
        let (after, is_double) = after.strip_prefix('*').map_or((after, is_leading), |after| (after, true));
        pieces.push(if is_double { Piece::DoubleStar } else { Piece::Star });
        rest = after;
    }
    push_literal(pieces, &path::literal(rest)?);
    Ok(())
}

/// The most steps of a [`Matcher`].
const MAX_STEPS: usize = 127;

/// Matches the rest of a path in time proportional to its length: the positions in the pattern that the text read so far can
/// have reached are the bits of a number.
#[derive(Debug)]
pub(super) struct Matcher {
    steps: Box<[Step]>,
    /// The positions of asterisks, no two of which are adjacent.
    stars: u128,
    /// The text that every matching path ends with.
    end: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Byte(u8),
    /// A segment that is not empty.
    Segment,
    Star,
    DoubleStar,
}

fn steps(piece: &Piece) -> Vec<Step> {
    match piece {
        Piece::Literal(text) => text.bytes().map(Step::Byte).collect(),
        Piece::Param(_) => vec![Step::Segment],
        Piece::Star => vec![Step::Star],
        Piece::DoubleStar => vec![Step::DoubleStar],
    }
}

impl Matcher {
    fn new(pieces: &[Piece], takes_rest: bool) -> Self {
        let mut end = Vec::new();
        if let (Some(Piece::Literal(text)), false) = (pieces.last(), takes_rest) {
            end.extend(text.bytes());
        }
        let rest = takes_rest.then_some(Step::DoubleStar);
        let steps: Box<[Step]> = pieces.iter().flat_map(steps).chain(rest).collect();
        let positions = steps.iter().take(MAX_STEPS).enumerate();
        let stars = positions.filter(|(_, step)| matches!(step, Step::Star | Step::DoubleStar));
        let stars = stars.fold(0, |stars, (position, _)| stars | 1 << position);
        Self { steps, stars, end: end.into() }
    }

    /// Whether the rest of a path matches.
    pub fn matches(&self, rest: &[u8]) -> bool {
        if !rest.ends_with(&self.end) {
            return false;
        }
        let mut reached = self.with_skipped(1);
        for byte in rest {
            let mut next = 0;
            let mut positions = reached;
            while positions != 0 {
                let position = positions.trailing_zeros();
                positions &= positions - 1;
                let (here, after) = (1_u128 << position, 2_u128 << position);
                next |= match self.steps.get(position as usize) {
                    Some(Step::Byte(own)) if own == byte => after,
                    Some(Step::Segment) if *byte != b'/' => here | after,
                    Some(Step::Star) if *byte != b'/' => here,
                    Some(Step::DoubleStar) => here,
                    _ => 0,
                };
            }
            if next == 0 {
                return false;
            }
            reached = self.with_skipped(next);
        }
        reached >> self.steps.len() & 1 == 1
    }

    /// Adds the positions after asterisks, which match no text as well.
    fn with_skipped(&self, reached: u128) -> u128 {
        reached | (reached & self.stars) << 1
    }
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Literal(text) => f.write_str(text)?,
                Piece::Param(name) => write!(f, "{{{name}}}")?,
                Piece::Star => f.write_str("*")?,
                Piece::DoubleStar if index == 0 => f.write_str("*")?,
                Piece::DoubleStar => f.write_str("**")?,
            }
        }
        // A single asterisk is the target of `OPTIONS *`.
        f.write_str(if self.pieces.is_empty() {
            "**"
        } else if self.takes_rest {
            "*"
        } else {
            ""
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_are_displayed_in_normal_form() {
        for text in ["/", "/*", "/a", "/a/", "/a/*", "/held.*", "/users/{id}/posts/{post}", "/u/{id}/*", "*"]
        {
            assert_eq!(pattern(text).to_string(), text);
        }
        for text in ["*.php", "*/.*", "/static/*.js", "/a/**/x", "/u/{id}/*/{post}", "/.*"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("/a/**"), pattern("/a/*"));
        assert_eq!(pattern("**.php"), pattern("*.php"));
        assert_eq!(pattern("/caf\u{e9}/%7Eme%3A").to_string(), "/caf%C3%A9/~me:");
    }

    #[test]
    fn patterns_that_never_match_are_errors() {
        for (text, error) in [
            ("a", PatternError::Path(PathError::NotAbsolute)),
            ("/a***", PatternError::ManyStars),
            ("/**/{a}", PatternError::ParamAfterStars),
            ("/{a*}", PatternError::BadParam),
            ("/a{id}", PatternError::BadParam),
            ("/{}", PatternError::BadParam),
            ("/{a}*", PatternError::BadParam),
            ("/{a}/{a}", PatternError::SameName("a".into())),
            ("/a/../b", PatternError::NeverMatches),
            ("/a//b", PatternError::NeverMatches),
            ("/a%2", PatternError::Path(PathError::BadEscape)),
        ] {
            assert_eq!(PathPattern::parse(text), Err(error), "{text}");
        }
        let long = |length| PathPattern::parse(&format!("/long/*{}", "x".repeat(length)));
        assert!(long(126).unwrap().matcher().unwrap().matches("x".repeat(200).as_bytes()));
        assert_eq!(long(127), Err(PatternError::TooLong));
    }

    #[test]
    fn parameters_are_segments() {
        let posts = pattern("/users/{id}/posts/{post}");
        assert_eq!(posts.param("id", "/users/7/posts/9"), Some("7"));
        assert_eq!(posts.param("post", "/users/7/posts/9"), Some("9"));
        assert_eq!(posts.param("other", "/users/7/posts/9"), None);
        assert_eq!(pattern("/v*/{id}/*.js").param("id", "/v2/7/a.js"), Some("7"));
        assert_eq!(pattern("/users/{id}/*").rest("/users/7/a/b"), Some("a/b"));
        assert_eq!(pattern("/*").rest("/"), Some(""));
        assert_eq!(pattern("/a/b*").rest("/a/b/c"), Some("/c"));
        assert_eq!(pattern("/users/{id}/x:*").rest("/users/7/x%3Ay"), Some("y"));
        assert!(["/a", "/*/b/*", "/*/b*", "*", "**"].iter().all(|text| !pattern(text).has_rest()));
    }

    #[test]
    fn a_pattern_covers_only_narrower_ones() {
        assert!(pattern("/*").covers(&pattern("/a/{id}")));
        assert!(pattern("/a/*").covers(&pattern("/a/b/*")));
        assert!(pattern("/a/{x}").covers(&pattern("/a/{y}")));
        assert!(!pattern("/a/*").covers(&pattern("/a")));
        assert!(!pattern("/a").covers(&pattern("/a/*")));
        assert!(!pattern("/a/{x}").covers(&pattern("/a/*")));
        assert!(!pattern("/a/b*").covers(&pattern("/a/{x}")));
        assert!(pattern("/a/*").covers(&pattern("/a/*.js")));
        assert!(pattern("*/.*").covers(&pattern("*/.git/*")));
        assert!(!pattern("/a/*.js").covers(&pattern("/a/*")));
        assert!(!pattern("/a/*/b").covers(&pattern("/a/**/b")));
    }
}
