//! The results of tests in the XML format of `JUnit`, which CI systems read.

use std::fmt::Write as _;

use super::report::{TestReport, TestResult};

/// The report as an XML document, with a suite for each file.
pub(super) fn xml(report: &TestReport) -> String {
    let mut files: Vec<&str> = Vec::new();
    for result in &report.tests {
        if !files.contains(&&*result.file) {
            files.push(&result.file);
        }
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string can't fail.
    let _ = writeln!(xml, "<testsuites name=\"tidegate\" {}>", counts(&report.tests));
    for file in files {
        let results: Vec<&TestResult> = report.tests.iter().filter(|result| result.file == file).collect();
        let _ = writeln!(xml, "  <testsuite name=\"{}\" {}>", escape(file), counts(results.iter().copied()));
        for result in results {
            add_case(&mut xml, result);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// The attributes with the numbers of tests.
fn counts<'r>(results: impl IntoIterator<Item = &'r TestResult>) -> String {
    let (mut tests, mut failures, mut errors) = (0, 0, 0);
    for result in results {
        tests += 1;
        errors += usize::from(result.error.is_some());
        failures += usize::from(!result.passed && result.error.is_none());
    }
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"")
}

fn add_case(xml: &mut String, result: &TestResult) {
    let TestResult { name, file, line, .. } = result;
    let (name, file) = (escape(name), escape(file));
    let start = format!("    <testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{line}\"");
    let reasons = result.reasons();
    let _ = match reasons.first() {
        None => writeln!(xml, "{start}/>"),
        Some(first) => {
            let element = if result.error.is_some() { "error" } else { "failure" };
            let (first, all) = (escape(first), escape(&reasons.join("\n")));
            writeln!(xml, "{start}>\n      <{element} message=\"{first}\">{all}</{element}>\n    </testcase>")
        }
    };
}

/// The text for an element or an attribute. Characters that XML can't have are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escape("a < b & \"c\" >\u{1b}[1m"), "a &lt; b &amp; &quot;c&quot; &gt;\u{fffd}[1m");
    }
}
