//! Patterns of paths.

use super::path::{self, PathError};

/// A pattern of paths: literal text, `{name}` for one segment, a trailing `*` for any rest.
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
}

/// Why a text is no path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// `*` anywhere but at the end.
    #[error("`*` is only allowed at the end")]
    StarInside,
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
        if !text.starts_with('/') {
            return Err(PathError::NotAbsolute.into());
        }
        let (body, takes_rest) = text.strip_suffix('*').map_or((text, false), |body| (body, true));
        if body.contains('*') {
            return Err(PatternError::StarInside);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal = String::new();
        let mut segments = body[1..].split('/').peekable();
        while let Some(segment) = segments.next() {
            let last = segments.peek().is_none();
            literal.push('/');
            if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                if name.is_empty() || name.contains(['{', '}']) || (last && takes_rest) {
                    return Err(PatternError::BadParam);
                }
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
                pieces.push(Piece::Param(name.into()));
            } else {
                literal.push_str(&literal_segment(segment, last)?);
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        let pattern = Self { pieces, takes_rest };
        match pattern.repeated_name() {
            Some(name) => Err(PatternError::SameName(name.into())),
            None => Ok(pattern),
        }
    }

    /// The names of the parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Param(name) => Some(&**name),
            Piece::Literal(_) => None,
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
                Piece::Param(_) => {}
            }
        }
        None
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

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(super) fn takes_rest(&self) -> bool {
        self.takes_rest
    }

    /// The pattern as bytes; `None` is a whole segment of any text.
    fn shape(&self) -> Vec<Option<u8>> {
        let mut shape = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => shape.extend(text.bytes().map(Some)),
                Piece::Param(_) => shape.push(None),
            }
        }
        shape
    }

    fn repeated_name(&self) -> Option<&str> {
        let names: Vec<&str> = self.params().collect();
        names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)).map(|(_, name)| *name)
    }
}

fn literal_segment(segment: &str, last: bool) -> Result<String, PatternError> {
    if segment.contains(['{', '}']) {
        return Err(PatternError::BadParam);
    }
    if matches!(segment, "." | "..") || (segment.is_empty() && !last) {
        return Err(PatternError::NeverMatches);
    }
    Ok(path::literal(segment)?)
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => f.write_str(text)?,
                Piece::Param(name) => write!(f, "{{{name}}}")?,
            }
        }
        f.write_str(if self.takes_rest { "*" } else { "" })
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
        assert_eq!(pattern("/caf\u{e9}/%7Eme%3A").to_string(), "/caf%C3%A9/~me:");
    }

    #[test]
    fn patterns_that_never_match_are_errors() {
        for (text, error) in [
            ("a", PatternError::Path(PathError::NotAbsolute)),
            ("/a*b", PatternError::StarInside),
            ("/**", PatternError::StarInside),
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
    }

    #[test]
    fn parameters_are_segments() {
        let posts = pattern("/users/{id}/posts/{post}");
        assert_eq!(posts.param("id", "/users/7/posts/9"), Some("7"));
        assert_eq!(posts.param("post", "/users/7/posts/9"), Some("9"));
        assert_eq!(posts.param("other", "/users/7/posts/9"), None);
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
    }
}
