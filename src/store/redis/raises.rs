//! Raises in Redis: one text, which `lua/raises.lua` changes. See there for its format.

use std::sync::Arc;

use bytes::Bytes;

use super::client::RedisClient;
use super::script::RAISES;
use crate::limit::{Factor, Key};
use crate::store::types::{MAX_RAISES, Raise, RaiseChange, RaiseError, RaiseList, StoreError};
use crate::time::Micros;

/// Reads all raises; none if they still have the version `known`.
pub(super) async fn read(client: &Arc<RedisClient>, known: u64) -> Result<Option<RaiseList>, StoreError> {
    let texts: Vec<Option<Bytes>> = client.command("MGET", vec![name(client).into()], None).await?;
    let version = texts.first().and_then(Option::as_deref).map_or(0, version);
    if version == known {
        return Ok(None);
    }
    // By the script, since the ends are by the server's clock.
    call(client, vec!["read".into()]).await?.map(Some).map_err(|_| malformed())
}

/// Changes the raises, and returns all.
pub(super) async fn change(
    client: &Arc<RedisClient>,
    change: &RaiseChange,
) -> Result<Result<RaiseList, RaiseError>, StoreError> {
    let arguments: Vec<String> = match change {
        RaiseChange::Start(raise) => {
            let Raise { limit, key, factor, rest, by } = raise;
            let (factor, rest) = (factor.thousandths().to_string(), rest.0.to_string());
            vec!["start".into(), field(limit, *key), factor, rest, by.to_string(), MAX_RAISES.to_string()]
        }
        RaiseChange::End { limit, key } => vec!["end".into(), field(limit, *key)],
    };
    call(client, arguments).await
}

async fn call(
    client: &Arc<RedisClient>,
    arguments: Vec<String>,
) -> Result<Result<RaiseList, RaiseError>, StoreError> {
    let arguments = arguments.into_iter().map(Bytes::from).collect();
    let reply = client.eval(&RAISES, vec![name(client).into()], arguments, client.deadline()).await?;
    match &*reply {
        b"full" => Ok(Err(RaiseError::Full)),
        b"none" => Ok(Err(RaiseError::NotRaised)),
        text => std::str::from_utf8(text).ok().and_then(parse).map(Ok).ok_or_else(malformed),
    }
}

fn name(client: &RedisClient) -> String {
    format!("{}:raises", client.prefix())
}

fn field(limit: &str, key: Key) -> String {
    format!("{limit}:{key}")
}

fn malformed() -> StoreError {
    StoreError::Malformed("the reply is no list of raises".to_owned())
}

/// The version of a text: the number on its first line.
fn version(text: &[u8]) -> u64 {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).ok().and_then(|line| line.parse().ok()).unwrap_or_default()
}

/// Parses a line with the present time, and then the text. Lines that are no raise are ignored.
fn parse(reply: &str) -> Option<RaiseList> {
    let (now, text) = reply.split_once('\n')?;
    let now: u64 = now.parse().ok()?;
    let raises = text.lines().skip(1).filter_map(|line| parse_raise(line, now)).collect();
    Some(RaiseList { version: version(text.as_bytes()), raises })
}

fn parse_raise(line: &str, now: u64) -> Option<Raise> {
    let mut parts = line.splitn(4, ' ');
    let (limit, key) = parts.next()?.rsplit_once(':')?;
    let factor = Factor::from_thousandths(parts.next()?.parse().ok()?)?;
    let rest = parts.next()?.parse::<u64>().ok()?.checked_sub(now)?;
    let by = parts.next().unwrap_or_default().into();
    Some(Raise { limit: limit.into(), key: Key::parse(key.as_bytes())?, factor, rest: Micros(rest), by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_other_lines_ignored() {
        let key = Key([7; 16]);
        let text =
            format!("1000\n42\na-b:{key} 1500 3000 user 0\nodd\na:short 2000 3000 x\na:{key} 2000 999 past");
        let raise = Raise {
            limit: "a-b".into(),
            key,
            factor: Factor::parse("1.5x").unwrap(),
            rest: Micros(2_000),
            by: "user 0".into(),
        };
        assert_eq!(parse(&text), Some(RaiseList { version: 42, raises: vec![raise] }));
        assert_eq!(parse("1000\n"), Some(RaiseList::default()));
        assert_eq!((parse(""), parse("x\n1")), (None, None));
        assert_eq!((version(b""), version(b"17\na"), version(b"x")), (0, 17, 0));
    }
}
