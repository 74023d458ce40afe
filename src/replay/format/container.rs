//! Lines of a program as a container runtime writes them: containerd, CRI-O and podman, and Docker's `json-file`.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The line that a program has written, without what a container runtime has added; any other line as it is.
pub(super) fn container_message(line: &[u8]) -> Cow<'_, [u8]> {
    let message = if line.starts_with(b"{\"log\":\"") { docker(line) } else { cri(line).map(Cow::Borrowed) };
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

/// `TIME STREAM TAGS MESSAGE`, as the interface of container runtimes has it; the first tag is `F`, or `P` for a part of a line.
fn cri(line: &[u8]) -> Option<&[u8]> {
    if line.get(4) != Some(&b'-') || line.get(10) != Some(&b'T') {
        return None;
    }
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (_, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    let has_tag = matches!(tags.split(|byte| *byte == b':').next(), Some(b"F" | b"P"));
    (has_tag && matches!(stream, b"stdout" | b"stderr")).then(|| parts.next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

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
