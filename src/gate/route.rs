//! Routes: what a request must look like to be one's own.

use http::header::HeaderName;
use http::{HeaderValue, Method};

use super::host::HostPattern;
use super::path::{self, PathError};
use super::query::Query;
use crate::http1::{RequestHead, names};
use crate::limit::PolicyId;

/// A route's conditions, all of which must hold, and the limits that it sets.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, or its number from 1.
    pub name: Box<str>,
    /// Hosts; none means any.
    pub host: Option<HostPattern>,
    /// Paths.
    pub path: PathPattern,
    /// Methods; empty means any. GET also stands for HEAD.
    pub methods: Vec<Method>,
    /// Headers that must be there with these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Query parameters that must be there with these values.
    pub query: Vec<(Box<str>, Box<str>)>,
    /// Limits, the default ones included, each once.
    pub limits: Vec<PolicyId>,
    /// Whether a path with an encoded slash is let through.
    pub keeps_encoded_slash: bool,
    /// The most bytes that the body of a request may have, if that is bounded.
    pub max_body: Option<u64>,
}

impl Route {
    /// Whether a request says that its body is longer than it may be. One that does not say how long it is must be
    /// measured as it comes.
    pub(super) fn refuses_body(&self, head: &RequestHead) -> bool {
        let Some(most) = self.max_body else { return false };
        let length = head.fields.get_str(names::CONTENT_LENGTH);
        // All digits and still no number: more than can be counted.
        length.is_some_and(|length| length.parse().map_or(true, |length: u64| length > most))
    }
}

/// What the conditions of a route read of a request, besides its host and path.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Its head.
    pub head: &'a RequestHead,
    /// Its query.
    pub query: &'a Query<'a>,
}

/// A pattern of paths: literal text, `{name}` for one segment, a trailing `*` for any rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    pieces: Vec<Piece>,
    takes_rest: bool,
}

/// A piece of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text, in the spelling that requests are matched in.
    Literal(Box<str>),
    /// One segment that is not empty.
    Param(Box<str>),
}

/// Why a text is no path pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It can't be a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// `*` anywhere but at the end.
    #[error("`*` may only stand at the end")]
    StarInside,
    /// Braces that are not a whole segment.
    #[error("`{{name}}` must be a whole segment, as in /users/{{id}}/posts")]
    BadParam,
    /// Two parameters of one name.
    #[error("the name {0} is given to two segments")]
    SameName(Box<str>),
    /// Something that no normalized path contains.
    #[error("no request can match: paths are matched without dot segments and double slashes")]
    NeverMatches,
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`PatternError`].
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

    /// The names of its parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Param(name) => Some(&**name),
            Piece::Literal(_) => None,
        })
    }

    /// The segment of a path, which this pattern matches, that it calls `name`.
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

    /// Whether every path that `other` matches is matched by this pattern too. May say no where the answer
    /// is yes, never the other way round.
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

    /// The pattern as bytes in which `None` stands for a whole segment of any text.
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
        names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)).map(|(_, name)| *name)
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

impl Route {
    /// Whether all conditions but host and path hold.
    #[must_use]
    pub fn accepts(&self, RequestView { head, query }: RequestView<'_>) -> bool {
        let has = |(name, value): &(HeaderName, HeaderValue)| {
            head.fields.get_all(name).any(|other| other == value.as_bytes())
        };
        self.accepts_method(&head.method)
            && self.headers.iter().all(has)
            && self.query.iter().all(|(name, value)| query.has(name, value))
    }

    /// Whether every request that `other` matches is matched by this route too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => mine.covers(theirs),
        };
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|method| self.accepts_method(method)));
        host && methods
            && self.headers.iter().all(|condition| other.headers.contains(condition))
            && self.query.iter().all(|condition| other.query.contains(condition))
            && self.path.covers(&other.path)
    }

    fn accepts_method(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self.methods.contains(method)
            || (*method == Method::HEAD && self.methods.contains(&Method::GET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_are_written_as_they_were_read() {
        for text in ["/", "/*", "/a", "/a/", "/a/*", "/held.*", "/users/{id}/posts/{post}", "/u/{id}/*", "*"]
        {
            assert_eq!(pattern(text).to_string(), text);
        }
        assert_eq!(pattern("/caf\u{e9}/%7Eme%3A").to_string(), "/caf%C3%A9/~me:");
    }

    #[test]
    fn what_can_never_match_is_an_error() {
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
    fn covering_never_claims_too_much() {
        assert!(pattern("/*").covers(&pattern("/a/{id}")));
        assert!(pattern("/a/*").covers(&pattern("/a/b/*")));
        assert!(pattern("/a/{x}").covers(&pattern("/a/{y}")));
        assert!(!pattern("/a/*").covers(&pattern("/a")));
        assert!(!pattern("/a").covers(&pattern("/a/*")));
        assert!(!pattern("/a/{x}").covers(&pattern("/a/*")));
        assert!(!pattern("/a/b*").covers(&pattern("/a/{x}")));
    }
}
