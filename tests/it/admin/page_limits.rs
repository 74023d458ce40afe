//! How the page speaks of limits and consumers: in the words of the file.

use serde_json::json;

use super::page::{config, open};
use crate::consumers::setup::{ConsumersFile, with_key};
use crate::support::{Tidegate, Upstream, get};

#[test]
fn a_limit_has_the_words_of_the_file_and_would_deny_in_shadow_mode() {
    let limits = r#"
        [limits.per-user]
        rate = "60/minute"
        burst = 10
        key = "header:x-user"
        [limits.trial]
        rate = "3/hour"
        key = "header:x-user"
        mode = "shadow"
        [[routes]]
        path = "/*"
        limits = ["per-user", "trial"]
        respond = {}
    "#;
    let proxy = Tidegate::start(&config("", limits));
    for _ in 0..5 {
        assert_eq!(get(proxy.addr(), "/", &["X-User: eve"]).status(), 200);
    }
    let mut browser = open(&proxy);
    browser.wait_text("#limits-rows", "60/minute, burst 10 (token_bucket)");
    browser.wait("[...document.querySelectorAll('#limits-rows td:not(.optional)')].some((cell) => cell.textContent === '02 would be denied')");
    browser.wait_text("#denied-rows", "trial (would deny)");
    browser.click("#denied-rows button");
    browser.wait_text(".verdict", "Would be denied: its quota is used up");
    browser.wait_text(".history", "5 requests, 2 would be denied");
    let bars = browser.evaluate("document.querySelector('.bars').getAttribute('aria-label')");
    assert_eq!(bars, "In the last hour 5 requests, 2 of them would be denied");
}

#[test]
fn a_consumer_is_named_once_and_has_no_tier_of_others() {
    let consumers = ConsumersFile::new(
        "[globex]\ncredentials = [\"k-1\"]\n[acme]\ncredentials = [\"k-2\"]\ntier = \"pro\"\n",
    );
    let limits = "[limits.per-consumer]\nrate = \"2/hour\"\nkey = \"consumer\"\n\
                  tiers = { by = \"consumer\", pro = { rate = \"3/hour\" } }\n\
                  [[routes]]\npath = \"/*\"\nlimits = [\"per-consumer\"]\nrespond = {}\n";
    let proxy = Tidegate::start(&config("", &(consumers.table("") + limits)));
    for (key, count) in [("k-1", 4), ("k-2", 4)] {
        for _ in 0..count {
            with_key(&proxy, "/", key);
        }
    }
    let mut browser = open(&proxy);
    browser.wait("document.querySelectorAll('#denied-rows tr').length === 2");
    let who = browser.text("#denied-rows td");
    assert_eq!(who.matches("globex").count(), 1, "{who}");
    for (row, name, tiers) in [(1, "globex", json!([])), (2, "acme", json!(["Tier pro"]))] {
        browser.click(&format!("#denied-rows tr:nth-child({row}) button"));
        browser.wait_text(".identity .key", name);
        // A block applies to all tiers.
        browser.click("[data-action=block]");
        browser.click("#confirm-submit");
        browser.wait_text(".verdict", "Denied: blocked until");
        let shown =
            browser.evaluate("[...document.querySelectorAll('.standing h3')].map(tier => tier.textContent)");
        assert_eq!(shown, tiers, "{name}");
        assert_eq!(browser.evaluate("document.querySelectorAll('.standing').length"), 1, "{name}");
    }
}

#[test]
fn charts_begin_at_the_start_of_the_process() {
    let proxy = Tidegate::start(&config(
        "",
        "[limits.a]\nrate = \"1/hour\"\n[[routes]]\npath = \"/*\"\nlimits = [\"a\"]\nrespond = {}\n",
    ));
    for _ in 0..3 {
        get(proxy.addr(), "/", &[]);
    }
    let mut browser = open(&proxy);
    browser.wait_text("#limits-rows", "66 %");
    browser.click("#denied-rows button");
    browser.wait("document.querySelector('.bars rect')");
    // The left ends of the line of requests, of the denials of the limit and of the requests of the key.
    for (selector, attribute, start) in
        [("#traffic .line", "d", "M0.0 "), (".spark path", "d", "M0.0 "), (".bars rect", "x", "0")]
    {
        let found = browser.evaluate(&format!(
            "document.querySelector({}).getAttribute({})",
            json!(selector),
            json!(attribute)
        ));
        assert!(found.as_str().unwrap().starts_with(start), "{selector}: {found}");
    }
    let starts = "[...document.querySelectorAll('#traffic svg')].map(chart => {\
                  const line = chart.querySelector('.line').getBoundingClientRect();\
                  return Math.abs(line.x - chart.getBoundingClientRect().x) <= 1; })";
    assert_eq!(browser.evaluate(starts), json!([true, true, true, true]));
}

/// Three requests reserve one unit each: one costs nothing, one costs 40, and one does not tell.
#[test]
fn a_limit_that_settles_shows_what_has_become_of_its_units() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let cost = match request.start.as_str() {
                start if start.starts_with("GET /free ") => "X-Units: 0\r\n",
                start if start.starts_with("GET /dear ") => "X-Units: 40\r\n",
                _ => "",
            };
            if caller.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{cost}\r\n")).is_err() {
                return;
            }
        }
    });
    let limits = format!(
        "[limits.units]\nrate = \"1000/hour\"\ncost = {{ reserve = 1, settle = \"header:x-units\" }}\n\
         [limits.plain]\nrate = \"1000/hour\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"units\", \"plain\"]\nupstream = \"{}\"\n",
        server.url()
    );
    let proxy = Tidegate::start(&config("", &limits));
    let mut browser = open(&proxy);
    let head = "[...document.querySelectorAll('#limits-head th')].find((cell) => cell.textContent.includes('Settled costs'))";
    browser.wait(&format!("{head}.hidden"));
    for path in ["/free", "/dear", "/silent"] {
        assert_eq!(get(proxy.addr(), path, &[]).status(), 200);
    }
    browser.wait_text("#limits-rows", "41 of 3 reserved");
    browser.wait_text("#limits-rows", "1 refunded, 39 extra, 1 unknown cost");
    browser.wait(&format!("!{head}.hidden"));
}
