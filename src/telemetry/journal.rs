//! Lines for the journal of systemd: it reads a priority from the beginning of each line of standard error (sd-daemon(3)).

use std::borrow::Cow;
use std::io;
use std::sync::LazyLock;

use rustix::fs::fstat;
use tracing::Level;

/// Whether standard error is connected to the journal: systemd sets `JOURNAL_STREAM` to the device and the inode of the stream
/// (systemd.exec(5)).
pub(super) fn is_connected() -> bool {
    static IS_CONNECTED: LazyLock<bool> = LazyLock::new(|| {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        fstat(io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
    });
    *IS_CONNECTED
}

/// The priority of a level, as the beginning of a line.
pub(super) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Messages for standard error: with priorities, if it is connected to the journal. A line that begins with `warning` or `error`
/// sets the priority of the next lines.
#[must_use]
pub fn for_stderr(text: &str) -> Cow<'_, str> {
    if is_connected() { Cow::Owned(with_priorities(text)) } else { Cow::Borrowed(text) }
}

fn with_priorities(text: &str) -> String {
    let mut level = Level::ERROR;
    let lines = text.lines().map(|line| {
        if line.starts_with("warning") {
            level = Level::WARN;
        } else if line.starts_with("error") {
            level = Level::ERROR;
        }
        format!("{}{line}", priority(level))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_priority_of_its_message() {
        let text = "error: a\n --> b\nwarning: c\n  help: d";
        assert_eq!(with_priorities(text), "<3>error: a\n<3> --> b\n<4>warning: c\n<4>  help: d");
    }
}
