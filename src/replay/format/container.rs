//! Lines of a program as a container runtime writes them: containerd, CRI-O and podman, and Docker's `json-file`.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::replay::entry::LineError;
use crate::replay::lines::MAX_LINE;

/// The parts of lines whose last part has not come yet: those of stdout, and those of stderr.
#[derive(Clone, Debug, Default)]
pub(super) struct LineParts([Vec<u8>; 2]);

impl LineParts {
    /// The line that a program has written, without what a container runtime has added. Fails if this is a part of one and
    /// others follow, or if all parts together are longer than [`MAX_LINE`].
    pub fn whole<'l>(&mut self, line: &'l [u8]) -> Result<Cow<'l, [u8]>, LineError> {
        let Some(CriLine { stream, is_part, message }) = cri(line) else {
            return Ok(container_message(line));
        };
        let held = &mut self.0[stream];
        if held.is_empty() && !is_part {
            return Ok(Cow::Borrowed(message));
        }
        // One byte more shows that the line is too long.
        held.extend_from_slice(&message[..message.len().min(MAX_LINE + 1 - held.len())]);
        if is_part {
            return Err(LineError::Part);
        }
        let whole = std::mem::take(held);
        if whole.len() > MAX_LINE { Err(LineError::TooLong) } else { Ok(Cow::Owned(whole)) }
    }
}

/// The line that a program has written, without what a container runtime has added; any other line as it is.
pub(super) fn container_message(line: &[u8]) -> Cow<'_, [u8]> {
    let message = if line.starts_with(b"{\"log\":\"") {
        docker(line)
    } else {
        cri(line).map(|line| Cow::Borrowed(line.message))
    };
    message.unwrap_or(Cow::Borrowed(line))
}

/// A line of Docker's `json-file`.
#[derive(Deserialize)]
struct DockerLine<'l> {
    #[serde(borrow)]
    log: Cow<'l, str>,
    #[serde(rename = "stream")]
    _stream: IgnoredAny,
    #[serde(rename = "time")]
    _time: IgnoredAny,
}

fn docker(line: &[u8]) -> Option<Cow<'_, [u8]>> {
    let line: DockerLine<'_> = serde_json::from_slice(line).ok()?;
    Some(Cow::Owned(line.log.trim_end_matches(['\r', '\n']).as_bytes().to_vec()))
}

/// A line, or a part of one, of a container.
struct CriLine<'l> {
    /// 0 for stdout, 1 for stderr.
    stream: usize,
    is_part: bool,
    message: &'l [u8],
}

/// `TIME STREAM TAGS MESSAGE`, as the interface of container runtimes has it; the first tag is `F`, or `P` for a part of a line.
fn cri(line: &[u8]) -> Option<CriLine<'_>> {
    if line.get(4) != Some(&b'-') || line.get(10) != Some(&b'T') {
        return None;
    }
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (_, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    let is_part = match tags.split(|byte| *byte == b':').next() {
        Some(b"P") => true,
        Some(b"F") => false,
        _ => return None,
    };
    let stream = [&b"stdout"[..], b"stderr"].iter().position(|known| *known == stream)?;
    Some(CriLine { stream, is_part, message: parts.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_line_are_joined_by_stream() {
        let mut parts = LineParts::default();
        let mut whole = |stream: &str, tag: &str, text: &str| {
            let line = format!("2016-10-06T00:17:09.669794202Z {stream} {tag} {text}");
            parts.whole(line.as_bytes()).map(|line| String::from_utf8_lossy(&line).into_owned())
        };
        assert_eq!(whole("stdout", "F", "a"), Ok("a".to_owned()));
        assert_eq!(whole("stdout", "P", "a "), Err(LineError::Part));
        assert_eq!(whole("stderr", "P", "x"), Err(LineError::Part));
        assert_eq!(whole("stdout", "P:t", "b"), Err(LineError::Part));
        assert_eq!(whole("stderr", "F", "y"), Ok("xy".to_owned()));
        assert_eq!(whole("stdout", "F", ""), Ok("a b".to_owned()));
        assert_eq!(whole("stdout", "F", "c"), Ok("c".to_owned()));
        let half = "x".repeat(MAX_LINE / 2);
        for (last, is_too_long) in [("", false), ("y", true), (half.as_str(), true)] {
            assert_eq!(whole("stdout", "P", &half), Err(LineError::Part));
            assert_eq!(whole("stdout", "P", &half), Err(LineError::Part));
            let found = whole("stdout", "F", last);
            assert_eq!(found == Err(LineError::TooLong), is_too_long, "{}", last.len());
        }
        assert_eq!(whole("stdout", "F", "d"), Ok("d".to_owned()));
    }

    #[test]
    fn messages_are_what_the_program_has_written() {
        for (line, message) in [
            (
                "2016-10-06T00:17:09.669794202Z stdout F The content of the log entry 1",
                "The content of the log entry 1",
            ),
            (
                "2016-10-06T00:17:09.669794202Z stderr P:x First line of log entry 2",
                "First line of log entry 2",
            ),
            (
                r#"{"log":"Log line is here\n","stream":"stdout","time":"2019-01-01T11:11:11.111111111Z"}"#,
                "Log line is here",
            ),
            (
                r#"{"log":"a \"b\"\r\n","stream":"stdout","attrs":{"tag":"x"},"time":"2019-01-01T11:11:11Z"}"#,
                r#"a "b""#,
            ),
        ] {
            assert_eq!(&*container_message(line.as_bytes()), message.as_bytes(), "{line}");
        }
        for line in [
            "",
            "2016-10-06T00:17:09Z stdout x",
            "2016-10-06T00:17:09Z other F x",
            r#"{"log":"x"}"#,
            r#"{"log":"x","stream":"#,
            "192.0.2.1 - - [x]",
        ] {
            assert_eq!(&*container_message(line.as_bytes()), line.as_bytes());
        }
    }
}
