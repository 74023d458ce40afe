//! The page of `tidegate replay --html` in a browser: complete, without other requests, on any screen.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Finished, tidegate};
use crate::support::trace::{ClientKind, Trace, TraceSettings, write_combined};
use crate::support::{Browser, keep_picture};

const BEFORE: &str = r#"
listen = "127.0.0.1:0"
[limits.per-client]
rate = "60/minute"
[limits.per-key]
rate = "5/minute"
key = "header:x-api-key"
on_missing = "skip"
[[routes]]
name = "pages"
path = "/*"
limits = ["per-client", "per-key"]
respond = { status = 200 }
"#;
const AFTER: &str = r#"
listen = "127.0.0.1:0"
[limits.per-client]
rate = "20/s"
burst = 60
[[routes]]
name = "pages"
path = "/*"
limits = ["per-client"]
respond = { status = 200 }
"#;
/// What a client might send in place of an API key.
const HOSTILE: &str = "</svg><script>document.title=1</script><img src=x onerror=alert(1)>";

/// A folder with two configurations and a log of these clients.
fn folder(days: u64, clients: &[(ClientKind, u32)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_trace(&directory, &TraceSettings { days, clients: clients.to_vec(), ..TraceSettings::default() });
    for (name, text) in [("before.toml", BEFORE), ("after.toml", AFTER)] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn write_trace(directory: &TempDir, settings: &TraceSettings) {
    let mut log = Vec::new();
    write_combined(&Trace::generate(settings), &mut log).unwrap();
    std::fs::write(directory.path().join("access.log"), log).unwrap();
}

fn replay(directory: &TempDir, args: &[&str]) -> Finished {
    let mut all = vec!["replay", "-c", "before.toml", "--html", "report.html"];
    all.extend(args);
    all.push("access.log");
    tidegate(directory.path(), &all)
}

/// Opens the page of a folder, as these devices show it.
fn open(browser: &mut Browser, directory: &TempDir, size: (u32, u32), scheme: &str) -> String {
    browser.show_as(size, scheme);
    let url = format!("file://{}", directory.path().join("report.html").display());
    browser.open(&url);
    browser.wait(&format!(
        "document.querySelector('#logs') && document.readyState === 'complete' && innerWidth === {}",
        size.0
    ));
    url
}

/// A page of two configurations, with a key that tries to be markup.
fn hostile_page() -> TempDir {
    let clients = [(ClientKind::Browser, 12), (ClientKind::Poller, 2), (ClientKind::RetryStorm, 1)];
    let directory = folder(2, &clients);
    let path = directory.path().join("access.log");
    let mut log = String::new();
    for _ in 0..40 {
        let time = "05/Jan/2026:00:00:00 +0000";
        writeln!(log, "192.0.2.1 - - [{time}] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl/8\" \"{HOSTILE}\"")
            .unwrap();
    }
    log.push_str(&std::fs::read_to_string(&path).unwrap());
    writeln!(log, "{HOSTILE}").unwrap();
    std::fs::write(path, log).unwrap();
    let output = replay(&directory, &["--compare", "after.toml", "--key-from", "header:x-api-key=extra1"]);
    assert_eq!(output.status, 0);
    assert!(output.stderr.ends_with("report written to report.html\n"), "{}", output.stderr);
    assert!(output.stdout.contains("COMPARISON"), "{}", output.stdout);
    directory
}

#[test]
fn the_page_is_complete_and_asks_for_nothing_else() {
    let directory = hostile_page();
    let mut browser = Browser::start();
    let url = open(&mut browser, &directory, (1280, 900), "light");
    let ids = browser.evaluate("[...document.querySelectorAll('section')].map(section => section.id)");
    let expected = [
        "summary",
        "comparison",
        "traffic-0",
        "limits-0",
        "suggestion-0-0",
        "suggestion-1-0",
        "traffic-1",
        "limits-1",
        // The limit has other numbers there, so other lines are suggested.
        "suggestion-0-1",
        "logs",
    ];
    assert_eq!(ids, json!(expected));
    let links = browser.evaluate("[...document.querySelectorAll('nav a')].map(link => link.hash.slice(1))");
    assert_eq!(links, json!(expected));
    let levels = browser
        .evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(heading => +heading.tagName[1])");
    let levels: Vec<u64> = levels.as_array().unwrap().iter().map(|level| level.as_u64().unwrap()).collect();
    assert_eq!(levels[0], 1);
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    // The key and the bad line are texts.
    for selector in ["#limits-0 td, #limits-0 th", "#logs td"] {
        let texts = format!(
            "[...document.querySelectorAll({})].some(cell => cell.innerText.includes({}))",
            json!(selector),
            json!(HOSTILE)
        );
        assert_eq!(browser.evaluate(&texts), true, "{selector}");
    }
    assert_eq!(
        browser.evaluate("document.querySelectorAll('script, img, iframe, object, link, [style]').length"),
        0
    );
    assert_eq!(browser.evaluate("document.title"), "Replay of access logs with before.toml and after.toml");
    assert_eq!(browser.problems(), Vec::<String>::new());
    assert_eq!(browser.requested(), [url]);
}

#[test]
fn the_page_fits_and_has_contrast_in_both_modes_and_all_widths() {
    let directory = hostile_page();
    let mut browser = Browser::start();
    for scheme in ["light", "dark"] {
        for size in [(320, 640), (768, 900), (1280, 900)] {
            open(&mut browser, &directory, size, scheme);
            assert_eq!(browser.low_contrast(), json!([]), "{scheme} {size:?}");
            assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), size.0, "{scheme}");
            // The paper follows the mode: the style sheet is in effect.
            let paper =
                browser.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor");
            assert_eq!(paper == "rgb(255, 255, 255)", scheme == "light", "{paper}");
            let overlaps = browser.evaluate(OVERLAPS);
            assert_eq!(overlaps, json!([]), "{scheme} {size:?}");
        }
    }
}

/// Labels of a chart that are on top of each other.
const OVERLAPS: &str = r"[...document.querySelectorAll('.chart')].flatMap((chart) => {
    const texts = [...chart.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
    return texts.flatMap(([one, a], index) => texts.slice(index + 1)
        .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        .map(([other]) => `${one} and ${other}`));
})";

#[test]
fn pictures_and_tables_have_names() {
    let directory = hostile_page();
    let mut browser = Browser::start();
    open(&mut browser, &directory, (1280, 900), "light");
    browser.send("Accessibility.enable", &json!({}));
    let tree = browser.send("Accessibility.getFullAXTree", &json!({}));
    let mut counts = [("image", 0), ("table", 0), ("region", 0), ("link", 0)];
    for node in tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != true) {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let Some(count) = counts.iter_mut().find(|(name, _)| *name == role) else { continue };
        count.1 += 1;
        let name = node["name"]["value"].as_str().unwrap_or_default();
        assert!(!name.trim().is_empty(), "{role}: {node}");
    }
    let charts = browser.evaluate("document.querySelectorAll('svg[role=img]').length");
    assert_eq!(counts[0].1, charts.as_u64().unwrap(), "{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count >= 9), "{counts:?}");
    // Each chart is described in words.
    let described = browser.evaluate(
        "[...document.querySelectorAll('.chart > desc')].every(desc => desc.textContent.length > 10)",
    );
    assert_eq!(described, Value::Bool(true));
}

#[test]
fn a_page_that_cannot_be_written_is_an_error() {
    let directory = folder(1, &[(ClientKind::Poller, 1)]);
    let output = tidegate(directory.path(), &["replay", "--html", "missing/report.html", "access.log"]);
    assert_eq!((output.status, &*output.stdout), (1, ""));
    assert!(output.stderr.starts_with("error: can't write to missing/report.html: "), "{}", output.stderr);
}

/// `make pictures` takes it again, of the week that docs/choosing-limits.md is about.
#[test]
fn the_picture_shows_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = TraceSettings::default();
    if std::env::var_os("UPDATE").is_none() {
        // The whole week takes minutes.
        settings = TraceSettings { days: 1, clients: vec![(ClientKind::Browser, 50)], ..settings };
    }
    write_trace(&directory, &settings);
    let output = tidegate(directory.path(), &["replay", "--html", "report.html", "access.log"]);
    assert_eq!(output.status, 0, "{}", output.stderr);
    let mut browser = Browser::start();
    let size = (1000, 1160);
    open(&mut browser, &directory, size, "light");
    keep_picture("replay.png", size, &browser.picture());
}
