//! HTTP/2, with clients and with upstream servers.

mod attacks;
mod bodies;
mod cancelled;
mod grpc;
mod load;
mod requests;
mod upstream;
mod upstream_goaway;
mod upstream_retries;
mod upstream_uploads;
mod upstream_websocket;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};

use crate::support::{
    Client, Frames, Http2, Tidegate, Upstream, block, connect_from, curl, eventually, frames, get,
};

/// A proxy in front of an echo server, with these lines in its listener.
fn listening(lines: &str) -> (Tidegate, Upstream) {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{lines}\n\
         [limits.few]\nrate = \"2/hour\"\n\
         [[routes]]\npath = \"/own\"\nrespond = {{ status = 200, body = \"own\\n\" }}\n\
         [[routes]]\npath = \"/few\"\nlimits = [\"few\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ));
    (proxy, server)
}

fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://localhost{path}"))
}
