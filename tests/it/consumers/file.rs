//! The file of consumers: reloads, size, and reports of mistakes.

use std::fmt::Write as _;
use std::time::Instant;

use super::setup::{CONSUMERS, ConsumersFile, status_of};
use crate::support::{Tidegate, eventually};

const ROUTE: &str = "[[routes]]\npath = \"/*\"\nrespond = {}\n";

#[test]
fn a_changed_file_is_watched_and_applied() {
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!("watch = true\n{}{ROUTE}", file.table("")));
    assert_eq!(status_of(&proxy, "/", "new"), 401);
    assert_eq!(status_of(&proxy, "/", "k-2"), 200);
    file.write("[new]\ncredentials = [\"new\"]\n");
    eventually("the new consumer is known", || status_of(&proxy, "/", "new") == 200);
    assert_eq!(status_of(&proxy, "/", "k-2"), 401, "the earlier consumer is gone");
    proxy.wait_log("tables: [consumers] changed");
    file.write("[new]\ncredentials = [\"new\", \"other\"]\ntiers = \"pro\"\n");
    proxy.wait_log("unknown key `tiers` in consumer `new`");
    assert_eq!(status_of(&proxy, "/", "new"), 200, "the previous file stays in force");
    assert_eq!(status_of(&proxy, "/", "other"), 401);
}

#[test]
fn an_incomplete_file_is_applied_only_on_request() {
    let file = ConsumersFile::new(CONSUMERS);
    let config = format!("watch = true\n{}{ROUTE}", file.table(""));
    let proxy = Tidegate::start(&config);
    file.write("");
    proxy.wait_log("has no consumers; serving the previous configuration");
    assert_eq!(status_of(&proxy, "/", "k-2"), 200);
    // The last line is cut, and with it the consumer's block.
    file.write(CONSUMERS.strip_suffix("\nblocked = true\n").unwrap());
    proxy.wait_log("does not end with a line break");
    assert_eq!(status_of(&proxy, "/", "b-1"), 403);
    file.write(&format!("{CONSUMERS}[new]\ncredentials = [\"new\"]\n"));
    eventually("the whole file is applied", || status_of(&proxy, "/", "new") == 200);
    file.write("# Nobody.\n");
    eventually("a second one is not applied", || proxy.logged("has no consumers") == 2);
    assert_eq!(status_of(&proxy, "/", "k-2"), 200);
    proxy.reload(&config);
    assert_eq!(status_of(&proxy, "/", "k-2"), 401, "an operator has asked for it");
}

#[test]
fn a_file_of_many_consumers_is_read() {
    let mut text = String::new();
    for number in 0..20_000 {
        let tier = ["free", "pro", "max"][number % 3];
        writeln!(text, "[c{number}]\ncredentials = [\"key-{number}\"]\ntier = \"{tier}\"").unwrap();
        if number % 10 == 0 {
            writeln!(text, "limits = {{ each = {{ rate = \"{}/hour\" }} }}", 100 + number % 7).unwrap();
        }
    }
    let file = ConsumersFile::new(&text);
    let limit = "[limits.each]\nrate = \"5/hour\"\nkey = \"consumer\"\n";
    let route = "[[routes]]\npath = \"/*\"\nlimits = [\"each\"]\nrespond = {}\n";
    let config = file.table("") + limit + route;
    let proxy = Tidegate::start(&config);
    assert_eq!(status_of(&proxy, "/", "key-19999"), 200);
    assert_eq!(status_of(&proxy, "/", "key-20000"), 401);
    let started = Instant::now();
    proxy.reload(&config);
    println!("reloaded in {:?}", started.elapsed());
    assert_eq!(status_of(&proxy, "/", "key-0"), 200);
}
