//! Blocks of the Lua scripts are short, as functions are.

use std::fs;
use std::path::Path;

use regex::Regex;

use super::files::files_below;

/// Lines of code of a function, a loop or a condition that is in no other, and of a snippet.
const MOST_LINES: usize = 60;

/// The blocks that are too long today. The list only gets shorter.
const LONG: &[&str] = &[
    "sliding_log.lua: local function log_step(state, numbers, now, cost, taken, kind)",
    "sliding_window.lua: local function window_step(state, numbers, now, cost, taken, kind)",
];

/// The lines of code of a script, without strings and comments.
fn code_lines(text: &str) -> Vec<String> {
    let other = Regex::new(r#""(?:[^"\\]|\\.)*"|--.*"#).unwrap();
    let lines = text.lines().map(|line| other.replace_all(line, "").into_owned());
    lines.filter(|line| !line.trim().is_empty()).collect()
}

/// The first line of each block that is in no other, and its number of lines.
fn blocks(lines: &[String]) -> Vec<(String, usize)> {
    let bound = Regex::new(r"\b(function|do|repeat|if|end|until)\b").unwrap();
    let (mut blocks, mut depth, mut first) = (Vec::new(), 0_usize, 0);
    for (at, line) in lines.iter().enumerate() {
        if depth == 0 {
            first = at;
        }
        let was_inside = depth > 0;
        for word in bound.find_iter(line) {
            depth = if matches!(word.as_str(), "end" | "until") { depth - 1 } else { depth + 1 };
        }
        if depth == 0 && was_inside {
            blocks.push((lines[first].trim().to_owned(), at + 1 - first));
        }
    }
    assert_eq!(depth, 0);
    blocks
}

#[test]
fn blocks_of_scripts_have_at_most_60_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut long = Vec::new();
    for path in files_below(&folder, ".lua") {
        let lines = code_lines(&fs::read_to_string(&path).unwrap());
        let mut blocks = blocks(&lines);
        let name = path.strip_prefix(&folder).unwrap().to_str().unwrap();
        if name.starts_with("snippets/") {
            blocks.push(("all of it".to_owned(), lines.len()));
        }
        let too_long = blocks.into_iter().filter(|(_, count)| *count > MOST_LINES);
        long.extend(too_long.map(|(first, _)| format!("{name}: {first}")));
    }
    assert_eq!(
        long, LONG,
        "blocks of more than {MOST_LINES} lines; take steps out of them, or remove them from LONG"
    );
}
