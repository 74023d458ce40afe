//! Which fields of a JSON line are which parts of a request.

use std::borrow::Cow;

use thiserror::Error;

use super::format::TimeUnit;
use crate::suggest::nearest;

/// The most fields of a map: their set is a `u64`.
const MAX_FIELDS: usize = 64;

/// The names in `--fields`, in the order of the documentation.
const NAMES: [&str; 18] = [
    "time",
    "end",
    "client",
    "method",
    "target",
    "path",
    "query",
    "request",
    "host",
    "protocol",
    "status",
    "bytes",
    "duration",
    "user_agent",
    "referer",
    "user",
    "consumer",
    "headers",
];

/// What a field of a JSON line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldRole {
    /// When the request arrived.
    Time,
    /// When its response ended. Without `Time`, the arrival is this less the duration.
    End,
    /// The client's address, perhaps with a port; of a list the last one.
    Client,
    /// The method.
    Method,
    /// The target with the query.
    Target,
    /// The path without the query.
    Path,
    /// The query.
    Query,
    /// The request line: method, target and protocol.
    Request,
    /// The host.
    Host,
    /// The protocol.
    Protocol,
    /// The status of the response.
    Status,
    /// Bytes of the response.
    Bytes,
    /// From the arrival to the end, in this unit unless the value has its own.
    Duration(TimeUnit),
    /// The header User-Agent.
    UserAgent,
    /// The header Referer.
    Referer,
    /// The authenticated user.
    User,
    /// The consumer.
    Consumer,
    /// An object of request headers; or all fields that begin with the path, if it ends with `*`.
    Headers,
    /// The request header with this name.
    Header(Cow<'static, str>),
    /// A further field with this name.
    Field(Cow<'static, str>),
}

/// The fields of a JSON line by their paths. If several have the same role, the first that has a value counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldMap {
    fields: Vec<(FieldRole, Cow<'static, str>)>,
}

/// Why `--fields` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldMapError {
    /// A part is not `NAME=PATH`.
    #[error("`{0}` is not NAME=FIELD, such as time=ts or client=request.remote_ip")]
    NoPath(String),
    /// A name is unknown.
    #[error("no part of a request is called `{name}`{}", suggestion.map_or_else(String::new, |s| format!("; did you mean `{s}`?")))]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest known one.
        suggestion: Option<&'static str>,
    },
    /// Neither `time` nor `end` is among the names.
    #[error("`time` or `end` is required: without it a request can't be played")]
    NoTime,
    /// None of the names tells what was requested.
    #[error("`target`, `path` or `request` is required: without it a request has no route")]
    NoTarget,
    /// There are too many.
    #[error("more than {MAX_FIELDS} fields")]
    TooMany,
}

impl FieldMap {
    /// Parses `NAME=PATH,…`. A path goes into objects with dots: `request.headers.User-Agent`. Names are parts of a request,
    /// `header.NAME` or `field.NAME`, also with a colon as in keys of limits; `duration=PATH:ms` has a unit (`s`, `ms`, `us` or
    /// `ns`). Fails if a part is not `NAME=PATH`, a name is unknown, or time or target are missing.
    pub fn parse(text: &str) -> Result<Self, FieldMapError> {
        let mut map = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, path) = part
                .split_once('=')
                .filter(|(_, path)| !path.is_empty())
                .ok_or_else(|| FieldMapError::NoPath(part.to_owned()))?;
            let (role, path) = role(name.trim(), path.trim())?;
            map.fields.push((role, Cow::Owned(path.to_owned())));
        }
        map.check()
    }

    /// The map of a known format.
    pub(super) fn known(fields: &[(FieldRole, &'static str)]) -> Self {
        Self { fields: fields.iter().map(|(role, path)| (role.clone(), Cow::Borrowed(*path))).collect() }
    }

    /// The map of fields that a log names itself.
    pub(super) fn named(fields: Vec<(FieldRole, Cow<'static, str>)>) -> Self {
        Self { fields }
    }

    /// This map with a further field, which has its path as its name. Fails if there are too many fields.
    pub fn with_field(mut self, path: &str) -> Result<Self, FieldMapError> {
        if self.fields.len() == MAX_FIELDS {
            return Err(FieldMapError::TooMany);
        }
        let path: Cow<'static, str> = Cow::Owned(path.to_owned());
        self.fields.push((FieldRole::Field(path.clone()), path));
        Ok(self)
    }

    /// Roles and paths.
    pub(super) fn fields(&self) -> &[(FieldRole, Cow<'static, str>)] {
        &self.fields
    }

    /// Whether a field has one of these roles.
    pub(super) fn has(&self, roles: &[FieldRole]) -> bool {
        self.fields.iter().any(|(role, _)| roles.contains(role))
    }

    fn check(self) -> Result<Self, FieldMapError> {
        if self.fields.len() > MAX_FIELDS {
            return Err(FieldMapError::TooMany);
        }
        if !self.has(&[FieldRole::Time, FieldRole::End]) {
            return Err(FieldMapError::NoTime);
        }
        if !self.has(&[FieldRole::Target, FieldRole::Path, FieldRole::Request]) {
            return Err(FieldMapError::NoTarget);
        }
        Ok(self)
    }
}

/// The role of a name, and its path without a unit.
fn role<'t>(name: &str, path: &'t str) -> Result<(FieldRole, &'t str), FieldMapError> {
    let owned = |name: &str| Cow::Owned(name.to_owned());
    let role = match name {
        "time" => FieldRole::Time,
        "end" => FieldRole::End,
        "client" => FieldRole::Client,
        "method" => FieldRole::Method,
        "target" => FieldRole::Target,
        "path" => FieldRole::Path,
        "query" => FieldRole::Query,
        "request" => FieldRole::Request,
        "host" => FieldRole::Host,
        "protocol" => FieldRole::Protocol,
        "status" => FieldRole::Status,
        "bytes" => FieldRole::Bytes,
        "duration" => {
            let unit = path.rsplit_once(':').and_then(|(path, unit)| Some((path, TimeUnit::parse(unit)?)));
            let (path, unit) = unit.unwrap_or((path, TimeUnit::Seconds));
            return Ok((FieldRole::Duration(unit), path));
        }
        "user_agent" => FieldRole::UserAgent,
        "referer" => FieldRole::Referer,
        "user" => FieldRole::User,
        "consumer" => FieldRole::Consumer,
        "headers" => FieldRole::Headers,
        _ => match name.split_once(['.', ':']) {
            Some(("header", header)) if !header.is_empty() => FieldRole::Header(owned(header)),
            Some(("field", field)) if !field.is_empty() => FieldRole::Field(owned(field)),
            _ => {
                let suggestion = nearest(name, NAMES);
                return Err(FieldMapError::UnknownName { name: name.to_owned(), suggestion });
            }
        },
    };
    Ok((role, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_roles_paths_and_units() {
        let map = FieldMap::parse("time=ts, target=req.uri,duration=took:ms,host=:authority,header.x-key=k")
            .unwrap();
        let expected = [
            (FieldRole::Time, "ts"),
            (FieldRole::Target, "req.uri"),
            (FieldRole::Duration(TimeUnit::Millis), "took"),
            (FieldRole::Host, ":authority"),
            (FieldRole::Header("x-key".into()), "k"),
        ];
        assert_eq!(map, FieldMap::known(&expected));
    }

    #[test]
    fn names_of_headers_and_fields_may_have_colons() {
        let map = FieldMap::parse("time=ts,target=uri,header:x-key=k,field:a.b=c,duration=d").unwrap();
        let dots = FieldMap::parse("time=ts,target=uri,header.x-key=k,field.a.b=c,duration=d").unwrap();
        assert_eq!(map, dots);
    }

    #[test]
    fn every_name_has_a_role() {
        for name in NAMES {
            role(name, "x").unwrap();
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        for (text, message) in [
            ("time", "`time` is not NAME=FIELD, such as time=ts or client=request.remote_ip"),
            ("tiem=ts", "no part of a request is called `tiem`; did you mean `time`?"),
            ("colour=x", "no part of a request is called `colour`"),
            ("target=uri", "`time` or `end` is required: without it a request can't be played"),
            ("time=ts", "`target`, `path` or `request` is required: without it a request has no route"),
        ] {
            assert_eq!(FieldMap::parse(text).unwrap_err().to_string(), message);
        }
    }
}
