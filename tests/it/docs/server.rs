//! The server behind the proxy of a played page.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Caller, Message, Upstream};

/// Starts it. It responds to a request with its request line and headers, to a sign-in with 200 or 401, to
/// `/status/CODE` with that status, to a chat as a language model, and accepts `WebSockets`.
pub(super) fn start() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.header("upgrade").is_some() {
                tunnel(caller, &request);
                return;
            }
            if caller.try_send(response(&request)).is_err() {
                return;
            }
        }
    })
}

fn response(request: &Message) -> Vec<u8> {
    let path = request.start.split(' ').nth(1).unwrap_or_default();
    let body = String::from_utf8_lossy(&request.body);
    if path.ends_with("/chat/completions") {
        return chat(&body);
    }
    let is_sign_in = path.starts_with("/login") || path.starts_with("/v1/sessions");
    let status = match path.strip_prefix("/status/") {
        Some(code) => code.to_owned(),
        None if is_sign_in && !body.contains("correct") => "401".to_owned(),
        None => "200".to_owned(),
    };
    let mut text = format!("{}\n", request.start);
    for (name, value) in &request.headers {
        writeln!(text, "{}: {value}", name.to_lowercase()).unwrap();
    }
    if !body.is_empty() {
        writeln!(text, "\n{body}").unwrap();
    }
    let reason = StatusCode::from_bytes(status.as_bytes()).ok().and_then(|status| status.canonical_reason());
    let mut response = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
        reason.unwrap_or_default(),
        text.len(),
    );
    if !request.start.starts_with("HEAD ") {
        response.push_str(&text);
    }
    response.into_bytes()
}

/// A language model, which always says the same, and whose output has half of the tokens that the request allows.
fn chat(request: &str) -> Vec<u8> {
    let request: Value = serde_json::from_str(request).unwrap_or_default();
    let (input, output) = (12, request["max_completion_tokens"].as_u64().unwrap_or(1000) / 2);
    let body = json!({
        "object": "chat.completion",
        "model": request["model"],
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Once." }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output },
    });
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Accepts a WebSocket (RFC 6455), and reads until the client closes it.
fn tunnel(caller: &mut Caller, request: &Message) {
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let nonce = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let accept = STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, nonce.as_bytes()));
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n",
    );
    if caller.try_send(head).is_ok() {
        caller.read_to_close();
    }
}
