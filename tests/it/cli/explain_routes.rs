//! `tidegate explain` of what a route has in place of its upstream and its limits: times, and the status of denials.

use super::tidegate;

const FILE: &str = "listen = \"127.0.0.1:0\"\n\
    [upstreams.api]\nservers = [\"http://10.0.0.1:9000\"]\ntotal_timeout = \"30s\"\n\
    [limits.one]\nrate = \"1/s\"\ndeny_status = 503\n\
    [[routes]]\npath = \"/own\"\nupstream = \"api\"\nlimits = [\"one\"]\ndeny_status = \"close\"\n\
    response_timeout = \"10m\"\nstall_timeout = \"60s\"\ntotal_timeout = \"off\"\nretries = 0\n\
    [[routes]]\npath = \"/gone\"\nblock = true\ndeny_status = 410\n\
    [[routes]]\npath = \"/silent\"\nblock = true\ndeny_status = \"close\"\n\
    [[routes]]\npath = \"/*\"\nupstream = \"api\"\nlimits = [\"one\"]\n";

/// The explanation of a request.
fn explain(path: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), FILE).unwrap();
    let url = format!("http://a.test{path}");
    tidegate(directory.path(), &["explain", "GET", &url]).stdout
}

#[test]
fn explain_shows_the_times_and_the_status_of_a_route() {
    let text = explain("/own");
    let rest = text.split_once("as host   a.test\n").unwrap().1;
    assert_eq!(
        rest,
        "times     response_timeout 10m, by the route; 1m by the upstream\n\
         times     total_timeout off, by the route; 30s by the upstream\n\
         times     retries 0, by the route; 1 by the upstream\n\
         denials   without a response: the connection is closed, or over HTTP/2 the stream is reset, whatever the limits \
         say (`deny_status`)\n"
    );
    assert!(text.contains("\n          denied    with 503 Service Unavailable (`deny_status`)\n"), "{text}");
    for (path, response) in [("/gone", "410 Gone"), ("/silent", "none")] {
        let line = format!("response  {response}: the route blocks its requests (`block`)\n");
        assert!(explain(path).contains(&line), "{}", explain(path));
    }
}
