//! Load, with h2load.

use std::process::Stdio;

use super::*;
use crate::support::{Authority, Http2Server, Process, command, connect_from};

/// A running h2load.
struct Load(Process);

/// The report of h2load.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    started: u32,
    succeeded: u32,
    /// By the first digit of their status, from 2 to 5.
    classes: [u32; 4],
}

impl Load {
    /// Sends so many requests to a URL, over four connections with up to 16 at once on each.
    fn begin(requests: u32, url: &str) -> Self {
        let mut command = command("h2load");
        command.args(["-n", &requests.to_string(), "-c", "4", "-m", "16", url]);
        Self(Process::start(command.stdout(Stdio::piped())))
    }

    /// Waits until it has finished.
    #[track_caller]
    fn report(self) -> Report {
        let output = self.0.output();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |begin: &str| text.lines().find_map(|line| line.strip_prefix(begin)).expect(&text);
        let number = |line: &str, what: &str| {
            let part = line.split(',').find_map(|part| part.trim().strip_suffix(what)).expect(&text);
            part.trim().parse::<u32>().expect(&text)
        };
        let (requests, codes) = (line("requests: "), line("status codes: "));
        Report {
            started: number(requests, "started"),
            succeeded: number(requests, "succeeded"),
            classes: ["2xx", "3xx", "4xx", "5xx"].map(|class| number(codes, class)),
        }
    }
}

/// The report if all of these requests succeed.
fn all(requests: u32) -> Report {
    Report { started: requests, succeeded: requests, classes: [requests, 0, 0, 0] }
}

/// A file with a route to each kind of server.
fn configuration(server: &Upstream, other: &Http2Server, tls: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{tls}\n\
         [limits.all]\nrate = \"1000000/s\"\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n\
         [[routes]]\npath = \"/h1\"\nlimits = [\"all\"]\nupstream = \"{}\"\n\
         [[routes]]\npath = \"/h2\"\nlimits = [\"all\"]\nupstream = \"u\"\n",
        other.url(),
        server.url()
    )
}

#[test]
fn thousands_of_requests_are_all_answered() {
    let (server, other) = (Upstream::echo(), Http2Server::echo());
    let proxy = Tidegate::start(&configuration(&server, &other, ""));
    for path in ["/h1", "/h2"] {
        assert_eq!(Load::begin(2000, &proxy.url(path)).report(), all(2000), "{path}");
    }
}

#[test]
fn thousands_of_requests_over_tls_are_all_answered_during_reloads() {
    let (server, other) = (Upstream::echo(), Http2Server::echo());
    let authority = Authority::new();
    authority.sign("localhost");
    let config = configuration(&server, &other, &authority.listener("localhost"));
    let proxy = Tidegate::start(&config);
    let load = Load::begin(4000, &format!("https://{}/h2", proxy.addr()));
    for number in 1..=5 {
        proxy.reload(&config.replace("1000000/s", &format!("{number}000000/s")));
    }
    assert_eq!(load.report(), all(4000));
    // Requests before and after a reload share the upstream connections.
    assert!(other.connections() <= 4, "{}", other.connections());
}

#[test]
fn requests_started_before_a_drain_are_answered() {
    let (server, other) = (Upstream::echo(), Http2Server::echo());
    let mut proxy = Tidegate::start(&configuration(&server, &other, ""));
    let load = Load::begin(1_000_000, &proxy.url("/h1"));
    eventually("the proxy is under load", || server.received() > 100);
    proxy.signal("TERM");
    // The requests that arrived, not those that h2load counts as started: it also starts one whose frames it then discards,
    // if a response and the GOAWAY are in one read.
    let Report { started, succeeded, classes } = load.report();
    assert_eq!((server.received(), classes), (succeeded as usize, [succeeded, 0, 0, 0]), "{started} started");
    assert!(succeeded > 100, "{succeeded}");
    assert_eq!(proxy.wait().code(), Some(0));
}

/// The requests of one client wait for their turn together, from however many addresses it sends them.
#[test]
fn addresses_that_count_as_one_client_share_its_turns() {
    let proxy = Tidegate::start(
        "workers = 1\n[client_ip]\nipv4_prefix = 24\n[log]\naccess = \"json\"\n\
         [[routes]]\npath = \"/*\"\nrespond = { status = 204 }\n",
    );
    let open = |source: String| Frames::over(connect_from(&source, proxy.addr()).unwrap()).begin(&[]);
    let mut many: Vec<Frames> = (2..62).map(|number| open(format!("127.0.0.{number}"))).collect();
    let mut other = open("127.0.1.1".to_owned());
    for client in many.iter_mut().chain([&mut other]) {
        client.get(1, "/");
        assert_eq!(client.status(1), Some(Ok(204)));
    }
    // All requests are there when the proxy continues, those of the other client last.
    proxy.signal("STOP");
    for number in 1..40 {
        for client in &mut many {
            client.get(2 * number + 1, "/");
        }
    }
    for number in 1..10 {
        other.get(2 * number + 1, "/last");
    }
    proxy.signal("CONT");
    let lines = proxy.accesses(61 + 60 * 39 + 9);
    let last = lines.iter().rposition(|line| line.contains("/last")).unwrap();
    assert!(last < 61 + 500, "{last}");
}
