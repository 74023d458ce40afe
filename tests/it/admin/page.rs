//! The page of the admin interface, in a real browser.

use serde_json::Value;

use crate::support::{Browser, Client, Tidegate, Upstream, eventually, free_address, get};

/// A limit by user and one by address; both routes have them.
const LIMITED: &str = r#"
    [limits.per-user]
    rate = "3/hour"
    key = "header:x-user"
    [limits.per-address]
    rate = "100000/hour"
    [[routes]]
    name = "orders"
    path = "/orders"
    limits = ["per-user", "per-address"]
    respond = { status = 200 }
    [[routes]]
    name = "broken"
    path = "/broken"
    respond = { status = 503 }
"#;

const DENIED: &str = "#denied-rows button";

/// A configuration with an admin interface and these lines in its table.
pub fn config(admin: &str, rest: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\nkeys = \"plain\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n{rest}"
    )
}

/// A proxy that has denied two of five requests of this user.
fn denying(user: &str) -> Tidegate {
    let proxy = Tidegate::start(&config("", LIMITED));
    send(&proxy, user, 5);
    proxy
}

fn send(proxy: &Tidegate, user: &str, count: usize) {
    for _ in 0..count {
        get(proxy.addr(), "/orders", &[&format!("X-User: {user}")]);
    }
}

pub fn url(proxy: &Tidegate) -> String {
    format!("http://{}/", proxy.admin())
}

/// Opens the page, and waits until it has shown the history.
#[track_caller]
pub fn open(proxy: &Tidegate) -> Browser {
    let mut browser = Browser::start();
    browser.show_as((1280, 900), "light");
    browser.open(&url(proxy));
    browser.wait_text("#connection", "Connected");
    browser.wait("document.querySelectorAll('#findings li').length > 0");
    browser
}

/// Clicks on an action of the inspected key, and confirms the dialog.
#[track_caller]
fn confirm(browser: &mut Browser, action: &str) {
    browser.click(&format!("[data-action={action}]"));
    browser.click("#confirm-submit");
    browser.wait("!document.querySelector('#confirm').open");
}

fn raises(proxy: &Tidegate) -> Value {
    let list: Value = serde_json::from_str(get(proxy.admin(), "/v1/keys/raises", &[]).text()).unwrap();
    list["raises"].clone()
}

#[test]
fn denials_since_the_start_are_not_said_to_last_an_hour() {
    let proxy = denying("eve");
    let mut browser = open(&proxy);
    browser.wait("document.querySelector('#findings').textContent.includes('since the start, ')");
    let findings = browser.text("#findings");
    assert!(findings.contains("Limit per-user denies") && findings.contains(" s ago"), "{findings}");
}

#[test]
fn it_is_one_document_with_a_strict_policy() {
    let proxy = Tidegate::start(&config("token = \"s3cret-admin-t0ken\"", LIMITED));
    let page = get(proxy.admin(), "/", &[]);
    assert_eq!((page.status(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    let directives: Vec<&str> = policy.split("; ").collect();
    for directive in [
        "default-src 'none'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ] {
        assert!(directives.contains(&directive), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    // The token is for data, which the page has none of.
    assert!(!page.text().contains("per-user") && !page.text().contains("per-address"));
    assert!(get(proxy.admin(), "/?x=1", &[]).status() == 200);
    let open = Tidegate::start(&config("", LIMITED));
    assert_eq!(get(open.admin(), "/", &["Host: evil.example"]).status(), 403);
}

#[test]
fn it_loads_without_errors_and_asks_no_other_server() {
    let proxy = denying("alice");
    get(proxy.addr(), "/broken", &[]);
    let mut browser = open(&proxy);
    browser.wait_text("#limits-rows", "per-user");
    browser.wait_text("#routes-rows", "broken");
    browser.wait_text("#denied-rows", "alice");
    browser.wait_text("#findings", "Limit per-user denies");
    browser.wait_text("#store-facts", "in this process");
    browser.wait("document.querySelectorAll('#traffic svg path').length >= 4");
    assert_eq!(browser.problems(), Vec::<String>::new());
    let own = url(&proxy);
    let others: Vec<String> = browser.requested();
    assert!(others.iter().any(|url| url.ends_with("/v1/events")), "{others:?}");
    for requested in others {
        assert!(requested.starts_with(&own) || requested.starts_with("data:"), "{requested}");
    }
}

#[test]
fn numbers_follow_the_traffic() {
    let proxy = Tidegate::start(&config("", LIMITED));
    let mut browser = open(&proxy);
    browser.wait_text("#findings", "No requests in the last minute");
    browser.wait_text("#denied-note", "No denials in the last 10 minutes.");
    browser.wait_text("#limits-note", "No decisions in the last 10 minutes.");
    browser.wait_text("#upstreams-note", "No upstream is configured.");
    send(&proxy, "bob", 6);
    browser.wait_text("#limits-rows", "per-user");
    browser.wait_text("#findings", "Limit per-user denies");
    browser.wait_text("#denied-rows", "bob");
    browser.wait_text("#denied-rows", "100 %");
}

#[test]
fn a_denied_key_leads_to_its_state_and_the_address_can_be_shared() {
    let proxy = denying("alice");
    let mut browser = open(&proxy);
    browser.click(DENIED);
    browser.wait_text(".verdict", "Denied: its quota is used up");
    browser.wait_text(".standing", "0 of 3 units left");
    browser.wait_text(".history", "5 requests, 2 denied");
    assert_eq!(browser.text(".identity .key"), "alice");
    let shared = browser.evaluate("location.href").as_str().unwrap().to_owned();
    assert!(shared.contains("#limit=per-user&key=tag"), "{shared}");
    browser.open(&shared);
    browser.wait_text(".verdict", "Denied: its quota is used up");
    // By hand, as the customer has told it.
    browser.open(&url(&proxy));
    browser.wait_text("#connection", "Connected");
    browser.fill("#lookup-limit", "per-user");
    browser.fill("#lookup-key", "carol");
    browser.press("Enter");
    browser.wait_text(".verdict", "Allowed");
    browser.wait_text(".advice", "It was not denied in the last hour.");
    // The errors of the interface are shown.
    browser.fill("#lookup-limit", "per-usr");
    browser.press("Enter");
    browser.wait_text("#inspector-problem", "unknown limit `per-usr`; did you mean `per-user`?");
}

#[test]
fn a_raise_is_made_once_it_is_confirmed() {
    let proxy = denying("alice");
    let mut browser = open(&proxy);
    browser.click(DENIED);
    browser.click("[data-action=raise]");
    browser.wait("document.querySelector('#confirm').open");
    assert_eq!(browser.text("#confirm-title"), "Raise key alice in limit per-user?");
    browser.fill("#confirm-fields input[name=by]", "3x");
    browser.wait_text(
        "#confirm-text",
        "It gets 3x the numbers of this limit for 1h: 9 units at once, in place of 3.",
    );
    browser.wait_text("#confirm-text", "This applies in this process only.");
    browser.press("Escape");
    browser.wait("!document.querySelector('#confirm').open");
    assert_eq!(raises(&proxy), serde_json::json!([]));

    browser.click("[data-action=raise]");
    browser.fill("#confirm-fields input[name=for]", "1 fortnight");
    browser.click("#confirm-submit");
    browser.wait_text("#confirm-problem", "`1 fortnight` is not a duration");
    browser.fill("#confirm-fields input[name=for]", "2h");
    browser.click("#confirm-submit");
    browser.wait_text(".done", "Key alice: raised by 2x until");
    browser.wait_text(".standing", "Raised by 2x until");
    browser.wait_text(".verdict", "Allowed");
    let raised = raises(&proxy);
    assert_eq!((&raised[0]["limit"], &raised[0]["by"]), (&"per-user".into(), &"2x".into()));
    assert_eq!(get(proxy.addr(), "/orders", &["X-User: alice"]).status(), 200);
    confirm(&mut browser, "end-raise");
    eventually("the raise has ended", || raises(&proxy) == serde_json::json!([]));
}

#[test]
fn a_key_is_blocked_unblocked_and_reset() {
    let proxy = denying("alice");
    let mut browser = open(&proxy);
    let status = || get(proxy.addr(), "/orders", &["X-User: alice"]).status();
    browser.click(DENIED);
    confirm(&mut browser, "reset");
    browser.wait_text(".done", "Key alice: reset");
    browser.wait_text(".verdict", "Allowed");
    assert_eq!(status(), 200);
    confirm(&mut browser, "block");
    browser.wait_text(".verdict", "Denied: blocked until");
    browser.wait_text(".advice", "An operator has blocked it.");
    assert_eq!(status(), 403);
    browser.evaluate("document.querySelector('[data-action=unblock]').focus()");
    confirm(&mut browser, "unblock");
    browser.wait_text(".verdict", "Allowed");
    assert_eq!(status(), 200);
    // The button is hidden now, and the focus is on another one.
    assert_eq!(browser.evaluate("document.querySelector('[data-action=unblock]').hidden"), true);
    assert_eq!(browser.evaluate("document.activeElement.dataset.action"), "reset");
}

#[test]
fn values_of_clients_are_text() {
    let hostile = [
        "<img src=x onerror=\"document.title='run'\">",
        "</td><script>document.title='run'</script>",
        "javascript:document.title='run'",
        "&lt;b&gt;&quot;' style=\"color:red\"",
    ];
    let proxy = Tidegate::start(&config("", LIMITED));
    for user in hostile {
        send(&proxy, user, 4);
    }
    let mut browser = open(&proxy);
    browser.wait("document.querySelectorAll('#denied-rows button').length === 4");
    let shown =
        browser.evaluate("[...document.querySelectorAll('#denied-rows button')].map(b => b.textContent)");
    for user in hostile {
        assert!(shown.as_array().unwrap().iter().any(|text| *text == user), "{user}: {shown}");
    }
    browser.click(DENIED);
    browser.wait_text(".verdict", "Denied");
    browser.click("[data-action=block]");
    browser.wait("document.querySelector('#confirm').open");
    // A link that somebody else has made.
    let link = format!("{}#limit=%3Cimg+src=x+onerror=alert(1)%3E&key={}", url(&proxy), "%3Cscript%3E");
    browser.open(&link);
    browser.wait_text("#inspector-problem", "unknown limit `<img src=x onerror=alert(1)>`");
    assert_eq!(browser.evaluate("document.querySelectorAll('img, script:not([type=module])').length"), 0);
    assert_ne!(browser.evaluate("document.title"), "run");
    let failures = browser.problems();
    // The response 404 to the link's limit.
    assert!(failures.iter().all(|problem| problem.contains("404 (Not Found)")), "{failures:?}");
}

#[test]
fn a_token_is_asked_for_checked_and_kept_for_the_tab() {
    let tokens = "token = \"s3cret-admin-t0ken\"\nread_token = \"s3cret-read-t0ken\"";
    let proxy = Tidegate::start(&config(tokens, LIMITED));
    send(&proxy, "alice", 5);
    let mut browser = Browser::start();
    let enter = |browser: &mut Browser, token: &str| {
        browser.wait("document.querySelector('#token')?.open");
        browser.fill("#token-input", token);
        browser.press("Enter");
    };
    browser.open(&url(&proxy));
    enter(&mut browser, "s3cret-wrong-t0ken");
    browser.wait_text("#token-problem", "wrong token");
    enter(&mut browser, "s3cret-read-t0ken");
    browser.click(DENIED);
    browser.wait_text(".verdict", "Denied");
    assert_eq!(browser.evaluate("document.querySelector('[data-action=reset]').disabled"), true);
    // It is kept for this tab, outside its address.
    let address = browser.evaluate("location.href").as_str().unwrap().to_owned();
    assert!(!address.contains("s3cret"), "{address}");
    browser.open(&address);
    browser.wait_text(".verdict", "Denied");
    browser.click("#change-token");
    enter(&mut browser, "s3cret-admin-t0ken");
    browser.wait("!document.querySelector('[data-action=reset]')?.disabled");
    confirm(&mut browser, "reset");
    browser.wait_text(".verdict", "Allowed");
    assert!(browser.requested().iter().all(|url| !url.contains("s3cret")));
}

#[test]
fn it_connects_again() {
    let address = free_address();
    let config = config("", LIMITED)
        .replace("[admin]\nlisten = \"127.0.0.1:0\"", &format!("[admin]\nlisten = \"{address}\""));
    let proxy = Tidegate::start(&config);
    let mut browser = open(&proxy);
    assert!(proxy.stop().success());
    browser.wait_text("#connection", "Reconnecting");
    let proxy = Tidegate::start(&config);
    send(&proxy, "dave", 5);
    browser.wait_text("#connection", "Connected");
    browser.wait_text("#denied-rows", "dave");
}

/// A proxy with an upstream with the limit 1 at this server, of which a request is in flight, and one is refused.
fn overloaded(server: &Upstream) -> (Tidegate, Client) {
    let upstream = format!("[upstreams.api]\nservers = [\"{}\"]\noverload = {{ limit = 1 }}\n", server.url());
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\npriority = \"low\"\n";
    let proxy = Tidegate::start(&config("", &(upstream + route)));
    let mut first = Client::connect(proxy.addr());
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.received() == 1);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503);
    (proxy, first)
}

#[test]
fn what_an_overloaded_upstream_refuses_is_found() {
    let (server, _release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (proxy, _first) = overloaded(&server);
    let mut browser = open(&proxy);
    browser.wait_text("#findings", "Upstream api refused");
    browser.wait_text("#findings", "(1 low): 1 of 1 requests in flight");
    browser.wait_text("#upstreams-rows", "api, 1 of 1 in flight, refused: 1 low");
}

#[test]
fn the_limit_of_an_upstream_is_drawn_over_its_requests_in_flight() {
    let (server, _release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (proxy, _first) = overloaded(&server);
    let mut browser = open(&proxy);
    browser.wait("document.querySelectorAll('#overload figure').length === 2");
    assert_eq!(browser.evaluate("document.querySelector('#overload').hidden"), false);
    // The requests in flight are an area, and the limit is a line alone.
    browser.wait("document.querySelector('#overload .area.series-flight')?.getAttribute('d').length > 0");
    browser.wait("document.querySelector('#overload .line.series-limit')?.getAttribute('d').length > 0");
    assert_eq!(browser.evaluate("document.querySelectorAll('#overload .area').length"), 1);
    let label = |chart: &str| format!("document.querySelector('#overload figure{chart} svg').ariaLabel");
    browser.wait(&format!(
        "/^api: requests in flight: in flight .*, limit 1; highest in the last hour 1$/.test({})",
        label("")
    ));
    let refused = label(":nth-of-type(2)");
    browser
        .wait(&format!("/^api: refused by class: critical 0.s, high 0.s, normal 0.s, low /.test({refused})"));
    browser.wait(&format!("/; highest in the last hour [0-9.]+.s$/.test({refused})"));
    assert_eq!(browser.problems(), Vec::<String>::new());
    for scheme in ["light", "dark"] {
        for size in [(1280, 900), (320, 640)] {
            browser.show_as(size, scheme);
            browser.wait(&format!("innerWidth === {}", size.0));
            assert_eq!(browser.low_contrast(), serde_json::json!([]), "{scheme}");
            assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), size.0, "{scheme}");
        }
    }
    // An upstream without a limit has no charts.
    let plain = Tidegate::start(&config("", LIMITED));
    let mut browser = open(&plain);
    assert_eq!(browser.evaluate("document.querySelector('#overload').hidden"), true);
}
