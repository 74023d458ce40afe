//! Cases as data: what is expected, and the bytes.

/// A line of a table.
#[derive(Debug)]
pub struct Case {
    /// What must come of it, in words that the table's test knows; the first is a status or a word of its own.
    pub expected: Vec<&'static str>,
    /// What is sent.
    pub bytes: Vec<u8>,
    /// The line as it stands in the file, to name it by.
    pub line: &'static str,
}

/// Reads a table: lines of what is expected, at least two blanks, and bytes. Expectations are separated by `; `.
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

/// The bytes that a text of a table stands for.
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
                    // The end of a connection is no byte: it stays what it is, for the test to see.
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
