//! Console blocks: commands after `$`, each with the output that it is expected to have.

use super::pages::Block;

/// A command with its expected output.
#[derive(Debug)]
pub(super) struct Step {
    pub command: String,
    pub expected: Vec<String>,
    /// The line of the command, from 1.
    pub line: usize,
}

/// Reads a block. A command that ends with a backslash continues on the next line.
pub(super) fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (offset, line) in block.text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            let line = block.line + 1 + offset;
            steps.push(Step { command: command.to_owned(), expected: Vec::new(), line });
            continue;
        }
        let step = steps.last_mut().unwrap_or_else(|| panic!("no command before {line:?}"));
        if step.expected.is_empty() && step.command.ends_with('\\') {
            step.command.extend(["\n", line]);
        } else {
            step.expected.push(line.to_owned());
        }
    }
    steps
}

impl Step {
    /// Whether the command changes nothing, so that it can be repeated until its output is as expected: logs and the
    /// counts of `tidegate top` are written after the response.
    pub fn is_repeatable(&self) -> bool {
        let readers = ["grep ", "tail ", "cat ", "tidegate top ", "tidegate keys list", "redis-cli "];
        readers.iter().any(|reader| self.command.starts_with(reader))
    }

    /// Whether the exit status has to be 0: no line of the output would show a failure. Other commands may end with a
    /// `grep` that finds nothing.
    pub fn must_succeed(&self) -> bool {
        self.expected.iter().all(|line| line == "…")
    }

    /// Whether an output is as expected; without an expected output any is. A line of `…` matches any lines, and `…`
    /// within a line for any text.
    pub fn accepts(&self, output: &str) -> bool {
        if self.expected.is_empty() {
            return true;
        }
        let expected: Vec<String> = self.expected.iter().map(|line| single_spaced(line)).collect();
        let output: Vec<String> = output.trim_end().lines().map(single_spaced).collect();
        lines_match(&expected, &output)
    }
}

/// A line with one space for each run of them: the widths of columns depend on addresses.
fn single_spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines_match(expected: &[String], lines: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((pattern, rest)) if pattern == "…" => {
            (0..=lines.len()).any(|from| lines_match(rest, &lines[from..]))
        }
        Some((pattern, rest)) => {
            let Some((line, others)) = lines.split_first() else { return false };
            line_matches(pattern, line) && lines_match(rest, others)
        }
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    if let (Some(expected), Some(actual)) = (wait(pattern), wait(line)) {
        // Some time has passed since the count began.
        return actual.0 == expected.0 && (expected.1.saturating_sub(20)..=expected.1).contains(&actual.1);
    }
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The name and the number of a header whose seconds become fewer while a test runs.
fn wait(line: &str) -> Option<(String, u64)> {
    let (name, seconds) = line.split_once(": ")?;
    let name = name.to_lowercase();
    let is_wait = ["retry-after", "x-ratelimit-reset"].contains(&&*name);
    is_wait.then_some((name, seconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(expected: &str, output: &str) -> bool {
        let text = format!("$ command\n{expected}");
        let block = Block { info: "console".into(), text, line: 1 };
        steps(&block)[0].accepts(output)
    }

    #[test]
    fn outputs_are_compared_line_by_line_with_wildcards() {
        assert!(accepts("HTTP/1.1 200 OK\n…\nx-a: 1", "HTTP/1.1 200 OK\r\ndate: now\r\nx-a: 1\r\n"));
        assert!(accepts("a…c…e", "abcde"));
        assert!(accepts("…", "anything\nat all"));
        assert!(!accepts("HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests"));
        assert!(!accepts("a…c", "abcd"));
        assert!(!accepts("a", "a\nb"));
        assert!(!accepts("a\nb", "a"));
    }

    #[test]
    fn waits_may_be_shorter_but_not_longer() {
        assert!(accepts("retry-after: 12", "retry-after: 11"));
        assert!(!accepts("retry-after: 12", "retry-after: 13"));
        assert!(!accepts("retry-after: 12", "x-ratelimit-reset: 12"));
    }

    #[test]
    fn a_command_continues_after_a_backslash() {
        let text = "$ curl \\\n    URL\n200\n$ true\n".to_owned();
        let steps = steps(&Block { info: "console".into(), text, line: 7 });
        assert_eq!(steps[0].command, "curl \\\n    URL");
        assert_eq!(steps[0].expected, ["200"]);
        assert_eq!((steps[1].line, steps[1].expected.len()), (11, 0));
    }
}
