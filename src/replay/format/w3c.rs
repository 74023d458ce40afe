//! The extended log file format of the W3C, in which a directive names the fields of the lines after it: IIS, and with tabs
//! between the fields `CloudFront`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::dates::{Dates, TimeUnit};
use super::json::from_fields;
use super::json_values::JsonValue;
use crate::replay::entry::{LineError, LoggedRequest};
use crate::replay::fields::{FieldMap, FieldRole};

/// Reads a line. `map` has the fields that the last directive has named.
pub(super) fn text<'l>(
    line: &'l [u8],
    map: &mut FieldMap,
    dates: &mut Dates,
) -> Result<LoggedRequest<'l>, LineError> {
    match str::from_utf8(line) {
        Ok(line) => read(line, map, dates),
        Err(_) => read(&String::from_utf8_lossy(line), map, dates).map(LoggedRequest::into_owned),
    }
}

fn read<'l>(line: &'l str, map: &mut FieldMap, dates: &mut Dates) -> Result<LoggedRequest<'l>, LineError> {
    if let Some(directive) = line.strip_prefix('#') {
        if let Some(names) = directive.strip_prefix("Fields:") {
            *map = FieldMap::named(fields(names));
        }
        return Err(LineError::Directive);
    }
    let error = |expected| LineError::Column { column: 1, expected };
    if map.fields().is_empty() {
        return Err(error("a line that begins with #Fields before this one"));
    }
    let is_tabbed = line.contains('\t');
    let values: Vec<&str> = line.split(if is_tabbed { '\t' } else { ' ' }).collect();
    if values.len() != map.fields().len() {
        return Err(error("as many fields as #Fields names"));
    }
    let of = |name: &str| map.fields().iter().position(|(_, path)| path == name).map(|index| values[index]);
    let date = of("date").ok_or_else(|| error("`date` in #Fields"))?;
    let value = |(index, value): (usize, &'l str)| {
        let text = match &map.fields()[index].0 {
            _ if value == "-" => Cow::Borrowed(value),
            FieldRole::End => Cow::Owned(format!("{date}T{value}Z")),
            // IIS has whole milliseconds, and CloudFront seconds with a fraction.
            FieldRole::Duration(_) if value.contains('.') => Cow::Owned(format!("{value}s")),
            FieldRole::UserAgent | FieldRole::Referer | FieldRole::Header(_) if is_tabbed => {
                percent_decode_str(value).decode_utf8_lossy()
            }
            FieldRole::UserAgent | FieldRole::Referer | FieldRole::Header(_) => {
                Cow::Owned(value.replace('+', " "))
            }
            _ => Cow::Borrowed(value),
        };
        (index, JsonValue::Text(text))
    };
    from_fields(map, values.iter().copied().enumerate().map(value), [], dates)
}

/// The fields of a directive. Times are in UTC, and those of the end of responses.
fn fields(names: &str) -> Vec<(FieldRole, Cow<'static, str>)> {
    let names: Vec<&str> = names.split_ascii_whitespace().collect();
    // CloudFront has the name of its distribution in the field that others have the host in.
    let has_host_header = names.contains(&"x-host-header");
    let role = |name: &str| match name {
        "time" => FieldRole::End,
        "c-ip" => FieldRole::Client,
        "cs-method" => FieldRole::Method,
        "cs-uri-stem" => FieldRole::Path,
        "cs-uri-query" => FieldRole::Query,
        "sc-status" => FieldRole::Status,
        "sc-bytes" => FieldRole::Bytes,
        "time-taken" => FieldRole::Duration(TimeUnit::Millis),
        "cs-version" | "cs-protocol-version" => FieldRole::Protocol,
        "cs-username" => FieldRole::User,
        "x-host-header" | "cs-host" => FieldRole::Host,
        "cs(Host)" if !has_host_header => FieldRole::Host,
        "cs(User-Agent)" => FieldRole::UserAgent,
        "cs(Referer)" => FieldRole::Referer,
        "x-forwarded-for" => FieldRole::Header(Cow::Borrowed("x-forwarded-for")),
        _ => match name.strip_prefix("cs(").and_then(|name| name.strip_suffix(')')) {
            Some(header) if header != "Host" => FieldRole::Header(header.to_ascii_lowercase().into()),
            _ => FieldRole::Field(name.to_owned().into()),
        },
    };
    names.iter().map(|name| (role(name), Cow::Owned((*name).to_owned()))).collect()
}
