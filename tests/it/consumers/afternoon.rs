//! An afternoon of an API with consumers of three tiers, a web page and a sign-in. Afterwards the access log, `/top` and
//! `tidegate explain` say which consumer was denied by which limit, and since when.

use std::collections::BTreeMap;

use serde_json::Value;

use super::setup::ConsumersFile;
use crate::support::{Client, Message, Page, SampleApi, TIDEGATE, Tidegate, command, eventually, get};

const CONSUMERS: &str = "\
    [acme]\ncredentials = [\"k-acme\"]\ntier = \"pro\"\n\
    [globex]\ncredentials = [\"k-globex\"]\ntier = \"free\"\n\
    [initech]\ncredentials = [\"k-initech\"]\ntier = \"enterprise\"\n\
    [shop]\ncredentials = [\"k-shop\"]\ntier = \"free\"\n";

fn config(file: &ConsumersFile, page: &Page, api: &SampleApi) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n{consumers}\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\naccess = \"json\"\nkeys = \"plain\"\nheaders = [\"user-agent\"]\n\
         [cors]\norigins = [\"{origin}\"]\n\
         [limits.per-consumer]\nkey = \"consumer\"\nrate = \"10/hour\"\n\
         tiers = {{ by = \"consumer\", pro = {{ rate = \"100/hour\" }}, enterprise = {{ rate = \"1000/hour\" }} }}\n\
         [limits.address]\nrate = \"600/hour\"\n\
         [limits.sign-in]\nkey = \"form:username\"\nrate = \"5/hour\"\n\
         [[routes]]\nname = \"sign-in\"\npath = \"/login\"\nmethods = [\"POST\"]\nconsumers = \"public\"\n\
         limits = [\"sign-in\", \"address\"]\nupstream = \"{api}\"\n\
         [[routes]]\nname = \"orders\"\npath = \"/orders\"\nlimits = [\"per-consumer\"]\nupstream = \"{api}\"\n",
        consumers = file.table("forward_credential = false"),
        origin = page.origin(),
        api = api.url(),
    )
}

fn sign_in(proxy: &Tidegate, source: &str, name: &str, password: &str) -> Message {
    let form = format!("username={name}&password={password}");
    Client::connect_from(source, proxy.addr()).ask(&format!(
        "POST /login HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    ))
}

/// How many of `count` requests of a consumer get each status.
fn orders(proxy: &Tidegate, key: &str, count: usize) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    for _ in 0..count {
        let response =
            get(proxy.addr(), "/orders", &[&format!("X-Api-Key: {key}"), "User-Agent: afternoon/1"]);
        *statuses.entry(response.status()).or_default() += 1;
    }
    statuses
}

/// The keys of a limit in `/top`, each with its consumer, name and count.
fn top(proxy: &Tidegate, limit: &str) -> Vec<(Option<String>, Option<String>, u64)> {
    let response = get(proxy.admin(), &format!("/v1/top?by=denials&window=10m&limit={limit}"), &[]);
    let list: Value = serde_json::from_slice(&response.body).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let keys = list["limits"][0]["keys"].as_array().unwrap().iter();
    keys.map(|key| (text(&key["consumer"]), text(&key["name"]), key["count"].as_u64().unwrap())).collect()
}

/// The output of a command.
fn tidegate(args: &[&str]) -> String {
    let output = command(TIDEGATE).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What `explain` says about an order of this consumer.
fn explain(proxy: &Tidegate, consumer: &str) -> String {
    let file = proxy.directory().join("tidegate.toml");
    tidegate(&["explain", "-c", file.to_str().unwrap(), "GET", "/orders", "--consumer", consumer])
}

#[test]
fn it_is_known_which_consumer_was_denied_by_which_limit_and_since_when() {
    let api = SampleApi::start();
    let page = Page::new(
        "const api = location.hash.slice(1);
         const orders = () => ask(api + '/orders', { headers: { 'x-api-key': 'k-shop' } });
         let last = await orders();
         for (let sent = 1; sent < 12; sent += 1) last = await orders();
         return last;",
    );
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&config(&file, &page, &api));

    // Three tiers, a stranger, and a page.
    assert_eq!(orders(&proxy, "k-acme", 30), BTreeMap::from([(200, 30)]));
    assert_eq!(orders(&proxy, "k-globex", 25), BTreeMap::from([(200, 10), (429, 15)]));
    assert_eq!(orders(&proxy, "k-initech", 40), BTreeMap::from([(200, 40)]));
    assert_eq!(orders(&proxy, "k-nobody", 2), BTreeMap::from([(401, 2)]));
    let last = page.run(&proxy.url(""));
    assert_eq!(last["status"], 429, "{last:#}");
    assert!(last["headers"]["retry-after"].is_string(), "{last:#}");
    let served = get(proxy.addr(), "/orders", &["X-Api-Key: k-acme", "X-Consumer-Name: initech"]);
    let served: Value = serde_json::from_slice(&served.body).unwrap();
    assert_eq!((&served["consumer"], &served["tier"]), (&"acme".into(), &"pro".into()));

    // A hundred addresses guess the password of one user; another user signs in.
    let guesses =
        (1..=100).map(|host| sign_in(&proxy, &format!("127.0.1.{host}"), "alice", "guess").status());
    let reached = guesses.filter(|status| *status == 401).count();
    assert_eq!(reached, 5);
    assert_eq!(sign_in(&proxy, "127.0.1.7", "bob", "builder").status(), 200);

    // The log: since when which consumer was denied by which limit.
    // The browser sends one preflight, since it may keep the response to it.
    let lines: Vec<Value> = proxy
        .accesses(30 + 25 + 40 + 2 + 13 + 1 + 101)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut denials: BTreeMap<(String, String), (String, usize)> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["status"] == 429) {
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        let since = denials.entry((text("denied_by"), text("key"))).or_insert_with(|| (text("time"), 0));
        since.1 += 1;
    }
    let counts: Vec<_> =
        denials.iter().map(|((limit, key), (_, count))| (&**limit, &**key, *count)).collect();
    assert_eq!(
        counts,
        [("per-consumer", "globex", 15), ("per-consumer", "shop", 2), ("sign-in", "alice", 95)]
    );
    let first = |key: &str| denials.iter().find(|((_, other), _)| other == key).unwrap().1.0.clone();
    assert!(first("globex") < first("shop") && first("shop") < first("alice"), "{denials:?}");
    let of_globex = lines.iter().filter(|line| line["consumer"] == "globex");
    assert!(of_globex.clone().all(|line| line["user_agent"] == "afternoon/1" || line["headers"]["user-agent"] == "afternoon/1"), "{lines:?}");
    assert_eq!(of_globex.count(), 25);

    // The keys with most denials.
    let named = |name: &str| Some(name.to_owned());
    eventually("the denials are counted", || {
        top(&proxy, "sign-in").first().is_some_and(|(_, _, count)| *count == 95)
    });
    assert_eq!(
        top(&proxy, "per-consumer"),
        [(named("globex"), named("globex"), 15), (named("shop"), named("shop"), 2)]
    );
    assert_eq!(top(&proxy, "sign-in"), [(None, named("alice"), 95)]);

    let admin = format!("http://{}", proxy.admin());
    let table = tidegate(&["top", "--once", "--limit", "per-consumer", "--admin", &admin]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        rows.iter().any(|row| row.starts_with(&["per-consumer", "globex"]) && row.contains(&"15")),
        "{table}"
    );

    // And why.
    let why = explain(&proxy, "globex");
    assert!(why.contains("globex, tier free") && why.contains("token_bucket, 10/hour"), "{why}");
    let why = explain(&proxy, "acme");
    assert!(why.contains("acme, tier pro") && why.contains("token_bucket, 100/hour"), "{why}");

    // What helps until the tier is changed.
    tidegate(&[
        "keys",
        "raise",
        "per-consumer",
        "--consumer",
        "globex",
        "--by",
        "2x",
        "--for",
        "1h",
        "--admin",
        &admin,
    ]);
    assert_eq!(orders(&proxy, "k-globex", 12), BTreeMap::from([(200, 10), (429, 2)]));
}
