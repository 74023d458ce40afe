//! Fields of a request's body that limits count by.

use std::fmt;

use http::header::CONTENT_ENCODING;

use super::canonical::field_value;
use super::form;
use super::json_pointer::JsonPointer;
use crate::http1::names::CONTENT_TYPE;
use crate::http1::{FieldName, RequestHead};

/// The longest body that is read before the limits are checked, in bytes.
pub const MAX_READ_BODY: usize = 64 * 1024;

/// A field of a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyField {
    /// `body:/POINTER`: a value in a JSON text.
    Json(JsonPointer),
    /// `form:NAME`: a field of a form.
    Form(Box<str>),
}

/// The fields of a body that the limits of a route name.
#[derive(Debug)]
pub struct BodyFields(Vec<(BodyField, Result<Vec<String>, NoField>)>);

/// Why a body has no value for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoField {
    /// No body.
    #[error("the request has no body")]
    NoBody,
    /// Another media type, none, several, or a charset besides UTF-8.
    #[error("the Content-Type is another one")]
    ContentType,
    /// A compressed body.
    #[error("the body has a Content-Encoding")]
    ContentEncoding,
    /// More than [`MAX_READ_BODY`].
    #[error("the body is longer than {} KiB", MAX_READ_BODY / 1024)]
    TooLong,
    /// Other bodies of the connection use too much memory.
    #[error("too many bodies of this connection are being read")]
    NoMemory,
    /// Not valid JSON, or not UTF-8.
    #[error("the body is malformed")]
    Malformed,
    /// The body has no such field.
    #[error("the body does not have it")]
    Absent,
    /// Empty, null, an object or an array.
    #[error("it is empty, null, an object or an array")]
    NoText,
}

/// What a body is parsed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Form,
}

impl BodyField {
    fn format(&self) -> Format {
        match self {
            Self::Json(_) => Format::Json,
            Self::Form(_) => Format::Form,
        }
    }

    /// The distinct values of the field, in their canonical form. Those of a form field that the query has as well are among
    /// them, because Java servlets read the query first.
    fn values(&self, text: &str, query: &str) -> Result<Vec<String>, NoField> {
        let found = match self {
            // RFC 8259 §8.1: a parser may ignore a byte order mark.
            Self::Json(pointer) => pointer.values(text.trim_start_matches('\u{feff}')).ok(),
            Self::Form(name) => form::values(text, name).ok(),
        };
        let mut found = found.ok_or(NoField::Malformed)?;
        if let (Self::Form(name), false) = (self, found.is_empty()) {
            found.extend(form::values_in_query(query, name));
        }
        let mut values: Vec<String> = found.iter().map(|value| field_value(value).into_owned()).collect();
        values.sort_unstable();
        values.dedup();
        match &*values {
            [] => Err(NoField::Absent),
            [only] if only.is_empty() => Err(NoField::NoText),
            _ => Ok(values),
        }
    }
}

impl fmt::Display for BodyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(pointer) => write!(f, "body:{pointer}"),
            Self::Form(name) => write!(f, "form:{name}"),
        }
    }
}

impl BodyFields {
    /// No fields.
    pub const NONE: Self = Self(Vec::new());

    /// Whether the body of a request can have one of these fields, by its head.
    ///
    /// # Errors
    /// The reason why it can't.
    pub fn check_head(fields: &[BodyField], head: &RequestHead) -> Result<(), NoField> {
        let format = format(head)?;
        if fields.iter().any(|field| field.format() == format) { Ok(()) } else { Err(NoField::ContentType) }
    }

    /// Finds these fields in the body of a request, if it could be read.
    #[must_use]
    pub fn find(fields: &[BodyField], head: &RequestHead, body: Result<&[u8], NoField>) -> Self {
        let body = body.and_then(|body| if body.is_empty() { Err(NoField::NoBody) } else { Ok(body) });
        let text = body.and_then(|body| std::str::from_utf8(body).map_err(|_| NoField::Malformed));
        let format = if let Err(NoField::NoBody) = body { Err(NoField::NoBody) } else { format(head) };
        let value = |field: &BodyField| {
            let query = head.uri.query().unwrap_or("");
            if format? == field.format() { field.values(text?, query) } else { Err(NoField::ContentType) }
        };
        Self(fields.iter().map(|field| (field.clone(), value(field))).collect())
    }

    /// The distinct values of a field, in their canonical form.
    ///
    /// # Errors
    /// Why there is none.
    pub fn values(&self, field: &BodyField) -> Result<&[String], NoField> {
        let found = self.0.iter().find(|(known, _)| known == field);
        found.map_or(Err(NoField::Absent), |(_, values)| values.as_deref().map_err(|why| *why))
    }
}

/// What the body of a request is parsed as, by its head.
fn format(head: &RequestHead) -> Result<Format, NoField> {
    let codings = head.fields.get_all(FieldName::from(&CONTENT_ENCODING));
    if codings.flat_map(|value| value.split(|byte| *byte == b',')).any(|coding| !is_identity(coding)) {
        return Err(NoField::ContentEncoding);
    }
    let mut types = head.fields.get_all(CONTENT_TYPE);
    let (Some(media_type), None) = (types.next(), types.next()) else { return Err(NoField::ContentType) };
    let media_type = String::from_utf8_lossy(media_type).to_ascii_lowercase();
    let mut parameters = media_type.split(';').map(str::trim);
    let essence = parameters.next().unwrap_or_default();
    // In another charset, the server may read another text than we do.
    if !parameters.all(is_harmless_parameter) {
        return Err(NoField::ContentType);
    }
    match essence {
        // ASP.NET Core reads text/json, too.
        "application/json" | "text/json" => Ok(Format::Json),
        "application/x-www-form-urlencoded" => Ok(Format::Form),
        _ if essence.ends_with("+json") => Ok(Format::Json),
        _ => Err(NoField::ContentType),
    }
}

fn is_identity(coding: &[u8]) -> bool {
    let coding = coding.trim_ascii();
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

/// Whether a parameter of a media type leaves the text in UTF-8.
fn is_harmless_parameter(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return true };
    name.trim() != "charset" || matches!(value.trim().trim_matches('"'), "utf-8" | "utf8" | "us-ascii")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";
    const FORM: &str = "application/x-www-form-urlencoded";

    fn head(media_types: &[&str]) -> RequestHead {
        let mut head = RequestHead::new(http::Method::POST, http::Uri::from_static("/"));
        for media_type in media_types {
            head.fields.push(CONTENT_TYPE, media_type.as_bytes());
        }
        head
    }

    fn found(head: &RequestHead, body: &str) -> [Result<Vec<String>, NoField>; 2] {
        let fields = [BodyField::Json(JsonPointer::parse("/user").unwrap()), BodyField::Form("user".into())];
        let found = BodyFields::find(&fields, head, Ok(body.as_bytes()));
        fields.map(|field| found.values(&field).map(<[String]>::to_vec))
    }

    #[test]
    fn a_body_is_parsed_by_its_content_type() {
        let other = || Err(NoField::ContentType);
        let one = |text: &str| Ok(vec![text.to_owned()]);
        for (media_types, body, expected) in [
            (&[JSON][..], r#"{"user":"Eve "}"#, [one("eve"), other()]),
            (&["Application/JSON ; Charset=\"UTF-8\""], r#"{"user":7}"#, [one("7"), other()]),
            (&["text/json"], r#"{"user":"eve"}"#, [one("eve"), other()]),
            (&["application/ld+json"], "\u{feff}{\"user\":true}", [one("true"), other()]),
            (&[FORM], "user=Eve+", [other(), one("eve")]),
            (&["application/x-www-form-urlencoded;charset=utf-8"], "user=%C3%84", [other(), one("ä")]),
            (&["text/plain"], "user=eve", [other(), other()]),
            (&["multipart/form-data; boundary=x"], "user=eve", [other(), other()]),
            (&["application/json; charset=utf-16"], r#"{"user":"eve"}"#, [other(), other()]),
            (&[JSON, JSON], r#"{"user":"eve"}"#, [other(), other()]),
            (&[], r#"{"user":"eve"}"#, [other(), other()]),
        ] {
            assert_eq!(found(&head(media_types), body), expected, "{media_types:?}");
        }
    }

    #[test]
    fn a_missing_field_has_a_reason() {
        for (body, reason) in [
            ("", NoField::NoBody),
            ("{", NoField::Malformed),
            ("{}", NoField::Absent),
            (r#"{"user":null}"#, NoField::NoText),
            (r#"{"user":{"user":"eve"}}"#, NoField::NoText),
            (r#"{"user":["eve"]}"#, NoField::NoText),
            (r#"{"user":" "}"#, NoField::NoText),
        ] {
            assert_eq!(found(&head(&[JSON]), body)[0], Err(reason), "{body}");
        }
        let mut encoded = head(&[JSON]);
        encoded.fields.push(FieldName::from(&CONTENT_ENCODING), b"identity, gzip");
        assert_eq!(found(&encoded, r#"{"user":"eve"}"#)[0], Err(NoField::ContentEncoding));
        let fields = [BodyField::Form("user".into())];
        assert_eq!(BodyFields::check_head(&fields, &head(&[JSON])), Err(NoField::ContentType));
        assert_eq!(BodyFields::check_head(&fields, &head(&[FORM])), Ok(()));
        assert_eq!(
            BodyFields::find(&fields, &head(&[FORM]), Ok(b"user=\xff")).values(&fields[0]),
            Err(NoField::Malformed)
        );
    }

    #[test]
    fn form_fields_are_compared_with_the_query() {
        for (query, body, expected) in [
            ("user=adam", "user=eve", Ok(vec!["adam", "eve"])),
            ("+USER=adam", "user=eve", Ok(vec!["adam", "eve"])),
            ("user=%ff", "user=eve", Ok(vec!["eve", "\u{fffd}"])),
            ("user=adam", "user=", Ok(vec!["", "adam"])),
            ("user=Eve&users=x", "user=eve", Ok(vec!["eve"])),
            ("user=adam", "x=1", Err(NoField::Absent)),
        ] {
            let mut head = head(&[FORM]);
            head.uri = format!("/?{query}").parse().unwrap();
            let found = found(&head, body)[1].clone();
            let expected = expected.map(|values| values.into_iter().map(str::to_owned).collect());
            assert_eq!(found, expected, "{query} {body}");
        }
        let mut head = head(&[JSON]);
        head.uri = "/?user=adam".parse().unwrap();
        assert_eq!(found(&head, r#"{"user":"eve"}"#)[0], Ok(vec!["eve".to_owned()]));
    }

    #[test]
    fn repetitions_that_differ_are_all_found() {
        for (body, values) in [
            (r#"{"user":"eve","user":"Eve"}"#, &["eve"][..]),
            (r#"{"user":"eve","User":"adam"}"#, &["adam", "eve"]),
            (r#"{"user":"eve","user":["adam"]}"#, &["", "eve"]),
            (r#"{"user":1,"user":1.0}"#, &["1"]),
        ] {
            assert_eq!(found(&head(&[JSON]), body)[0].as_deref().unwrap(), values, "{body}");
        }
    }
}
