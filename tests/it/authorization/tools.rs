//! What commands and the library say of external authorization.

use tidegate::limits::Limiter;

use crate::support::{TIDEGATE, command};

const FILE: &str = "\
    listen = \"127.0.0.1:0\"\n[upstreams.auth]\nservers = [\"http://10.0.0.1:9091/base\"]\n\
    [limits.user]\nrate = \"9/s\"\nkey = \"header:x-user\"\n\
    [[routes]]\npath = \"/*\"\nlimits = [\"user\"]\nupstream = \"http://10.0.0.2:9000\"\n\
    authorize = { upstream = \"auth\", path = \"/verify\", copy = [\"x-user\"], on_failure = \"allow\", \
    order = \"before_limits\", cache = { for = \"30s\", key = [\"header:authorization\", \"header:cookie\", \"path\"] } }\n";

#[test]
fn explain_shows_what_would_be_asked() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), FILE).unwrap();
    let output =
        command(TIDEGATE).args(["explain", "GET", "http://a.test/x"]).current_dir(directory.path()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("authorize ")).collect();
    assert_eq!(
        rows,
        [
            "before the limits, by GET http://10.0.0.1:9091/base/verify; not asked here",
            "within 1s, or else the request is forwarded",
            "headers that are sent: authorization, cookie",
            "headers from the response: x-user",
            "2xx holds for 30s for requests with the same header:authorization, header:cookie, path",
        ]
    );
    assert!(
        text.contains("header:x-user is missing (the authorization server sets it, which is not asked here)"),
        "{text}"
    );
    assert!(text.contains("sent to   http://10.0.0.2:9000/x"), "{text}");
}

#[test]
fn the_library_rejects_a_file_that_has_requests_authorized() {
    let error = Limiter::from_toml(FILE).unwrap_err().to_string();
    assert!(
        error.contains("the library sends no requests, so it can't have this route authorized"),
        "{error}"
    );
}
