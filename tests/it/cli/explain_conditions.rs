//! `tidegate explain` for routes with conditions.

use super::tidegate;
use crate::support::mmdb;

/// The rows about routes in the explanation of a request.
fn route_rows(routes: &str, args: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("listen = \"127.0.0.1:8080\"\n{routes}");
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    let explained = tidegate(directory.path(), &[&["explain", "GET"], args].concat());
    assert_eq!(explained.status, 0, "{}", explained.stderr);
    let is_about_routes = |line: &&str| {
        ["skipped", "location"].iter().any(|row| line.starts_with(row)) || line.starts_with("route")
    };
    explained.stdout.lines().filter(is_about_routes).collect::<Vec<_>>().join("\n")
}

#[test]
fn explain_shows_which_condition_fails() {
    let routes = r#"
[[routes]]
name = "bots"
path = "/*"
headers = { user-agent = ["*GPTBot*", "curl/*"] }
respond = {}
[[routes]]
name = "beta"
path = "/*"
headers = { x-beta = true }
respond = {}
[[routes]]
name = "page"
path = "/*"
query = { page = { not = "1" } }
respond = {}
[[routes]]
name = "signed-out"
path = "/*"
cookies = { sid = false }
respond = {}
[[routes]]
name = "secret"
path = "/*"
headers = { authorization = "Basic abc" }
respond = {}
[[routes]]
name = "rest"
path = "/*"
headers = { x-off = false }
cookies = { sid = "a*" }
respond = {}
"#;
    assert_eq!(
        route_rows(routes, &["/?page=1", "-H", "Cookie: sid=abc"]),
        "skipped   route bots: its path matches, but the header user-agent does not match `*gptbot*` or `curl/*`
skipped   route beta: its path matches, but the header x-beta is missing
skipped   route page: its path matches, but the query parameter page matches `1`
skipped   route signed-out: its path matches, but the cookie sid is present
skipped   route secret: its path matches, but the header authorization does not match `…`
route     rest: path /*; header x-off absent; cookie sid `a*`"
    );
}

#[test]
fn explain_shows_conditions_on_addresses() {
    let routes = "[[routes]]\nname = \"office\"\npath = \"/*\"\nclient_ip = [\"192.0.2.0/24\", \"10.0.0.7\"]\nrespond = {}\n\
                  [[routes]]\nname = \"rest\"\npath = \"/*\"\nclient_ip = { not = [\"10.0.0.0/8\"] }\nblock = true\n";
    assert_eq!(
        route_rows(routes, &["/", "--from", "203.0.113.9"]),
        "skipped   route office: its path matches, but its client_ip is 10.0.0.7 or 192.0.2.0/24
route     rest: path /*; client_ip not 10.0.0.0/8"
    );
}

#[test]
fn explain_shows_where_a_client_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("country.mmdb");
    std::fs::write(&file, mmdb::countries(&[("192.0.2.0", 24, "DE")])).unwrap();
    let routes = format!(
        "[geo]\ncountry = \"{}\"\n\
         [[routes]]\nname = \"far\"\npath = \"/*\"\ncountry = {{ not = [\"DE\"] }}\nrespond = {{}}\n\
         [[routes]]\nname = \"near\"\npath = \"/*\"\ncountry = [\"DE\", \"AT\"]\nrespond = {{}}\n",
        file.display()
    );
    assert_eq!(
        route_rows(&routes, &["/", "--from", "192.0.2.1"]),
        "location  country DE, asn unknown
skipped   route far: its path matches, but its country is not DE
route     near: path /*; country AT or DE"
    );
}
