//! The page with a keyboard, a screen reader, little contrast perception, a small screen, and many routes.

use std::fmt::Write as _;

use serde_json::json;

use super::page::{config, url};
use crate::support::{Browser, Client, Tidegate, get};

const LIMITED: &str = r#"
    [limits.per-user]
    rate = "3/hour"
    key = ["header:x-user", "method"]
    [[routes]]
    path = "/*"
    limits = ["per-user"]
    respond = { status = 200 }
"#;

/// A page with an inspected key.
fn inspecting(proxy: &Tidegate) -> Browser {
    for _ in 0..5 {
        get(proxy.addr(), "/", &["X-User: alice"]);
    }
    let mut browser = Browser::start();
    browser.show_as((1280, 900), "light");
    browser.open(&format!("{}#limit=per-user&key=alice|GET", url(proxy)));
    browser.wait_text(".verdict", "Denied");
    browser.wait_text("#denied-rows", "alice");
    browser
}

fn start() -> Tidegate {
    Tidegate::start(&config("", LIMITED))
}

#[test]
fn every_control_has_a_name() {
    let proxy = start();
    let mut browser = inspecting(&proxy);
    browser.send("Accessibility.enable", &json!({}));
    let mut controls = 0;
    for action in ["", "raise", "block", "reset"] {
        if !action.is_empty() {
            browser.click(&format!("[data-action={action}]"));
        }
        let tree = browser.send("Accessibility.getFullAXTree", &json!({}));
        for node in tree["nodes"].as_array().unwrap() {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let is_control = [
                "button",
                "textbox",
                "searchbox",
                "combobox",
                "radio",
                "link",
                "dialog",
                "table",
                "image",
                "region",
            ];
            // A table has the name of its section.
            if !is_control.contains(&role) || role == "table" || node["ignored"] == true {
                continue;
            }
            controls += 1;
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(!name.trim().is_empty(), "{role} in {action:?}: {node}");
        }
        browser.evaluate("document.querySelector('#confirm').close()");
    }
    assert!(controls > 40, "{controls}");
}

#[test]
fn a_keyboard_is_enough() {
    let proxy = start();
    let mut browser = inspecting(&proxy);
    browser.open(&url(&proxy));
    browser.wait_text("#denied-rows", "alice");
    let mut tab_to = |selector: &str| {
        let is_there = format!("document.activeElement.matches({})", json!(selector));
        let found = (0..60).any(|_| {
            browser.press("Tab");
            browser.evaluate(&is_there) == true
        });
        assert!(found, "{selector}");
        let outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "{selector}");
        browser.press("Enter");
    };
    tab_to("#denied-rows button");
    tab_to("[data-action=block]");
    browser.wait("document.querySelector('#confirm').open");
    // The focus is in the first field, and Enter confirms.
    assert_eq!(browser.evaluate("document.activeElement.name"), "for");
    browser.press("Enter");
    browser.wait_text(".verdict", "Denied: blocked until");
    assert_eq!(browser.evaluate("document.activeElement.dataset.action"), "block");
}

#[test]
fn the_focus_stays_where_rows_change() {
    let proxy = start();
    let mut browser = inspecting(&proxy);
    for button in ["#findings button", "#denied-rows button", "#limits-head button", "#limits-rows button"] {
        browser.wait(&format!("document.querySelector({})?.checkVisibility()", json!(button)));
        browser.evaluate(&format!("(window.focused = document.querySelector({})).focus()", json!(button)));
        let before = browser.text("#findings");
        for _ in 0..5 {
            get(proxy.addr(), "/", &["X-User: alice"]);
        }
        browser.wait(&format!("document.querySelector('#findings').innerText !== {}", json!(before)));
        assert_eq!(browser.evaluate("document.activeElement === window.focused"), true, "{button}");
    }
}

#[test]
fn targets_of_the_pointer_are_large_enough() {
    let proxy = start();
    let mut browser = inspecting(&proxy);
    browser.wait_text("#findings", "alice");
    let small = "[...document.querySelectorAll('a[href], button, input, select')]\
        .filter(target => target.checkVisibility())\
        .map(target => [target.outerHTML, target.getBoundingClientRect()])\
        .filter(([, { width, height }]) => width < 24 || height < 24)\
        .map(([html, { width, height }]) => `${html}: ${width} x ${height}`)";
    for size in [(1280, 900), (400, 800)] {
        browser.show_as(size, "light");
        browser.wait(&format!("innerWidth === {}", size.0));
        assert_eq!(browser.evaluate(small), json!([]), "{size:?}");
        browser.click("[data-action=raise]");
        assert_eq!(browser.evaluate(small), json!([]), "{size:?}");
        browser.evaluate("document.querySelector('#confirm').close()");
    }
}

#[test]
fn arrow_keys_read_the_charts() {
    let proxy = start();
    let mut browser = inspecting(&proxy);
    browser.wait("document.querySelectorAll('#traffic svg path').length >= 4");
    browser.evaluate("document.querySelector('#traffic svg').focus()");
    let reads = |text: &str| {
        format!("/^[0-9:]{{8}}\\s+{text}/.test(document.querySelector('#traffic .readings').innerText)")
    };
    // The charts begin at the start of the process.
    for _ in 0..10 {
        browser.press("ArrowLeft");
        browser.wait("document.querySelectorAll('#traffic .cursor').length === 4");
        browser.wait(&reads("[0-9.]+.s"));
    }
    assert_eq!(browser.evaluate("document.querySelector('#traffic .cursor').x1.baseVal.value"), 0);
    browser.press("ArrowRight");
    browser.wait(&reads("[0-9.]+.s"));
    browser.press("Escape");
    browser.wait("document.querySelectorAll('#traffic .cursor').length === 0");
    let label = browser.evaluate("document.querySelector('#traffic svg').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().starts_with("Requests: all "), "{label}");
}

#[test]
fn texts_have_contrast_and_fit_in_both_modes_and_widths() {
    let proxy = start();
    let mut browser = inspecting(&proxy);
    for scheme in ["light", "dark"] {
        for size in [(1280, 900), (768, 900), (320, 640)] {
            browser.show_as(size, scheme);
            browser.wait(&format!("innerWidth === {}", size.0));
            assert_eq!(browser.low_contrast(), json!([]), "{scheme}");
            let width = browser.evaluate("document.documentElement.scrollWidth");
            assert_eq!(width, size.0, "{scheme}");
        }
    }
    browser.click("[data-action=raise]");
    assert_eq!(browser.low_contrast(), json!([]), "the dialog");
}

#[test]
fn ten_thousand_routes_are_shown_in_part() {
    let mut file = String::new();
    for number in 0..150 {
        let _ = write!(file, "[limits.l{number}]\nrate = \"1/hour\"\n");
    }
    for number in 0..10_000 {
        let limit = number % 150;
        let _ = write!(
            file,
            "[[routes]]\nname = \"route-{number}\"\npath = \"/{number}\"\nlimits = [\"l{limit}\"]\nrespond = {{}}\n"
        );
    }
    let proxy = Tidegate::start(&config("", &file));
    let mut client = Client::connect(proxy.addr());
    for number in 0..150 {
        assert_eq!(client.get(&format!("/{number}"), &[]).status(), 200);
    }
    for _ in 0..3 {
        assert_eq!(client.get("/77", &[]).status(), 429);
    }
    let mut browser = Browser::start();
    browser.open(&url(&proxy));
    browser.wait_text("#facts", "10,000");
    browser.wait_text("#routes-rows tr", "route-77");
    browser.wait_text("#limits-rows tr", "l77");
    browser.wait_text("#denied-rows", "127.0.0.1");
    let rows =
        |browser: &mut Browser| browser.evaluate("document.querySelectorAll('#routes-rows tr').length");
    assert!(rows(&mut browser).as_u64().unwrap() <= 20);
    browser.wait_text("#routes-note", "more with requests");
    browser.click("#routes-more");
    assert_eq!(rows(&mut browser), 100);
    browser.fill("#routes-filter", "route-77");
    browser.wait("document.querySelectorAll('#routes-rows tr').length === 1");
    assert_eq!(browser.problems(), Vec::<String>::new());
}
