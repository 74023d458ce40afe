//! Configurations and servers for several files of this folder.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Message, Tidegate, Upstream, free_address, get};

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A proxy that forwards every request to this URL, with further settings.
pub fn proxy_for(upstream: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!("{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"{upstream}\"\n"))
}

/// The same with these lines in its route.
pub fn with_route(upstream: &str, lines: &str) -> Tidegate {
    Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{upstream}\"\n{lines}\n"))
}

/// The URL of a server that refuses connections.
pub fn refusing_url() -> String {
    format!("http://{}", free_address())
}

#[track_caller]
pub fn assert_bad_gateway(response: &Message, detail: &str) {
    assert_eq!(response.start, "HTTP/1.1 502 Bad Gateway");
    let body = format!(r#"{{"type":"about:blank","title":"Bad Gateway","status":502,"detail":"{detail}"}}"#);
    assert_eq!(response.text(), body + "\n");
}

pub fn started(servers: &str, settings: &str) -> Tidegate {
    started_with(2, servers, settings)
}

pub fn started_with(workers: usize, servers: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"\nworkers = {workers}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams.u]\nservers = [{servers}]\n{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"u\"\n"
    ))
}

/// The value of a metric of the upstream; `more` are further labels.
#[track_caller]
pub fn metric(proxy: &Tidegate, name: &str, more: &str) -> usize {
    let text = get(proxy.admin(), "/metrics", &[]).text().to_owned();
    let start = format!("tidegate_upstream_{name}{{upstream=\"u\"{more}}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start}in {text}")).parse().unwrap()
}

pub fn of(server: &Upstream) -> String {
    format!(",server=\"{}\"", server.url())
}

pub fn ended(server: &Upstream, outcome: &str) -> String {
    format!("{},outcome=\"{outcome}\"", of(server))
}

/// A server that never responds.
pub fn silent() -> Upstream {
    Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    })
}

/// A server that responses every request with this status.
pub fn with_status(status: &Arc<AtomicUsize>) -> Upstream {
    let status = Arc::clone(status);
    Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let status = status.load(Ordering::SeqCst);
            let _ = caller.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nhi"));
        }
    })
}

pub const PLAIN: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A proxy in front of these servers, with these lines in their upstream.
pub fn among(servers: &[&Upstream], settings: &str) -> Tidegate {
    let urls: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    started(&urls.join(", "), settings)
}

pub fn with_servers(servers: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[upstreams.many]\nservers = [{servers}]\n{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"many\"\n"
    ))
}
