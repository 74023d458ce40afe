//! Values in the JSON form of requests (`ProtoJSON`).

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::unit::Unit;

/// A number, or a text with one: 64-bit numbers are texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it must be a number that is not negative, or a text")]
enum Written {
    Number(u64),
    Text(String),
    Null,
}

/// Reads a value, or null in place of the default.
pub(super) fn or_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

/// Reads a number that may be a text.
pub(super) fn number<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64> + FromStr + Default,
    <T as FromStr>::Err: Display,
{
    match Written::deserialize(input)? {
        Written::Number(number) => {
            T::try_from(number).map_err(|_| D::Error::custom("the number is too large"))
        }
        Written::Text(text) => text.parse().map_err(D::Error::custom),
        Written::Null => Ok(T::default()),
    }
}

/// Reads a unit of time, by its name or its number.
pub(super) fn unit<'de, D: Deserializer<'de>>(input: D) -> Result<i32, D::Error> {
    match Written::deserialize(input)? {
        Written::Number(number) => {
            i32::try_from(number).map_err(|_| D::Error::custom("there is no such unit"))
        }
        Written::Text(name) => {
            let unit =
                Unit::named(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is not a unit")))?;
            Ok(unit as i32)
        }
        Written::Null => Ok(0),
    }
}
