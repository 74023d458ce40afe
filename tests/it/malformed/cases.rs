//! Cases as data: expected outcomes and bytes.

/// A line of a table.
#[derive(Debug)]
pub struct Case {
    /// The expected outcome, in words that the test of the table knows; the first is a status or another word.
    pub expected: Vec<&'static str>,
    /// The bytes that are sent.
    pub bytes: Vec<u8>,
    /// The line of the file, which names the case.
    pub line: &'static str,
}

/// Reads a table: lines of expected outcomes, at least two blanks, and bytes. Expectations are separated by `; `.
/// Among the bytes `|` is the end of a line (CR LF), `\n`, `\r`, `\t`, `\0`, `\\` and `\xNN` are single bytes, and
/// `{3:ab}` is `ababab`.
pub fn read(table: &'static str) -> Vec<Case> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (expected, bytes) = line.split_once("  ").unwrap_or_else(|| panic!("no bytes: {line}"));
            Case { expected: expected.split("; ").collect(), bytes: unescaped(bytes.trim_start()), line }
        })
        .collect()
}

/// Runs every case of a table, and fails with the lines of those that have a fault.
#[track_caller]
pub fn check(table: &'static str, fault_of: impl Fn(&Case) -> Result<(), String>) {
    let cases = read(table);
    let fault = |case: &Case| fault_of(case).err().map(|fault| format!("{}\n    {fault}", case.line));
    let faults: Vec<String> = cases.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// The bytes of a text in a table.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '|' => bytes.extend_from_slice(b"\r\n"),
            '{' => {
                let (count, after) = rest.split_once(':').unwrap();
                let (piece, after) = after.split_once('}').unwrap();
                bytes.extend(unescaped(piece).repeat(count.parse().unwrap()));
                rest = after;
            }
            '\\' => {
                let kind = rest.chars().next().unwrap();
                rest = &rest[1..];
                let byte = match kind {
                    'n' => b'\n',
                    'r' => b'\r',
                    't' => b'\t',
                    '0' => 0,
                    '\\' => b'\\',
                    // The end of a connection is no byte, and is left for the test to interpret.
                    'c' => {
                        bytes.push(b'\\');
                        b'c'
                    }
                    'x' => {
                        let (digits, after) = rest.split_at(2);
                        rest = after;
                        u8::from_str_radix(digits, 16).unwrap()
                    }
                    other => panic!("no such escape: {other}"),
                };
                bytes.push(byte);
            }
            plain => bytes.extend_from_slice(plain.to_string().as_bytes()),
        }
    }
    bytes
}
