//! Bodies of errors (RFC 9457).

use super::Message;

/// The body of a problem that has no type of its own.
fn problem(status: u16, title: &str, detail: &str) -> String {
    format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}"}}"#) + "\n"
}

#[track_caller]
pub fn assert_problem(message: &Message, status: u16, title: &str, detail: &str) {
    assert_eq!(message.start, format!("HTTP/1.1 {status} {title}"));
    assert_eq!(message.header("content-type"), Some("application/problem+json"));
    assert_eq!(message.text(), problem(status, title, detail));
}
