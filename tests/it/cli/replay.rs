//! `tidegate replay`: tables, JSON, arrivals, and what it says about logs that it can't read or that lack something.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::{Finished, tidegate, wrong};
use crate::support::trace::{ClientKind, Trace, TraceSettings, write_combined};

const LIMITS: &str = r#"
listen = "127.0.0.1:0"
[limits.per-client]
rate = "2/minute"
[limits.per-key]
rate = "100/hour"
key = "header:x-api-key"
on_missing = "skip"
[[routes]]
name = "api"
path = "/api/*"
limits = ["per-client", "per-key"]
respond = { status = 200 }
[[routes]]
name = "files"
path = "/files/*"
respond = { status = 200 }
"#;

/// Lines of nginx: a client that sends five requests at once each minute from 06:00, and another that sends one.
fn log() -> String {
    let mut log = String::new();
    for minute in 0..3 {
        for request in 0..5 {
            let target = if request == 4 { "/other" } else { "/api/items" };
            let time = format!("05/Jan/2026:06:{minute:02}:00 +0000");
            writeln!(log, "192.0.2.1 - - [{time}] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"curl/8\" \"k1\"")
                .unwrap();
        }
        let time = format!("05/Jan/2026:06:{minute:02}:30 +0000");
        writeln!(log, "192.0.2.2 - - [{time}] \"GET /files/a HTTP/1.1\" 200 5 \"-\" \"curl/8\" \"-\"")
            .unwrap();
    }
    log
}

fn replay(config: &str, log: &str, args: &[&str]) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), config).unwrap();
    std::fs::write(directory.path().join("access.log"), log).unwrap();
    let mut all = vec!["replay"];
    all.extend(args);
    all.push("access.log");
    tidegate(directory.path(), &all)
}

fn json(config: &str, log: &str, args: &[&str]) -> Value {
    let output = replay(config, log, &[args, &["--format", "json"]].concat());
    assert_eq!((output.status, &*output.stderr), (0, ""));
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
fn tables_show_what_limits_would_have_denied() {
    let output = replay(LIMITS, &log(), &[]);
    assert_eq!((output.status, &*output.stderr), (0, ""));
    let expected = "\
18 requests in 1 log (combined), 2026-01-05T06:00:00Z to 2026-01-05T06:02:30Z
note: the times of 18 requests have no fraction; their arrivals are spread evenly within their second, so bursts of less \
than a second can't be seen; suggestions take all requests of a key in one second for simultaneous

tidegate.toml:
REQUESTS           COUNT  SHARE
all                18     100.00 %
forwarded          9      50.00 %
denied by a limit  6      33.33 %
without a route    3      16.67 %

ROUTE  REQUESTS  DENIED  SHARE
api    12        6       50.00 %
files  3         0       0.00 %

LIMIT       NUMBERS   BY                REQUESTS  DENIED  SHARE    KEYS  DENIED KEYS  MOST DENIALS
per-client  2/minute  client_ip         12        6       50.00 %  1     1            2 in 1s from 2026-01-05T06:02:00Z
per-key     100/hour  header:x-api-key  0         0       0.00 %   0     0

Keys that per-client denies most
KEY        DENIED  FIRST                 LAST                  MOST IN THE HOURS (UTC)
192.0.2.1  6       2026-01-05T06:00:00Z  2026-01-05T06:02:00Z  06

note: limit per-key: no request of the log has header:x-api-key: add \"$http_x_api_key\" (nginx) or \
\\\"%{x-api-key}i\\\" (Apache) to the end of the format, and use --key-from header:x-api-key=extra2

";
    assert_eq!(output.stdout, expected);
}

#[test]
fn a_key_is_read_from_the_field_that_has_it() {
    let report = json(LIMITS, &log(), &["--key-from", "header:x-api-key=extra1"]);
    let limit = &report["configurations"][0]["limits"][1];
    assert_eq!(
        (&limit["name"], &limit["requests"], &limit["keys"]["count"]),
        (&"per-key".into(), &12.into(), &1.into())
    );
    assert_eq!(limit["missing"], Value::Array(Vec::new()));
    let lines =
        LIMITS.lines().map(|line| if line.starts_with("rate = \"100") { "rate = \"1/hour\"" } else { line });
    let config = lines.collect::<Vec<_>>().join("\n");
    let report = json(&config, &log(), &["--key-from", "extra1", "--anonymize"]);
    let denied = &report["configurations"][0]["limits"][1]["denied_keys_by_count"][0];
    assert_eq!((&denied["name"], &denied["denied"]), (&"key 1".into(), &11.into()));
}

/// A limit of 1,000 tokens a day.
const TOKENS: &str = r#"
listen = "127.0.0.1:0"
[limits.tokens]
algorithm = "fixed_window"
rate = "1000/day"
cost = "llm_tokens"
default_output = 100
[[routes]]
path = "/*"
limits = ["tokens"]
upstream = "http://127.0.0.1:9000"
"#;

/// How many requests a replay denies, and its notes.
fn denied_and_notes(config: &str, log: &str, args: &[&str]) -> (Value, Vec<String>) {
    let report = json(config, log, args);
    let configuration = &report["configurations"][0];
    let notes = configuration["notes"].as_array().unwrap().iter();
    let notes = notes.map(|note| note.as_str().unwrap().to_owned()).filter(|note| note.contains("cost"));
    (configuration["limits"][0]["denied"].clone(), notes.collect())
}

/// Requests one minute after the other, each of which takes a second.
fn lines(requests: &[&str]) -> String {
    let line = |(minute, rest): (usize, &&str)| {
        format!(
            "{{\"ts\":\"2026-01-05T06:{minute:02}:00Z\",\"ip\":\"192.0.2.1\",\"uri\":\"/v1\",\"took\":1{rest}}}\n"
        )
    };
    requests.iter().enumerate().map(line).collect()
}

const FIELDS: &str = "time=ts,client=ip,target=uri,duration=took,status=status";

/// The first two cost 300 and 600 tokens. What the third reserves, 50 and 100, does not fit into the rest.
#[test]
fn tokens_of_a_log_settle_what_was_reserved() {
    let log = lines(&[
        r#","prompt_tokens":200,"completion_tokens":100"#,
        r#","usage":{"input_tokens":500,"output_tokens":100}"#,
        r#","prompt_tokens":50,"completion_tokens":1"#,
        r#","prompt_tokens":50,"completion_tokens":1,"max_tokens":20"#,
    ]);
    assert_eq!(denied_and_notes(TOKENS, &log, &["--fields", FIELDS]), (1.into(), Vec::new()));
    let renamed = log.replace("prompt_tokens", "in").replace("completion_tokens", "out");
    let fields = format!("{FIELDS},field.prompt_tokens=in,field.completion_tokens=out");
    assert_eq!(denied_and_notes(TOKENS, &renamed, &["--fields", &fields]), (1.into(), Vec::new()));
}

#[test]
fn requests_of_unknown_cost_are_counted() {
    let log = lines(&["", r#","status":400"#, r#","prompt_tokens":7"#]);
    let (denied, notes) = denied_and_notes(TOKENS, &log, &["--fields", FIELDS]);
    assert_eq!(denied, 0);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("the log does not tell what 1 request cost limit tokens"), "{notes:?}");
}

/// The log of tidegate itself has the units, in both formats; seconds and bytes are in every log.
#[test]
fn the_own_log_has_the_units_of_each_limit() {
    let request = |minute: usize, rest: &str| {
        format!(
            "{{\"time\":\"2026-01-05T06:{minute:02}:00.000000Z\",\"client\":\"192.0.2.1\",\"method\":\"POST\",\
             \"host\":\"a\",\"target\":\"/v1\",\"status\":200,\"bytes\":400,\"took_us\":1500000{rest}}}\n"
        )
    };
    let settled = r#","cost":{"tokens":450,"other":1},"reserved":{"tokens":900}"#;
    let log: String = (0..3).map(|minute| request(minute, settled)).collect();
    // 450 are left after the first: the second and the third do not fit.
    assert_eq!(denied_and_notes(TOKENS, &log, &[]), (2.into(), Vec::new()));
    let line = |minute| {
        format!(
            "2026-01-05T06:{minute:02}:00.000000Z 192.0.2.1 \"POST a/v1\" 200 400B 1500000us cost.tokens=\"450\" \
             reserved.tokens=\"900\"\n"
        )
    };
    let text: String = (0..3).map(line).collect();
    assert_eq!(denied_and_notes(TOKENS, &text, &[]), (2.into(), Vec::new()));
    let by = |source: &str| {
        TOKENS.replace(
            "\"llm_tokens\"\ndefault_output = 100",
            &format!("{{ reserve = 1, settle = \"{source}\" }}"),
        )
    };
    let plain: String = (0..5).map(|minute| request(minute, "")).collect();
    // 400 bytes each: after three the key owes 200.
    assert_eq!(denied_and_notes(&by("response_bytes"), &plain, &[]), (2.into(), Vec::new()));
    let config = by("seconds").replace("1000/day", "3/day");
    assert_eq!(denied_and_notes(&config, &plain, &[]), (3.into(), Vec::new()));
    let emitted = replay(&by("response_bytes"), &plain, &["--emit-arrivals", "tokens"]);
    let first = emitted.stdout.lines().next().unwrap();
    assert!(first.ends_with(" 192.0.2.1 1 1.500000 settle=400"), "{first}");
}

#[test]
fn the_client_is_read_from_the_field_that_has_it() {
    let log = log().replace("\"k1\"", "\"203.0.113.7, 192.0.2.1\"");
    let config = format!("{LIMITS}\n[client_ip]\ntrusted_proxies = [\"192.0.2.0/24\"]\n");
    let report = json(&config, &log, &["--client-from", "extra1"]);
    let limit = &report["configurations"][0]["limits"][0];
    assert_eq!(limit["denied_keys_by_count"][0]["name"], "203.0.113.7");
    // A dash is no address, so the client is the one that the server has seen.
    assert_eq!(report["configurations"][0]["requests"]["unplayed"], serde_json::json!({}));
}

#[test]
fn two_configurations_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("now.toml", LIMITS);
    write("new.toml", &LIMITS.replace("2/minute", "3/minute"));
    write("access.log", &log());
    let output =
        tidegate(directory.path(), &["replay", "-c", "now.toml", "--compare", "new.toml", "access.log"]);
    let comparison = output.stdout.split("COMPARISON").nth(1).unwrap();
    let expected = [
        "                         now.toml       new.toml",
        "forwarded                          9 (50.00 %)    12 (66.67 %)",
        "denied by a limit                  6 (33.33 %)    3 (16.67 %)",
        "not forwarded for other reasons    3 (16.67 %)    3 (16.67 %)",
        "denied by per-client               6 of 1 keys    3 of 1 keys",
        "denied by per-key                  0 of 0 keys    0 of 0 keys",
    ];
    let lines: Vec<&str> = comparison.lines().filter(|line| !line.is_empty()).collect();
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(lines.iter().map(|line| squeezed(line)).collect::<Vec<_>>(), expected.map(squeezed));
}

#[test]
fn emitted_arrivals_are_those_of_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), LIMITS).unwrap();
    std::fs::write(directory.path().join("access.log"), log()).unwrap();
    let emitted = tidegate(directory.path(), &["replay", "--emit-arrivals", "per-client", "access.log"]);
    assert_eq!(emitted.status, 0, "{}", emitted.stderr);
    let first = emitted.stdout.lines().next().unwrap();
    assert_eq!(first, "1767592800.000000 192.0.2.1 1 0.000000");
    let arrivals = directory.path().join("arrivals.txt");
    std::fs::write(&arrivals, &emitted.stdout).unwrap();
    let file = arrivals.to_str().unwrap();
    let played = tidegate(
        directory.path(),
        &["simulate", "--limit", "per-client", "--format", "jsonl", "--arrivals", file],
    );
    let lines: Vec<Value> = played.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let denied = lines.iter().filter(|line| line["allowed"] == false).count();
    assert_eq!((lines.len(), denied), (12, 6), "{}", played.stderr);
    let unknown = tidegate(directory.path(), &["replay", "--emit-arrivals", "per-clint", "access.log"]);
    assert_eq!(
        unknown,
        wrong("error: --emit-arrivals: unknown limit `per-clint`; did you mean `per-client`?\n")
    );
}

#[test]
fn unreadable_lines_are_counted_and_shown() {
    let mut log = log();
    log.insert_str(log.len() / 2, "\nnot a \u{1b}[31mline\n");
    let output = replay(LIMITS, &log, &[]);
    assert_eq!(output.status, 0);
    assert!(output.stdout.contains("lines can't be read; the first are\n  access.log:"), "{}", output.stdout);
    assert!(output.stdout.contains("not a \\u001b[31mline") && !output.stdout.contains('\u{1b}'));
    let (_, end) = output.stdout.rsplit_once("\nwarning: ").unwrap();
    assert!(end.ends_with(" lines can't be read, so these numbers are of the others\n\n"), "{end}");
}

#[test]
fn wrong_arguments_are_errors_with_a_cure() {
    let error = |args: &[&str]| {
        let output = replay(LIMITS, &log(), args);
        assert_eq!((output.status, &*output.stdout), (2, ""));
        output.stderr
    };
    assert_eq!(
        error(&["--log-format", "caddy-json"]),
        "error: access.log: the lines are not in the format `caddy-json` (column 6: trailing characters), but in \
         `combined`\n"
    );
    assert!(error(&["--log-format", "combine"]).contains("did you mean combined?"));
    assert!(error(&["--deny-at-most", "200%"]).contains("a share is from 0 to less than 100%"));
    assert!(error(&["--key-from", "path=user"]).contains("`path` is in every log"));
    assert!(error(&["--key-from", "apikey=user"]).contains("`apikey` is not a part of a key"));
    assert!(error(&["missing.log"]).contains("can't read missing.log"));
    let compressed = replay(LIMITS, "BZh91AY&SY", &[]);
    assert_eq!(
        compressed.stderr,
        "error: access.log: the log is compressed with bzip2: decompress it first, for example with `bunzip2 -k FILE`\n"
    );
    let text = replay(LIMITS, "hello\nworld\n", &[]);
    assert!(text.stderr.contains("the lines are in no known format"), "{}", text.stderr);
}

/// Three days with a crawler.
fn trace(directory: &Path) {
    let settings = TraceSettings {
        clients: vec![(ClientKind::Browser, 200), (ClientKind::Crawler, 1)],
        days: 3,
        ..TraceSettings::default()
    };
    let mut log = Vec::new();
    write_combined(&Trace::generate(&settings), &mut log).unwrap();
    std::fs::write(directory.join("trace.log"), log).unwrap();
}

#[test]
fn suggestions_need_no_configuration() {
    let directory = tempfile::tempdir().unwrap();
    trace(directory.path());
    let output = tidegate(directory.path(), &["replay", "--deny-at-most", "1%", "trace.log"]);
    assert_eq!(output.status, 0, "{}", output.stderr);
    for expected in ["all, by client_ip: ", "Least burst for each rate", "[limits.all-minute]", "held back"] {
        assert!(output.stdout.contains(expected), "{expected}: {}", output.stdout);
    }
    // The snippet is a configuration.
    let snippet = output.stdout.split("\n# Chosen").nth(1).unwrap();
    let names = snippet.lines().find(|line| line.starts_with("#   limits = ")).unwrap();
    let route = format!("[[routes]]\npath = \"/*\"\n{}\nrespond = {{ status = 200 }}\n", &names[4..]);
    let config = format!("listen = \"127.0.0.1:0\"\n# Chosen{snippet}\n{route}");
    std::fs::write(directory.path().join("new.toml"), config).unwrap();
    let report = tidegate(directory.path(), &["replay", "-c", "new.toml", "--format", "json", "trace.log"]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let denied: Vec<u64> = report["configurations"][0]["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["denied_keys"]["count"].as_u64().unwrap())
        .collect();
    // The crawler, and at most one more client in a hundred.
    assert!(denied.iter().any(|keys| *keys > 0) && denied.iter().all(|keys| *keys <= 4), "{denied:?}");
}

#[test]
fn slots_are_suggested_from_the_requests_in_flight() {
    let slots = "[limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\nkey = \"global\"";
    let route = "[[routes]]\npath = \"/*\"\nlimits = [\"slots\"]\nrespond = { status = 200 }\n";
    let config = format!("listen = \"127.0.0.1:0\"\n{slots}\n{route}");
    let line = |at: u32, seconds: u32| {
        format!("{{\"ts\":{at}.0,\"ip\":\"192.0.2.1\",\"url\":\"/a\",\"took\":{seconds}}}\n")
    };
    let log: String =
        [(100, 10), (101, 10), (102, 1), (103, 1), (120, 1)].map(|(at, took)| line(at, took)).concat();
    let fields = "time=ts,client=ip,target=url,duration=took";
    let report = json(&config, &log, &["--fields", fields, "--suggest", "--deny-at-most", "0"]);
    let found = &report["configurations"][0]["slots"][0];
    assert_eq!((&found["peaks"]["max"], &found["suggested"]), (&3.into(), &4.into()));
    assert_eq!((&found["current"], &found["current_exceeded_by"]), (&1.into(), &1.into()));
    let denied = &report["configurations"][0]["limits"][0]["denied"];
    // The slot is free again before the last one alone.
    assert_eq!(denied, 3);
}

/// Reports a log of one client on a configuration with consumers, and the counts of its only configuration.
#[test]
fn consumers_and_blocking_routes_reject_requests() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("consumers.toml", "[acme]\ncredentials = [\"k1\"]\n");
    write(
        "tidegate.toml",
        "listen = \"127.0.0.1:0\"\n[consumers]\nfile = \"consumers.toml\"\ncredential = \"header:x-api-key\"\n\
         [[routes]]\npath = \"/files/*\"\nblock = true\n\
         [[routes]]\npath = \"/*\"\nrespond = { status = 200 }\n",
    );
    write("access.log", &log());
    let counts = |key_from: &str| {
        let args = ["replay", "--format", "json", "--key-from", key_from, "access.log"];
        let output = tidegate(directory.path(), &args);
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        report["configurations"][0]["requests"].clone()
    };
    let by_credential = counts("header:x-api-key=extra1");
    assert_eq!(by_credential["forwarded"], 15);
    assert_eq!(by_credential["rejected"]["the route blocks all requests"], 3);
    // No consumer has the name `k1`.
    let by_name = counts("consumer=extra1");
    assert_eq!(
        (&by_name["forwarded"], &by_name["rejected"]["the request has no credential"]),
        (&0.into(), &15.into())
    );
}

#[test]
fn fields_that_no_line_has_are_named() {
    let output = replay(LIMITS, &log(), &["--key-from", "header:x-api-key=nokey"]);
    assert!(output.stdout.contains("note: no line of the logs has the field `nokey`"), "{}", output.stdout);
    let output = replay(LIMITS, &log(), &["--client-from", "nofield"]);
    assert_eq!(output.status, 2);
    assert!(output.stdout.contains("not played: without an address of the client"), "{}", output.stdout);
    assert!(output.stderr.contains("no request of the logs could be played"), "{}", output.stderr);
    let output = replay(LIMITS, "", &[]);
    assert_eq!(output.stderr, "error: LOG: the logs have no lines\n");
}

#[test]
fn a_host_is_named_for_a_log_that_has_none() {
    let config = LIMITS.replace("path = \"/api/*\"", "path = \"/api/*\"\nhost = \"api.example.com\"");
    let output = replay(&config, &log(), &[]);
    assert!(output.stdout.contains("the log has no host"), "{}", output.stdout);
    let report = json(&config, &log(), &["--host", "api.example.com"]);
    assert_eq!(report["configurations"][0]["limits"][0]["denied"], 6);
}
