//! Limits by tokens, as the packages of language models see them: `openai`, `anthropic`, `google-genai` and `ollama`, against a
//! server that has the APIs of all of them.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::keys::keys;
use crate::support::{Client, RedisServer, Relay, Tidegate, WebServer, command, over_both_stores};

/// The APIs, and the tokens of input of their requests.
const APIS: [(&str, u64); 5] =
    [("chat", 10), ("responses", 1), ("anthropic", 10), ("gemini", 1), ("ollama", 10)];

/// The limits by all tokens, and by those of the output and of the reasoning alone. Each case has its own key.
const LIMITS: [&str; 3] = ["tokens", "output", "reasoning"];

struct Model {
    server: WebServer,
}

impl Model {
    fn start() -> Self {
        let ready = b"GET /seen HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let script = format!("{}/tests/model/server.py", env!("CARGO_MANIFEST_DIR"));
        // Debian's Python, for which `scripts/setup` installs the packages; another one may come first in PATH.
        let arguments = |_: &_, port: u16| vec![script.clone(), port.to_string()];
        Self { server: WebServer::start("/usr/bin/python3", ready, arguments) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.addr(Ipv4Addr::LOCALHOST.into()))
    }

    /// A file with these limits, in which the cases have `lines` more.
    fn config(&self, rate: &str, lines: &str) -> String {
        let cost = ["\"llm_tokens\"", "{ llm = { output = 1 } }", "{ llm = { reasoning = 1 } }"];
        let limit = |(name, cost): (&&str, &str)| {
            format!(
                "[limits.{name}]\nalgorithm = \"fixed_window\"\nrate = \"{rate}\"\nkey = \"header:x-case\"\n\
                 cost = {cost}\n{lines}\n"
            )
        };
        let limits: String = LIMITS.iter().zip(cost).map(limit).collect();
        format!(
            "{limits}[[routes]]\npath = \"/*\"\nlimits = {LIMITS:?}\nupstream = \"{}\"\n\
             [log]\naccess = \"json\"\nheaders = [\"x-case\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n",
            self.url()
        )
    }
}

/// What the packages say of these cases.
fn ask(url: &str, cases: &[String]) -> Vec<Value> {
    let script = format!("{}/tests/model/clients.py", env!("CARGO_MANIFEST_DIR"));
    let output = command("/usr/bin/python3").arg(script).arg(url).args(cases).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), cases.len(), "{errors}");
    lines
}

/// The access log of these cases, by their names.
fn logged(proxy: &Tidegate, cases: &[String]) -> HashMap<String, Value> {
    let lines = proxy.accesses(cases.len());
    let line = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["headers"]["x-case"].as_str()?.to_owned(), line).into()
    };
    lines.iter().filter_map(line).collect()
}

/// Each API with these features and ends.
fn cases(features: &[&str]) -> Vec<String> {
    let all = APIS.iter().flat_map(|(api, _)| features.iter().map(move |feature| format!("{api}{feature}")));
    all.collect()
}

fn input(case: &str) -> u64 {
    APIS.iter().find(|(api, _)| case.starts_with(api)).unwrap().1
}

/// Compares the settled units with what the operator sees.
fn compare_with_operator(proxy: &Tidegate, logged: &HashMap<String, Value>, capacity: u64) {
    for limit in LIMITS {
        let mut sum = 0;
        for (case, line) in logged {
            let cost = line["cost"][limit].as_u64().unwrap();
            let left = capacity.saturating_sub(cost);
            let shown = keys(proxy, &["peek", limit, case]);
            assert!(shown.contains(&format!(" {left} of {capacity} ")), "{case}: {cost} units, {shown}");
            sum += cost;
        }
        let units = |outcome| {
            proxy.metric(&format!("tidegate_settled_units_total{{limit=\"{limit}\",outcome=\"{outcome}\"}}"))
        };
        assert_eq!(units("settled"), sum);
        assert_eq!(units("reserved") + units("extra") - units("refunded"), sum);
        assert_eq!(units("cut"), 0);
    }
}

#[test]
fn responses_are_unchanged_and_charged_with_their_tokens() {
    let model = Model::start();
    let features = ["", "+tools", "+reasoning", "+stream", "+stream+tools", "+stream+reasoning"];
    let mut cases = cases(&features);
    // OpenAI's streams do not say what they cost otherwise.
    cases.iter_mut().filter(|case| case.starts_with("chat+stream")).for_each(|case| case.push_str("+usage"));
    cases.push("embeddings".to_owned());
    let direct = ask(&model.url(), &cases);
    assert!(direct.iter().all(|line| line["error"] == Value::Null), "{direct:#?}");
    over_both_stores(&model.config("10000/day", ""), |proxy| {
        assert_eq!(ask(&proxy.url(""), &cases), direct);
        let logged = logged(proxy, &cases);
        for case in &cases {
            let expected = if case == "embeddings" {
                json!({ "tokens": 4, "output": 0, "reasoning": 0 })
            } else {
                let reasoning = u64::from(case.contains("+reasoning") && !case.starts_with("ollama")) * 2;
                json!({ "tokens": input(case) + 5, "output": 5, "reasoning": reasoning })
            };
            assert_eq!(logged[case]["cost"], expected, "{case}");
            // The maximum of the request, or `default_output`.
            let output = if case == "embeddings" { 1024 } else { 50 };
            assert_eq!(logged[case]["reserved"]["output"], output, "{case}");
        }
        compare_with_operator(proxy, &logged, 10_000);
    });
}

#[test]
fn streams_without_usage_are_charged_with_the_tokens_that_have_passed() {
    let model = Model::start();
    // The client of a case with `leave` gets all but the last token.
    let (cut, left) = (cases(&["+stream:20:cut"]), cases(&["+stream:20:leave"]));
    let silent =
        ["chat+stream", "responses+stream:20:silent", "gemini+stream:20:silent", "ollama+stream:20:silent"];
    let silent = silent.map(str::to_owned);
    let all = [&cut[..], &left, &silent].concat();
    let proxy = Tidegate::start(&model.config("10000/day", ""));
    let lines = ask(&proxy.url(""), &all);
    let logged = logged(&proxy, &all);
    for (case, line) in all.iter().zip(&lines) {
        let words = line["text"].as_str().unwrap().matches("word ").count();
        let expected = match () {
            () if cut.contains(case) => (10, false),
            () if left.contains(case) => (19, true),
            () if case == "chat+stream" => (5, true),
            () => (20, true),
        };
        assert_eq!((words, line["error"] == Value::Null), expected, "{line:#}");
        assert_eq!(logged[case]["cost"]["output"], words, "{case}: {:#}", logged[case]);
    }
    compare_with_operator(&proxy, &logged, 10_000);
}

#[test]
fn the_reservation_stays_of_responses_that_do_not_tell_their_cost() {
    let model = Model::start();
    let cases = cases(&[":20:cut", ":20:silent"]);
    let proxy = Tidegate::start(&model.config("10000/day", ""));
    let lines = ask(&proxy.url(""), &cases);
    let logged = logged(&proxy, &cases);
    for (case, line) in cases.iter().zip(&lines) {
        assert_eq!(line["error"] != Value::Null, case.ends_with("cut"), "{line:#}");
        assert_eq!(logged[case]["cost"], logged[case]["reserved"], "{case}");
    }
    compare_with_operator(&proxy, &logged, 10_000);
    for limit in LIMITS {
        // A response that was cut is not one that says nothing.
        let unknown = format!("tidegate_settle_unknown_total{{limit=\"{limit}\",reason=\"absent\"}}");
        assert_eq!(proxy.metric(&unknown), 5);
    }
}

#[test]
fn packages_know_a_denial_and_its_wait() {
    let model = Model::start();
    let denied = r#"
        [answers.denied]
        content_type = "application/json"
        body = '{"error": {"message": "{detail}", "type": "tokens", "param": null, "code": "rate_limit_exceeded"}}'
    "#;
    let proxy = Tidegate::start(&(model.config("5/day", "") + denied));
    let cases = cases(&["", "+stream"]);
    let used_up = ask(&proxy.url(""), &cases);
    assert!(used_up.iter().all(|line| line["error"] == Value::Null), "{used_up:#?}");
    // What was charged in addition is a debt.
    for (case, line) in cases.iter().zip(ask(&proxy.url(""), &cases)) {
        let (error, status) = match case.split('+').next().unwrap() {
            "gemini" => ("ClientError", &line["code"]),
            "ollama" => ("ResponseError", &line["status"]),
            _ => ("RateLimitError", &line["status"]),
        };
        assert_eq!((&line["error"], status), (&json!(error), &json!(429)), "{line:#}");
        assert!(line["message"].as_str().unwrap().contains("used up"), "{line:#}");
        // The package `ollama` does not show headers.
        if !case.starts_with("ollama") {
            let wait: u64 = line["retry_after"].as_str().unwrap().parse().unwrap();
            assert!((1..=86_400).contains(&wait), "{line:#}");
        }
        if case.starts_with("chat") || case.starts_with("responses") {
            assert_eq!((&line["code"], &line["type"]), (&json!("rate_limit_exceeded"), &json!("tokens")));
        }
    }
}

#[test]
fn packages_know_a_stream_that_was_stopped_at_the_budget() {
    let model = Model::start();
    // The server sends as fast as it can, and waits before the last token.
    let cases = cases(&["+stream:5000:wait"]);
    let settings = "stop_streams = true\nestimate = 0.01";
    over_both_stores(&model.config("1000/day", settings), |proxy| {
        let lines = ask(&proxy.url(""), &cases);
        let logged = logged(proxy, &cases);
        for (case, line) in cases.iter().zip(&lines) {
            let (code, kind) = match case.split('+').next().unwrap() {
                "anthropic" => (Value::Null, json!("rate_limit_error")),
                "gemini" => (json!(429), json!("RESOURCE_EXHAUSTED")),
                "ollama" => (Value::Null, Value::Null),
                _ => (json!("rate_limit_exceeded"), json!("tokens")),
            };
            assert_ne!(line["error"], Value::Null, "{case}");
            assert_eq!((&line["code"], &line["type"]), (&code, &kind), "{line:#}");
            assert!(line["message"].as_str().unwrap().contains("used up"), "{line:#}");
            // What the client has got is what it pays for.
            let words = line["text"].as_str().unwrap().matches("word ").count();
            assert_eq!(logged[case]["cost"]["output"], words, "{case}");
            assert!((744..5000).contains(&words), "{case}: {words} words");
        }
    });
}

#[test]
fn a_stream_that_pauses_after_a_burst_is_stopped_at_the_budget() {
    let model = Model::start();
    let (redis, case) = (RedisServer::start(), "ollama+stream:5000:wait".to_owned());
    let relay = Relay::to(redis.addr());
    let config = model.config("2000/day", "stop_streams = true\nestimate = 0.01");
    let proxy = Tidegate::builder(&config).store_at(&relay.url(), "timeout = \"5s\"").start();
    // The first step is granted, and all tokens but the last arrive before its decision does.
    relay.delay(Duration::from_millis(300));
    let lines = ask(&proxy.url(""), std::slice::from_ref(&case));
    assert_ne!(lines[0]["error"], Value::Null, "{}", lines[0]);
    let words = lines[0]["text"].as_str().unwrap().matches("word ").count();
    assert_eq!(logged(&proxy, std::slice::from_ref(&case))[&case]["cost"]["output"], words);
}

#[test]
fn the_event_that_ends_a_stream_has_the_next_number() {
    let model = Model::start();
    let proxy = Tidegate::start(&model.config("1000/day", "stop_streams = true\nestimate = 0.01"));
    let body = r#"{"model": "gpt-4o", "input": "Say it.", "stream": true, "max_output_tokens": 5000}"#;
    let response = Client::connect(proxy.addr()).ask(&format!(
        "POST /v1/responses HTTP/1.1\r\nHost: a\r\nX-Case: numbers\r\nX-Output: 5000\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let events = response.text().lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.map(|event| serde_json::from_str(event).unwrap()).collect();
    let numbers: Vec<usize> =
        events.iter().map(|event| event["sequence_number"].as_u64().unwrap().try_into().unwrap()).collect();
    assert_eq!(events.last().unwrap()["code"], "rate_limit_exceeded");
    assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>());
}
