//! `tidegate top` and `tidegate keys list --denied`, against a running proxy.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Finished;
use crate::consumers::setup::{CONSUMERS, ConsumersFile, with_key};
use crate::support::{Client, Process, TIDEGATE, Tidegate, Upstream, command, eventually, get};

const LIMITS: &str = "\
    workers = 2\nlisten = \"127.0.0.1:0\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"s3cret-admin-t0ken\"\n\
    [limits.per-consumer]\nrate = \"2/hour\"\nkey = \"consumer\"\n\
    [limits.wide]\nrate = \"1000/hour\"\nmode = \"shadow\"\n\
    [[routes]]\npath = \"/*\"\nlimits = [\"per-consumer\", \"wide\"]\nrespond = {}\n";

fn tidegate(proxy: &Tidegate, args: &[&str]) -> Command {
    let mut command = command(TIDEGATE);
    command.args(args).args(["--admin", &format!("http://{}", proxy.admin())]);
    command.current_dir("/").env("TIDEGATE_ADMIN_TOKEN", "s3cret-admin-t0ken");
    command
}

#[track_caller]
fn run(proxy: &Tidegate, args: &[&str]) -> String {
    let output: Finished = tidegate(proxy, args).output().unwrap().into();
    assert_eq!((output.status, output.stderr.as_str()), (0, ""), "{args:?}: {}", output.stdout);
    output.stdout
}

/// The words of each line.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// A proxy that has denied ten requests of acme and one of small.
fn busy_proxy() -> (ConsumersFile, Tidegate) {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&(LIMITS.to_owned() + &file.table("")));
    assert!(run(&proxy, &["top", "--once"]).starts_with("no denials in the last "));
    for (key, count) in [("s-1", 3), ("k-2", 6), ("l-1", 1), ("k-4711", 6)] {
        for _ in 0..count {
            with_key(&proxy, "/", key);
        }
    }
    (file, proxy)
}

#[test]
fn the_consumer_with_the_most_denials_is_first() {
    let (_file, proxy) = busy_proxy();
    let table = run(&proxy, &["top", "--once"]);
    let lines = words(&table);
    assert!(table.starts_with("denials in the last "), "{table}");
    assert_eq!(lines[2], ["LIMIT", "CONSUMER", "KEY", "DENIALS", "SHARE"], "{table}");
    assert_eq!((&lines[3][..2], &lines[3][3..]), (&["per-consumer", "acme"][..], &["10", "90", "%"][..]));
    assert_eq!((&lines[4][..2], &lines[4][3..]), (&["per-consumer", "small"][..], &["1", "9", "%"][..]));
    assert_eq!(lines.len(), 5, "{table}");
    let args =
        ["top", "--json", "--by", "traffic", "--window", "60m", "--limit", "per-consumer", "--count", "1"];
    let traffic: Value = serde_json::from_str(&run(&proxy, &args)).unwrap();
    let limits = traffic["limits"].as_array().unwrap();
    assert_eq!((limits.len(), limits[0]["keys"].as_array().unwrap().len()), (1, 1), "{traffic}");
    let key = &limits[0]["keys"][0];
    assert_eq!((&key["consumer"], &key["count"]), (&"acme".into(), &12.into()), "{traffic}");
    // The key of a limit by address belongs to several consumers.
    let wide = run(&proxy, &["top", "--once", "--by", "traffic", "--limit", "wide"]);
    assert!(wide.contains("wide (shadow)  (several)  tag:"), "{wide}");
}

#[test]
fn the_table_is_shown_again() {
    let (_file, proxy) = busy_proxy();
    let mut top = Process::start(tidegate(&proxy, &["top"]).stdout(Stdio::piped()));
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let title = lines.find(|line| line.as_ref().unwrap().starts_with("denials in the last "));
        assert!(title.is_some(), "the command has ended");
        let first = lines.find(|line| line.as_ref().unwrap().starts_with("per-consumer ")).unwrap().unwrap();
        assert!(first.contains("acme"), "{first}");
    }
    // It ends when nobody reads its output.
    drop(lines);
    assert!(top.wait().success());
}

#[test]
fn denied_keys_are_listed_with_their_denials() {
    let (_file, proxy) = busy_proxy();
    let table = run(&proxy, &["keys", "list", "--denied"]);
    let lines = words(&table);
    assert_eq!(lines[0], ["LIMIT", "CONSUMER", "KEY", "DENIED", "STATE", "LEFT", "RESET", "IN"]);
    assert_eq!(
        (&lines[1][..2], &lines[1][3..9]),
        (&["per-consumer", "acme"][..], &["10", "used", "up", "0", "of", "2"][..])
    );
    assert_eq!((lines[2][1], lines[2][3], lines.len()), ("small", "1", 3), "{table}");
    let first = run(&proxy, &["keys", "list", "per-consumer", "--denied", "--max", "1"]);
    assert!(first.contains("acme") && !first.contains("small"), "{first}");
    assert!(first.ends_with("and more: list them with a larger --max\n"), "{first}");
    // A key that is not stored any more still has its denials.
    run(&proxy, &["keys", "reset", "per-consumer", lines[1][2]]);
    let after = run(&proxy, &["keys", "list", "--denied"]);
    assert_eq!(words(&after)[1][3..8], ["10", "allowed", "2", "of", "2"], "{after}");
    assert!(run(&proxy, &["keys", "list", "wide", "--denied"]).starts_with("no keys: nothing was denied"));
}

#[test]
fn keys_of_one_consumer_are_shown() {
    let (_file, proxy) = busy_proxy();
    // The limit of the count applies to the keys of this consumer.
    let table = run(&proxy, &["top", "--once", "--consumer", "small", "--count", "1"]);
    let lines = words(&table);
    assert!(table.starts_with("denials of the consumer small in the last "), "{table}");
    assert_eq!((&lines[3][..2], &lines[3][3..]), (&["per-consumer", "small"][..], &["1", "9", "%"][..]));
    assert_eq!(lines.len(), 4, "{table}");
    let json: Value = serde_json::from_str(&run(&proxy, &["top", "--json", "--consumer", "small"])).unwrap();
    let keys: Vec<&Value> = json["limits"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|limit| limit["keys"].as_array().unwrap())
        .collect();
    assert_eq!((keys.len(), &keys[0]["consumer"]), (1, &"small".into()), "{json}");
    let none = run(&proxy, &["top", "--once", "--consumer", "lasting"]);
    assert!(none.starts_with("no denials of the consumer lasting in the last "), "{none}");

    let list = ["keys", "list", "--denied", "--consumer"];
    let table = run(&proxy, &[&list[..], &["small", "--max", "1"]].concat());
    let lines = words(&table);
    assert_eq!(
        (&lines[1][..2], lines[1][3], lines.len()),
        (&["per-consumer", "small"][..], "1", 2),
        "{table}"
    );
    let json: Value = serde_json::from_str(&run(&proxy, &[&list[..], &["acme", "--json"]].concat())).unwrap();
    assert_eq!(
        (json["keys"].as_array().unwrap().len(), &json["keys"][0]["consumer"], &json["more"]),
        (1, &"acme".into(), &false.into()),
        "{json}"
    );
    let none = run(&proxy, &[&list[..], &["lasting"]].concat());
    assert_eq!(none, "no keys: nothing of the consumer lasting was denied in the last hour\n");
}

#[test]
fn refusals_are_those_of_upstreams_by_class() {
    let (server, _release) = Upstream::gated("HTTP/1.1 204 No Content\r\n\r\n");
    let overload = "overload = { limit = 1 }\nmax_pending = 0\n";
    let upstreams = ["shop", "search"]
        .map(|name| format!("[upstreams.{name}]\nservers = [\"{}\"]\n{overload}", server.url()));
    let route = |path: &str, upstream: &str, class: &str| {
        format!("[[routes]]\npath = \"/{path}\"\nupstream = \"{upstream}\"\npriority = \"{class}\"\n")
    };
    let routes =
        [route("pay", "shop", "critical"), route("list", "shop", "low"), route("find", "search", "normal")];
    let (admin, _) = LIMITS.split_once("[limits").unwrap();
    let proxy = Tidegate::start(&(admin.to_owned() + &upstreams.concat() + &routes.concat()));
    let none = run(&proxy, &["top", "--once", "--by", "refusals"]);
    assert!(none.starts_with("no refusals of upstreams in the last "), "{none}");
    let _held: Vec<Client> = ["/list", "/find"]
        .iter()
        .zip(1..)
        .map(|(path, count)| {
            let mut client = Client::connect(proxy.addr());
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            eventually("the server has the request", || server.received() == count);
            client
        })
        .collect();
    for (path, count) in [("/find", 1), ("/list", 3), ("/pay", 1)] {
        for _ in 0..count {
            assert_eq!(get(proxy.addr(), path, &[]).status(), 503);
        }
    }
    let table = run(&proxy, &["top", "--once", "--by", "refusals", "--window", "1m"]);
    assert!(table.starts_with("refusals of upstreams in the last "), "{table}");
    let expected = [
        &["UPSTREAM", "CLASS", "REFUSALS", "SHARE"][..],
        &["shop", "critical", "1", "25", "%"],
        &["shop", "low", "3", "75", "%"],
        &["search", "normal", "1", "100", "%"],
    ];
    assert_eq!(words(&table)[2..], expected, "{table}");
    let json: Value = serde_json::from_str(&run(&proxy, &["top", "--json", "--by", "refusals"])).unwrap();
    assert_eq!(
        (&json["upstreams"][0]["upstream"], &json["upstreams"][0]["total"]),
        (&"shop".into(), &4.into())
    );
    assert_eq!(json["limits"], Value::Array(vec![]), "{json}");
}

#[test]
fn text_from_clients_is_escaped() {
    let proxy = Tidegate::start(
        "listen = \"127.0.0.1:0\"\n[log]\nkeys = \"plain\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"s3cret-admin-t0ken\"\n\
         [limits.per-name]\nrate = \"1/hour\"\nkey = \"query:name\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"per-name\"]\nrespond = {}\n",
    );
    for status in [200, 429] {
        assert_eq!(get(proxy.addr(), "/?name=%1b%5b2Ja%0a", &[]).status(), status);
    }
    let table = run(&proxy, &["top", "--once"]);
    assert!(table.contains(r" \u001b[2ja\u000a ") || table.contains(r" \u001b[2Ja\u000a "), "{table}");
    assert!(!table.contains('\u{1b}') && words(&table).len() == 4, "{table}");
}

#[test]
fn wrong_arguments_are_rejected() {
    let (_file, proxy) = busy_proxy();
    for (args, status, message) in [
        (&["top", "--once", "--limit", "per-consumr"][..], 1, "did you mean `per-consumer`?"),
        (&["top", "--once", "--window", "5m"], 2, "[possible values: 1m, 10m, 60m]"),
        (&["top", "--once", "--count", "101"], 2, "101 is not in 1..=100"),
        (
            &["top", "--once", "--by", "refusals", "--limit", "wide"],
            2,
            "and no keys of limits\nhelp: leave out --limit and --consumer",
        ),
        (
            &["keys", "list", "--consumer", "acme"],
            2,
            "the consumers of stored keys are not known\nhelp: add --denied",
        ),
    ] {
        let output: Finished = tidegate(&proxy, args).output().unwrap().into();
        assert_eq!((output.status, output.stdout.as_str()), (status, ""), "{args:?}");
        assert!(output.stderr.contains(message), "{}", output.stderr);
    }
}
