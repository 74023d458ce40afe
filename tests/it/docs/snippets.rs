//! Each TOML block of the documentation is accepted by `tidegate check`, as it is or completed by what it leaves out.

use std::fs;
use std::path::Path;

use regex::Regex;
use toml::{Table, Value};

use super::pages::{Block, Page, pages};
use crate::support::{Authority, Issuer, TIDEGATE, command, jwks, mmdb};

/// A server for routes and upstreams that have none.
const SERVER: &str = "http://127.0.0.1:9000";

#[test]
fn every_toml_block_is_accepted() {
    let authority = Authority::new();
    authority.sign("server");
    let mut problems = Vec::new();
    let mut count = 0;
    for page in pages() {
        let blocks = page.blocks();
        for block in blocks.iter().filter(|block| block.language() == "toml") {
            // A file beside the configuration is read with that.
            if block
                .file_name()
                .is_some_and(|name| ["consumers.toml", "prices.toml", "tidegate.tests.toml"].contains(&name))
            {
                continue;
            }
            count += 1;
            if let Err(report) = accepted(&page, block, &blocks, &authority) {
                problems.push(format!("{}:{}\n{report}", page.path, block.line));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count > 20, "{count} blocks");
}

/// Whether `tidegate check` accepts a block; its report if not.
fn accepted(page: &Page, block: &Block, blocks: &[Block], authority: &Authority) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    for other in blocks.iter().filter(|other| other.language() == "toml") {
        if let Some(name) = other.file_name() {
            fs::write(directory.path().join(name), &other.text).unwrap();
        }
    }
    // `toml in [TABLE]` has the keys of a table.
    let table = block.info.strip_prefix("toml in ");
    let text = table.map_or_else(|| block.text.clone(), |table| format!("{table}\n{}", block.text));
    if table.is_none() && block.info != "toml" {
        return Err(format!("unknown info string {:?}", block.info));
    }
    write_files(directory.path(), &text, authority);
    let is_file = page.path.starts_with("docs/recipes/") && block.file_name().is_some();
    let result = check(directory.path(), &text);
    if is_file || result.is_ok() {
        // A recipe has no warnings either.
        return result.and_then(|report| if is_file && !report.is_empty() { Err(report) } else { Ok(()) });
    }
    let table: Table = text.parse().map_err(|error| format!("{error}"))?;
    check(directory.path(), &completed(table).to_string()).map(drop)
}

/// Writes the files that a configuration names.
fn write_files(directory: &Path, text: &str, authority: &Authority) {
    let names = Regex::new(r#""([^"]+\.(?:pem|crt|key|mmdb|json|jwks))""#).unwrap();
    for found in names.captures_iter(text) {
        let name = found[1].rsplit('/').next().unwrap();
        let extension = name.rsplit('.').next().unwrap();
        let content = match extension {
            "mmdb" if name.contains("ASN") => mmdb::systems(&[("192.0.2.0", 24, 64496)]),
            "mmdb" => mmdb::countries(&[("192.0.2.0", 24, "DE")]),
            "json" | "jwks" => jwks(&[&Issuer::new(jsonwebtoken::Algorithm::ES256, "key")]).into_bytes(),
            "key" => fs::read(authority.file("server.key")).unwrap(),
            _ if name.contains("ca.") => fs::read(authority.file("ca.pem")).unwrap(),
            _ => fs::read(authority.file("server.pem")).unwrap(),
        };
        fs::write(directory.join(name), content).unwrap();
    }
    if text.contains("\"consumers.toml\"") && !directory.join("consumers.toml").exists() {
        fs::write(directory.join("consumers.toml"), "[acme]\ncredentials = [\"k-4711\"]\ntier = \"pro\"\n")
            .unwrap();
    }
}

/// Runs `tidegate check`, with a value for each variable of the environment, and with all files in one directory.
/// Returns its warnings, or its errors.
fn check(directory: &Path, text: &str) -> Result<String, String> {
    let absolute = Regex::new(r#""/[^"]*/([^"/]+\.(?:pem|crt|key|mmdb|json))""#).unwrap();
    let text = absolute.replace_all(text, "\"$1\"");
    let file = directory.join("checked.toml");
    fs::write(&file, &*text).unwrap();
    let mut command = command(TIDEGATE);
    command.args(["check", "-c"]).arg(&file).env("NO_COLOR", "1");
    for variable in Regex::new(r"\$\{(\w+)\}").unwrap().captures_iter(&text) {
        let is_url = variable[1].ends_with("_URL");
        let secret = format!("hush-hush-hush-{}", &variable[1]);
        command.env(&variable[1], if is_url { "redis://127.0.0.1:6379" } else { &secret });
    }
    let output = command.output().unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(report) } else { Err(report) }
}

/// A configuration with what it leaves out: a listener, a route, and the limits and upstreams that it names.
fn completed(mut file: Table) -> Table {
    if !file.contains_key("listen") && !file.contains_key("listeners") {
        file.insert("listen".into(), "127.0.0.1:8080".into());
    }
    let keys = file.get("limits").map(ToString::to_string).unwrap_or_default();
    let tables = [
        ("jwt:", "jwt", "jwks = \"http://127.0.0.1:9/jwks\""),
        ("\"country\"", "geo", "country = \"GeoLite2-Country.mmdb\""),
        ("\"consumer\"", "consumers", "file = \"consumers.toml\""),
    ];
    for (part, name, table) in tables {
        if keys.contains(part) && !file.contains_key(name) {
            file.insert(name.into(), table.parse::<Table>().unwrap().into());
        }
    }
    let mut names = texts(file.get("default_limits"));
    let mut upstreams = Vec::new();
    let routes = file.entry("routes").or_insert_with(|| Value::Array(vec![Table::new().into()]));
    for route in routes.as_array_mut().unwrap() {
        let route = route.as_table_mut().unwrap();
        route.entry("path").or_insert_with(|| "/*".into());
        if !["upstream", "respond", "block"].iter().any(|key| route.contains_key(*key)) {
            route.insert("upstream".into(), SERVER.into());
        }
        names.extend(texts(route.get("limits")));
        let upstream = route.get("upstream").and_then(Value::as_str).filter(|name| !name.contains("://"));
        upstreams.extend(upstream.map(str::to_owned));
    }
    add(&mut file, "limits", &names, "rate = \"1/s\"");
    add(&mut file, "upstreams", &upstreams, &format!("servers = [\"{SERVER}\"]"));
    file
}

/// Adds a table of this kind for each name that has none.
fn add(file: &mut Table, kind: &str, names: &[String], content: &str) {
    if names.is_empty() {
        return;
    }
    let tables = file.entry(kind).or_insert_with(|| Table::new().into()).as_table_mut().unwrap();
    for name in names {
        tables.entry(name).or_insert_with(|| content.parse::<Table>().unwrap().into());
    }
}

/// The texts of an array.
fn texts(value: Option<&Value>) -> Vec<String> {
    let all = value.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}
