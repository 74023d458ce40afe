//! Servers of the proxy whose events are compared, and the requests that these refuse.

use crate::support::{Client, Tidegate, Upstream, eventually, get};

/// A server that responds with the path as the cost, if that is a number.
pub fn priced() -> Upstream {
    Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let path = request.start.split(' ').nth(1).unwrap_or_default().trim_start_matches("/units/");
            let response = format!("HTTP/1.1 200 OK\r\nX-Units: {path}\r\nContent-Length: 0\r\n\r\n");
            if caller.try_send(response).is_err() {
                return;
            }
        }
    })
}

/// An upstream with `overload` at this server, and a route for each class.
pub fn limited(server: &Upstream) -> String {
    let upstream = format!(
        "[upstreams.limited]\nservers = [\"{}\"]\noverload = {{ limit = 1, reserved_share = {{}} }}\nmax_pending = 0\n",
        server.url()
    );
    let routes = CLASSES.map(|class| {
        format!("[[routes]]\npath = \"/{class}\"\nupstream = \"limited\"\npriority = \"{class}\"\n")
    });
    upstream + &routes.concat()
}

const CLASSES: [&str; 4] = ["critical", "high", "normal", "low"];

/// Has a request of each class refused, while another one is in flight.
pub fn refuse_each_class(proxy: &Tidegate, server: &Upstream) {
    let mut held = Client::connect(proxy.addr());
    held.send("GET /low HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.received() == 1);
    assert_eq!(CLASSES.map(|class| get(proxy.addr(), &format!("/{class}"), &[]).status()), [503; 4]);
}
