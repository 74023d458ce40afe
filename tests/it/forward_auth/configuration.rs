//! The keys of decisions in the file, and `tidegate explain`.

use tidegate::config;

use super::setup::{ASKING, ask};
use crate::support::{TIDEGATE, Tidegate, command};

/// The errors or the warnings of a file.
fn report(text: &str) -> Result<String, String> {
    let loaded = config::parse(text, "tidegate.toml", &|_| None);
    loaded.map(|loaded| loaded.warnings.to_string()).map_err(|report| report.to_string())
}

/// Limits that need to know more of a request than a decision does.
const UNKNOWN: [(&str, &str); 3] = [
    ("algorithm = \"concurrency\"\nmax_in_flight = 5", "a decision holds no slot"),
    ("rate = \"5/s\"\ncharge_on = [401]", "whatever `charge_on` is"),
    ("rate = \"5/s\"\nkey = [\"client_ip\", \"body:/user\"]", "`body:/user` is always missing"),
];

fn with_limit(head: &str, limit: &str) -> String {
    format!(
        "{head}[limits.one]\n{limit}\n[[routes]]\npath = \"/*\"\nlimits = [\"one\"]\n\
         upstream = \"http://127.0.0.1:9\"\n"
    )
}

#[test]
fn limits_that_decisions_cannot_apply_are_named() {
    for (limit, problem) in UNKNOWN {
        let error = report(&with_limit(ASKING, limit)).unwrap_err();
        assert!(error.starts_with("error: ") && error.contains(problem), "{error}");
        let both = format!("[[listeners]]\naddress = \"127.0.0.1:1\"\n{ASKING}");
        let warning = report(&with_limit(&both, limit)).unwrap();
        assert!(warning.contains("warning: ") && warning.contains(problem), "{warning}");
        let none = "listen = \"127.0.0.1:0\"\n";
        assert!(!report(&with_limit(none, limit)).unwrap().contains("decision"), "{limit}");
    }
}

#[test]
fn keys_without_effect_are_errors() {
    let untrusted = ASKING.replace("[\"127.0.0.9\"]", "[]");
    let route = "[[routes]]\npath = \"/*\"\n";
    let plain = "listen = \"127.0.0.1:0\"\n";
    let trusted = format!("{plain}[client_ip]\ntrusted_proxies = [\"127.0.0.9\"]\n");
    for (text, problem) in [
        (format!("{untrusted}{route}respond = {{}}"), "no request could be decided: this listener"),
        (format!("{plain}{route}respond = \"decide\""), "no request could be decided: this route"),
        (
            format!(
                "{trusted}limits.one = {{ rate = \"1/s\" }}\n{route}respond = \"decide\"\nlimits = [\"one\"]"
            ),
            "would count the authorization requests",
        ),
        (
            format!("{trusted}{route}respond = \"decide\"\ndeny_status = \"close\""),
            "a proxy that asks for a decision needs a response to each denial",
        ),
        (
            format!("[[listeners]]\naddress = \"127.0.0.1:0\"\ndeny_status = 403\n{route}respond = {{}}"),
            "`deny_status` is for authorization requests",
        ),
        (format!("{trusted}{route}respond = \"decide\"\ndeny_status = 200"), "deny_status"),
        (format!("{trusted}{route}respond = \"decide\"\nrewrite = {{ strip_prefix = \"/a\" }}"), "`rewrite`"),
    ] {
        let error = report(&text).expect_err(&text);
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(report(&format!("{trusted}{route}respond = \"decide\"\ndeny_status = 401")).unwrap(), "");
}

/// What the warnings say: units are charged whatever the status is, and a slot is free again at once.
#[test]
fn what_a_decision_does_not_know_is_as_documented() {
    for (index, expected) in [(0, [200; 3]), (1, [200, 200, 429])] {
        let limit = UNKNOWN[index].0.replace("= 5", "= 2").replace("5/s", "2/hour");
        let both = format!("{ASKING}[[listeners]]\naddress = \"127.0.0.1:0\"\n");
        let proxy = Tidegate::start(&with_limit(&both, &limit));
        assert_eq!([0; 3].map(|_| ask(proxy.addr(), "GET a /", "192.0.2.1", &[]).status()), expected);
    }
}

#[test]
fn explain_shows_the_decision() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let text = "listen = \"127.0.0.1:0\"\n[client_ip]\ntrusted_proxies = [\"127.0.0.9\"]\n\
        limits.one = { rate = \"1/s\" }\n\
        [[routes]]\npath = \"/decide\"\nrespond = \"decide\"\n\
        [[routes]]\nname = \"orders\"\npath = \"/orders\"\nlimits = [\"one\"]\nupstream = \"http://127.0.0.1:9\"\n\
        [[routes]]\npath = \"/secret\"\nblock = true\n"
        .replace("limits.one = { rate = \"1/s\" }\n", "[limits.one]\nrate = \"1/s\"\n");
    std::fs::write(&file, text).unwrap();
    let explain = |from: &str, target: &str, more: &[&str]| {
        let target = format!("X-Forwarded-Uri: {target}");
        let output = command(TIDEGATE)
            .args(["explain", "-c"])
            .arg(&file)
            .args(["GET", "/decide", "--from", from, "-H", "X-Forwarded-Method: PUT", "-H"])
            .args(["X-Forwarded-Host: a.test", "-H", "X-Forwarded-For: 192.0.2.1", "-H", &target])
            .args(more)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = explain("127.0.0.9", "/orders?x=1", &[]);
    for part in [
        "original  PUT /orders?x=1 of a.test",
        "host      a.test",
        "client    192.0.2.1",
        "route     orders: path /orders",
        "limit     one:",
        "decision  200 OK",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let refused = explain("127.0.0.8", "/orders", &[]);
    assert!(refused.contains("response  403 Forbidden: decisions are for trusted proxies only"), "{refused}");
    let malformed = explain("127.0.0.9", "orders", &[]);
    assert!(
        malformed
            .contains("response  400 Bad Request: the authorization request must have exactly one valid"),
        "{malformed}"
    );
    let kind = |target| {
        let json: serde_json::Value =
            serde_json::from_str(&explain("127.0.0.9", target, &["--json"])).unwrap();
        (json["route"].clone(), json["response"]["kind"].clone())
    };
    assert_eq!(kind("/orders"), ("orders".into(), "allow".into()));
    assert_eq!(kind("/secret").1, "block");
    assert_eq!(kind("/decide").1, "reject");
}

#[test]
fn explain_knows_listeners_that_decide() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tidegate.toml");
    let listener = ASKING.replace("\"decide\"\n", "\"decide\"\ndeny_status = 403\n");
    let routes = "[limits.one]\nrate = \"1/s\"\n\
        [[routes]]\nname = \"orders\"\npath = \"/orders\"\nlimits = [\"one\"]\nupstream = \"http://127.0.0.1:9\"\n\
        [[routes]]\npath = \"/secret\"\nblock = true\n";
    let explain = |head: &str, arguments: &[&str]| {
        std::fs::write(&file, format!("{head}{routes}")).unwrap();
        let explain = ["explain", "-c", file.to_str().unwrap()];
        let output = command(TIDEGATE).args(explain).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let described = ["X-Forwarded-Method: PUT", "X-Forwarded-Host: a.test", "X-Forwarded-For: 192.0.2.1"];
    let authorization = |from: &'static str| {
        let headers = described.iter().flat_map(|header| ["-H", header]);
        let target = ["-H", "X-Forwarded-Uri: /orders"];
        ["GET", "/any", "--from", from].into_iter().chain(headers).chain(target).collect::<Vec<_>>()
    };
    let decision = "decision  200 OK if the request passes";
    let denial = "denial    403 Forbidden, with the status above in X-Tidegate-Status";
    let text = explain(&listener, &authorization("127.0.0.9"));
    for part in
        ["original  PUT /orders of a.test", "client    192.0.2.1", "route     orders:", decision, denial]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(
        explain(&listener, &authorization("127.0.0.8")).contains("response  403 Forbidden: decisions are")
    );
    // The original request itself.
    let text = explain(&listener, &["GET", "https://a.test/orders"]);
    assert!(text.contains("route     orders:") && text.contains(decision), "{text}");
    assert!(!text.contains("original"), "{text}");
    let kind = |arguments: &[&str]| {
        let json: serde_json::Value =
            serde_json::from_str(&explain(&listener, &[arguments, &["--json"]].concat())).unwrap();
        json["response"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!([kind(&["GET", "/orders"]), kind(&["GET", "/secret"])], ["allow", "block"]);
    assert_eq!(kind(&authorization("127.0.0.9")), "allow");
    assert_eq!(kind(&authorization("127.0.0.8")), "reject");
    // Beside a listener that forwards, the request is one that it forwards.
    let both = format!("[[listeners]]\naddress = \"127.0.0.1:1\"\n{listener}");
    assert!(!explain(&both, &["GET", "/orders"]).contains("decision"));
}
