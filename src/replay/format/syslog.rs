//! Finds the message in a line of syslog.

use memchr::memmem;

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The message of a line of syslog, in the forms of RFC 3164 and RFC 5424 and with the times of rsyslog and journald; any
/// other line as it is.
pub(super) fn message(line: &[u8]) -> &[u8] {
    let rest = without_priority(line);
    if let Some(rest) = rest.strip_prefix(b"1 ").filter(|_| rest.len() < line.len()) {
        return structured(rest).unwrap_or(line);
    }
    let is_old = rest.get(..3).is_some_and(|month| MONTHS.contains(&month)) && rest.get(9) == Some(&b':');
    let is_iso = rest.get(4) == Some(&b'-') && rest.get(10) == Some(&b'T');
    if !is_old && !is_iso {
        return rest;
    }
    // `TIME HOST PROGRAM[PID]: MESSAGE`
    memmem::find(rest, b": ").map_or(line, |colon| &rest[colon + 2..])
}

/// The line without a priority such as `<134>`.
fn without_priority(line: &[u8]) -> &[u8] {
    if line.first() != Some(&b'<') {
        return line;
    }
    let end = line.iter().take(6).position(|byte| *byte == b'>');
    end.filter(|end| crate::http1::is_digits(&line[1..*end])).map_or(line, |end| &line[end + 1..])
}

/// The message after `TIME HOST APP PID MSGID SD`; structured data is a dash or in brackets.
fn structured(rest: &[u8]) -> Option<&[u8]> {
    let mut rest = rest;
    for _ in 0..5 {
        let space = memchr::memchr(b' ', rest)?;
        rest = &rest[space + 1..];
    }
    match rest.strip_prefix(b"- ") {
        Some(message) => Some(message),
        None => memmem::find(rest, b"] ").map(|end| &rest[end + 2..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_the_head() {
        for line in [
            "::1 - - [x]",
            "<190>::1 - - [x]",
            "Feb  6 12:14:14 localhost haproxy[14389]: ::1 - - [x]",
            "<134>Feb  6 12:14:14 localhost nginx: ::1 - - [x]",
            "2026-11-22T19:24:07.1+00:00 web1 nginx[7]: ::1 - - [x]",
            "<134>1 2026-11-22T19:24:07Z web1 nginx 7 - - ::1 - - [x]",
            "<134>1 2026-11-22T19:24:07Z web1 nginx 7 - [a b=\"c\"][d] ::1 - - [x]",
        ] {
            assert_eq!(message(line.as_bytes()), b"::1 - - [x]", "{line}");
        }
        for line in ["", "<", "<x>y", "Feb", "<134>1 "] {
            assert_eq!(message(line.as_bytes()), line.as_bytes());
        }
    }
}
