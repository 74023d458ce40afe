//! `tidegate replay --suggest`: what limits count, wrong dates, small logs, and lines for the configuration.

use std::path::Path;

use serde_json::Value;

use super::{Finished, tidegate};

/// The second of 5 January 2026 at midnight.
const START: i64 = 1_767_571_200;

/// A line of the combined format.
fn line(second: i64, client: &str, status: u16) -> String {
    let time = jiff::Timestamp::from_second(second).unwrap().strftime("%d/%b/%Y:%H:%M:%S +0000");
    format!("{client} - - [{time}] \"GET /a HTTP/1.1\" {status} 5 \"-\" \"curl/8\"\n")
}

/// The lines of these requests, by their seconds after the start.
fn lines(requests: impl IntoIterator<Item = (i64, String, u16)>) -> String {
    let mut requests: Vec<_> = requests.into_iter().collect();
    requests.sort();
    requests.into_iter().map(|(second, client, status)| line(START + second, &client, status)).collect()
}

fn replay(directory: &Path, args: &[&str]) -> Finished {
    let output = tidegate(directory, &[&["replay", "--suggest"], args, &["access.log"]].concat());
    // On a busy machine it reports its progress.
    assert_eq!(output.status, 0, "{}", output.stderr);
    output
}

/// The report on the only configuration.
fn report(directory: &Path, args: &[&str]) -> Value {
    let output = replay(directory, &[args, &["--format", "json"]].concat());
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    report["configurations"][0].clone()
}

const ROUTE: &str = "[[routes]]\npath = \"/*\"\nlimits = [\"sign-in\"]\nrespond = { status = 200 }\n";
const SIGN_IN: &str = r#"# Failed attempts.
[limits.sign-in] # by address
rate = "5/minute"
burst = 10
charge_on = [401]
cost = 2
on_missing = "skip"
allow = ["198.51.100.0/24"]
ban = { after = 20, within = "1m", for = "10m" }
[limits.sign-in.overrides]
"203.0.113.9" = { rate = "1000/minute" }
"#;

/// Each of 300 clients signs in 40 times within a minute, and fails twice; a client with an override fails often.
fn attempts() -> String {
    let client = |client: i64| format!("192.0.{}.{}", client / 200, client % 200);
    let succeeded = (0..300).flat_map(move |n| (0..40).map(move |second| (n * 30 + second, client(n), 200)));
    let failed = (0..300).flat_map(move |n| [45, 50].map(|second| (n * 30 + second, client(n), 401)));
    let own = (0..9_000).step_by(3).map(|second| (second, "203.0.113.9".to_owned(), 401));
    let allowed = (0..9_000).step_by(3).map(|second| (second, "198.51.100.1".to_owned(), 401));
    lines(succeeded.chain(failed).chain(own).chain(allowed))
}

#[test]
fn a_suggestion_measures_what_a_limit_counts_and_keeps_all_of_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("tidegate.toml", &format!("listen = \"127.0.0.1:0\"\n{SIGN_IN}\n{ROUTE}"));
    write("access.log", &attempts());
    let configuration = report(directory.path(), &["--deny-at-most", "0"]);
    assert_eq!(configuration["limits"][0]["denied"], 0);
    let suggestion = &configuration["suggestions"][0];
    assert_eq!((&suggestion["requests"], &suggestion["clients"]["keys"]), (&600.into(), &300.into()));
    assert_eq!(suggestion["subject"]["uncharged"], 12_000);
    assert_eq!(suggestion["subject"]["with_own_numbers"], 3_000);
    assert_eq!(
        (&suggestion["current"]["denied_clients"], &suggestion["held_back"]["denied_clients"]),
        (&0.into(), &0.into())
    );
    // Two failed attempts cost four units at once, which two units a minute with a burst of four have.
    let expected = SIGN_IN.replace("5/minute", "3/minute").replace("burst = 10", "burst = 6");
    let toml = suggestion["toml"].as_str().unwrap();
    assert!(toml.ends_with(&format!("\n# In place of [limits.sign-in]:\n\n{expected}")), "{toml}");
    write("tidegate.toml", &format!("listen = \"127.0.0.1:0\"\n{toml}\n{ROUTE}"));
    let again = report(directory.path(), &[]);
    assert_eq!(
        (&again["limits"][0]["numbers"], &again["limits"][0]["denied"]),
        (&"3/minute, burst 6".into(), &0.into())
    );
    let text = replay(directory.path(), &[]).stdout;
    assert!(text.contains("sign-in, by client_ip: 600 requests of 300 clients\n"), "{text}");
    assert!(
        text.contains("12000 further requests took no units, since the status is not in charge_on"),
        "{text}"
    );
}

/// 10,000 requests of 100 clients within two days, and one client that sends ten times as much as the others.
fn two_days() -> String {
    let clients = (0..10_000).map(|n| (n * 17, format!("192.0.2.{}", n % 100), 200));
    lines(clients.chain((0..1_000).map(|n| (n * 170 + 3, "203.0.113.1".to_owned(), 200))))
}

#[test]
fn lines_with_wrong_dates_change_no_suggestion() {
    let directory = tempfile::tempdir().unwrap();
    let suggested = |log: &str| {
        std::fs::write(directory.path().join("access.log"), log).unwrap();
        let configuration = report(directory.path(), &[]);
        let suggestion = &configuration["suggestions"][0];
        let values = ["limits", "peaks", "fit", "held_back"].map(|name| suggestion[name].clone());
        (values, configuration["period_us"].clone())
    };
    let log = two_days();
    let right = suggested(&log);
    let (first, rest) = log.split_at(log.len() / 2);
    let (first_end, rest) = (first.rfind('\n').unwrap() + 1, rest);
    let middle = format!("{}{rest}", &first[first_end..]);
    let first = &first[..first_end];
    let wrong = |second| line(second, "192.0.2.1", 200);
    let several = |from: i64| (from..from + 30).map(wrong).collect::<String>();
    for log in [
        format!("{}{log}", several(0)),
        format!("{first}{}{middle}", several(0)),
        format!("{first}{}{middle}", several(4_070_908_800)),
        format!("{log}{}", several(4_070_908_800)),
        format!("{}{log}", wrong(0)),
        format!("{first}{}{middle}", wrong(0)),
        format!("{first}{}{middle}", wrong(4_070_908_800)),
        format!("{log}{}", wrong(4_070_908_800)),
    ] {
        assert_eq!(suggested(&log), right);
    }
    std::fs::write(directory.path().join("access.log"), format!("{}{log}", wrong(0))).unwrap();
    let text = replay(directory.path(), &[]).stdout;
    let note = "note: 1 request left out, dated far from all others (1970-01-01T00:00:00Z): correct or remove the lines";
    assert!(text.contains(note), "{text}");
}

#[test]
fn a_request_days_before_the_others_is_not_the_part_that_numbers_are_chosen_from() {
    let directory = tempfile::tempdir().unwrap();
    let log = format!("{}{}", line(START - 5 * 86_400, "192.0.2.1", 200), two_days());
    std::fs::write(directory.path().join("access.log"), log).unwrap();
    let suggestion = &report(directory.path(), &[])["suggestions"][0];
    for part in ["fit", "held_back"] {
        assert!(suggestion[part]["requests"].as_u64().unwrap() > 1_000, "{part}: {}", suggestion[part]);
    }
}

#[test]
fn the_description_is_of_all_of_the_log_and_each_number_says_its_part() {
    let directory = tempfile::tempdir().unwrap();
    // The busiest minute is in the part that is held back.
    let busy = (0..600).map(|n| (171_000 + n / 10, "203.0.113.2".to_owned(), 200));
    let log = format!("{}{}", two_days(), lines(busy));
    std::fs::write(directory.path().join("access.log"), log).unwrap();
    let suggestion = &report(directory.path(), &[])["suggestions"][0];
    assert_eq!(suggestion["peaks"][2]["clients"]["max"], 600);
    assert_eq!(suggestion["peaks"][0]["window"], "1 s");
    let curve = suggestion["curve"].as_array().unwrap();
    assert!(curve[0]["for_all"].as_u64().unwrap() > 500, "{curve:?}");
    assert!(suggestion["limits"][0]["least"].as_u64().unwrap() < 20, "{}", suggestion["limits"]);
    assert_eq!(suggestion["held_back"]["denied_clients"], 1);
    assert_eq!(suggestion["listed"][0]["name"], "203.0.113.2");
    let text = replay(directory.path(), &[]).stdout;
    let all = "all of the log, 2026-01-05T00:00:00Z to 2026-01-06T23:30:59Z";
    for title in [
        format!("Most requests of a client in any period, in {all}\n"),
        format!("Least burst for each rate, in {all}\n"),
        "Suggested limits, chosen from the first 85.7 % of the time with requests, 2026-01-05T00:00:00Z to "
            .to_owned(),
        format!("Clients with the most denied requests or the busiest minutes, in {all}\n"),
    ] {
        assert!(text.contains(&title), "{title}: {text}");
    }
}

#[test]
fn small_logs_get_limits_for_most_clients_and_advice_that_helps() {
    let directory = tempfile::tempdir().unwrap();
    // Twenty clients that load a page of eight files each ten minutes, and one that sends two requests a second.
    let pages = (0..20).flat_map(|client| {
        (0..36).flat_map(move |page| {
            (0..8).map(move |_| (page * 600 + client * 11, format!("192.0.2.{client}"), 200))
        })
    });
    let crawler = (0..20_000).map(|second| (second, "203.0.113.1".to_owned(), 200));
    std::fs::write(directory.path().join("access.log"), lines(pages.chain(crawler))).unwrap();
    let suggestion = &report(directory.path(), &[])["suggestions"][0];
    // No client may be denied, so the crawler determines the numbers; the list shows it.
    assert_eq!(
        (&suggestion["listed"][0]["name"], &suggestion["listed"][0]["denied"]),
        (&"203.0.113.1".into(), &0.into())
    );
    assert_eq!(suggestion["listed"].as_array().unwrap().len(), 10);
    let warnings = suggestion["warnings"].as_array().unwrap();
    let advice =
        warnings.iter().find_map(|warning| warning.as_str()?.split_once("--deny-at-most ")).unwrap().1;
    let followed =
        &report(directory.path(), &["--share-of", "clients", "--deny-at-most", advice])["suggestions"][0];
    let text = |suggestion: &Value| {
        let limits = suggestion["limits"].as_array().unwrap().iter();
        limits
            .map(|limit| format!("{} {}", limit["rate"].as_str().unwrap(), limit["burst"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(text(followed), ["1/minute 10"], "before: {:?}", text(suggestion));
    assert_eq!(followed["listed"][0]["denied"].as_u64().map(|denied| denied > 19_000), Some(true));
}

#[test]
fn clients_are_listed_with_their_user_agents_and_consumers() {
    let directory = tempfile::tempdir().unwrap();
    let line = |(second, client, agent, consumer): (i64, &str, &str, &str)| {
        let at = START + second;
        format!(
            "{{\"t\":{at},\"ip\":\"{client}\",\"url\":\"/\",\"ua\":\"{agent}\",\"who\":\"{consumer}\"}}\n"
        )
    };
    let log: String = (0..100)
        .flat_map(|second| {
            let other = if second % 10 == 0 { "curl/8" } else { "ExampleBot/1.0" };
            [(second, "192.0.2.1", other, "acme"), (second, "192.0.2.2", "Firefox", "-")]
        })
        .map(line)
        .collect();
    std::fs::write(directory.path().join("access.log"), log).unwrap();
    let args = ["--fields", "time=t,client=ip,target=url,user_agent=ua,consumer=who"];
    let listed = &report(directory.path(), &args)["suggestions"][0]["listed"];
    let of = |index: usize| ["name", "user_agent", "consumer"].map(|key| listed[index][key].clone());
    assert_eq!(of(0), ["192.0.2.1", "ExampleBot/1.0", "acme"]);
    assert_eq!(of(1), ["192.0.2.2".into(), "Firefox".into(), Value::Null]);
    let text = replay(directory.path(), &args).stdout;
    assert!(text.contains("USER AGENT      CONSUMER\n"), "{text}");
    let hidden = report(directory.path(), &[&args[..], &["--anonymize"]].concat());
    assert!(!hidden["suggestions"][0]["listed"].to_string().contains("acme"));
}

#[test]
fn no_limit_is_suggested_that_is_slower_than_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let requests = (0..40).flat_map(|second| (0..30).map(move |n| (second, format!("192.0.2.{n}"), 200)));
    std::fs::write(directory.path().join("access.log"), lines(requests)).unwrap();
    let suggestion = &report(directory.path(), &[])["suggestions"][0];
    let rates: Vec<&str> = suggestion["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["rate"].as_str().unwrap())
        .collect();
    assert_eq!(rates.iter().filter(|rate| rate.ends_with("/day")).count(), 0, "{rates:?}");
    // A present limit by the hour can't be judged by 40 seconds.
    let config = "listen = \"127.0.0.1:0\"\n[limits.sign-in]\nrate = \"9/hour\"\n";
    std::fs::write(directory.path().join("tidegate.toml"), format!("{config}{ROUTE}")).unwrap();
    let suggestion = &report(directory.path(), &[])["suggestions"][0];
    assert_eq!((&suggestion["limits"], &suggestion["toml"]), (&Value::Array(Vec::new()), &"".into()));
    let text = suggestion["warnings"].to_string();
    assert!(text.contains("no limit is suggested whose units come back in a longer time"), "{text}");
    let why = "no limit is suggested, because its units would come back in 1h, and the numbers are from 34s of the log, which don't \
               show what it does: use logs of at least 1h 10m";
    assert!(text.contains(why), "{text}");
    let text = replay(directory.path(), &[]).stdout;
    assert!(text.contains(&format!("warning: {why}")), "{text}");
}

#[test]
fn a_warning_about_few_clients_is_about_the_limit_that_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    // Each client sends ten requests an hour, and one of them 515.
    let others = (0..300).flat_map(|client| {
        (0..200).map(move |n| (n * 361, format!("192.0.{}.{}", client / 200, client % 200), 200))
    });
    let one = (0..10_000).map(|n| (n * 7, "203.0.113.1".to_owned(), 200));
    std::fs::write(directory.path().join("access.log"), lines(others.chain(one))).unwrap();
    let warning = |configuration: &Value| {
        let mut warnings = configuration["suggestions"][0]["warnings"].as_array().unwrap().iter();
        let of = |it: &Value| it.as_str().filter(|text| text.starts_with("few clients")).map(str::to_owned);
        warnings.find_map(of).unwrap_or_else(|| panic!("{configuration}"))
    };
    let args = ["--deny-at-most", "0"];
    let text = warning(&report(directory.path(), &args));
    assert!(text.contains("without the 1 that needs most, a limit of 1/minute has room"), "{text}");
    let config =
        "listen = \"127.0.0.1:0\"\n[limits.sign-in]\nalgorithm = \"sliding_log\"\nrate = \"500/hour\"\n";
    std::fs::write(directory.path().join("tidegate.toml"), format!("{config}{ROUTE}")).unwrap();
    let text = warning(&report(directory.path(), &args));
    let expected = "without the 1 that needs most, a limit of 10/hour has room for all requests, in place of 515/hour; see";
    assert!(text.contains(expected), "{text}");
}
