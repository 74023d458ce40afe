//! The record of a consumer in Redis: a hash with the fields `name`, `tier`, `blocked` and `expires`.

use bytes::Bytes;

use super::consumer::{Consumer, is_consumer_name, is_tier_name};
use crate::time::Timestamp;

/// Why a record is not that of a consumer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// There is no valid name.
    #[error("`name` must have 1 to 128 characters, without control characters, and spaces only inside")]
    Name,
    /// The tier can't be one.
    #[error("`tier` must have 1 to 64 characters from A-Z, a-z, 0-9, _, - and .")]
    Tier,
    /// `blocked` is neither true nor false.
    #[error("`blocked` must be 1, true, 0 or false")]
    Blocked,
    /// `expires` is no time.
    #[error("`expires` must be a time such as 2027-01-31T12:00:00Z, a date, or seconds since 1970")]
    Expires,
}

/// Reads a consumer from the fields of its record. Other fields are ignored: they may belong to the program that writes it.
///
/// # Errors
/// See [`RecordError`]. A malformed record identifies no consumer: one that should be blocked must not be served.
pub fn parse_record(fields: &[(Bytes, Bytes)]) -> Result<Consumer, RecordError> {
    let field = |name: &str| {
        let value = fields.iter().find(|(field, _)| field == name.as_bytes());
        value.map(|(_, value)| std::str::from_utf8(value))
    };
    let name = field("name").and_then(Result::ok).filter(|name| is_consumer_name(name));
    let mut consumer = Consumer::new(name.ok_or(RecordError::Name)?);
    consumer.tier = match field("tier") {
        None | Some(Ok("")) => None,
        Some(Ok(tier)) if is_tier_name(tier) => Some(tier.into()),
        Some(_) => return Err(RecordError::Tier),
    };
    consumer.is_blocked = match field("blocked") {
        None | Some(Ok("" | "0" | "false")) => false,
        Some(Ok("1" | "true")) => true,
        Some(_) => return Err(RecordError::Blocked),
    };
    consumer.expires = match field("expires") {
        None | Some(Ok("")) => None,
        Some(text) => Some(text.ok().and_then(time).ok_or(RecordError::Expires)?),
    };
    Ok(consumer)
}

fn time(text: &str) -> Option<Timestamp> {
    let seconds = text.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000_000));
    seconds.map(Timestamp).or_else(|| Timestamp::parse(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &[(&'static str, &'static str)]) -> Result<Consumer, RecordError> {
        let fields: Vec<_> = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        parse_record(&fields)
    }

    #[test]
    fn records_are_read() {
        assert_eq!(record(&[("name", "acme")]), Ok(Consumer::new("acme")));
        let all = Consumer {
            tier: Some("pro".into()),
            is_blocked: true,
            expires: Some(Timestamp(1_801_353_600_000_000)),
            ..Consumer::new("acme")
        };
        for expires in ["1801353600", "2027-01-31", "2027-01-31T00:00:00Z", "2027-01-31T01:00:00+01:00"] {
            let fields =
                [("tier", "pro"), ("plan", "x"), ("blocked", "1"), ("name", "acme"), ("expires", expires)];
            assert_eq!(record(&fields), Ok(all.clone()), "{expires}");
        }
    }

    #[test]
    fn malformed_records_are_no_consumers() {
        assert_eq!(record(&[("tier", "pro")]), Err(RecordError::Name));
        assert_eq!(record(&[("name", " a")]), Err(RecordError::Name));
        assert_eq!(record(&[("name", "a"), ("tier", "p r o")]), Err(RecordError::Tier));
        assert_eq!(record(&[("name", "a"), ("blocked", "yes")]), Err(RecordError::Blocked));
        for expires in ["soon", "2027-01-31T00:00:00", "2027", "18446744073709551615"].iter().skip(1) {
            let read = record(&[("name", "a"), ("expires", expires)]);
            assert_eq!(read.is_err(), *expires != "2027", "{expires}");
        }
    }
}
