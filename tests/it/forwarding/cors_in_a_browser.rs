//! CORS with a real browser: what a page can read.

use serde_json::Value;

use crate::consumers::setup::{CONSUMERS, ConsumersFile};
use crate::support::{Page, Tidegate, Upstream};

#[test]
fn a_page_reads_the_responses_of_the_proxy_and_its_rate_headers() {
    let page = Page::new(
        "const api = location.hash.slice(1);
         const headers = { 'x-api-key': 'k-2' };
         return {
           first: await ask(api + '/orders', { headers }),
           second: await ask(api + '/orders', { method: 'DELETE', headers }),
           third: await ask(api + '/orders', { headers }),
           stranger: await ask(api + '/orders'),
           nowhere: await ask(api + '/nowhere', { headers }),
           down: await ask(api + '/down', { headers }),
           unlisted: await ask(api + '/orders', { method: 'PATCH', headers }),
         };",
    );
    let server = Upstream::echo();
    let file = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!(
        "{}[cors]\norigins = [\"{}\"]\nmethods = [\"DELETE\"]\n\
         [limits.each]\nrate = \"2/hour\"\nkey = \"consumer\"\n\
         [[routes]]\npath = \"/orders\"\nlimits = [\"each\"]\nupstream = \"{}\"\n\
         [[routes]]\npath = \"/down\"\nupstream = \"{}\"\n",
        file.table(""),
        page.origin(),
        server.url(),
        crate::upstream::setup::refusing_url(),
    ));
    let result = page.run(&proxy.url(""));
    let header = |step: &str, name: &str| result[step]["headers"][name].as_str().map(str::to_owned);
    for (step, status) in
        [("first", 200), ("second", 200), ("third", 429), ("stranger", 401), ("nowhere", 404), ("down", 502)]
    {
        assert_eq!(result[step]["status"], status, "{step}: {result:#}");
    }
    assert_eq!(header("first", "x-ratelimit-remaining").as_deref(), Some("1"), "{result:#}");
    assert_eq!(header("third", "x-ratelimit-limit").as_deref(), Some("2"), "{result:#}");
    let retry_after: u64 = header("third", "retry-after").unwrap().parse().unwrap();
    assert!((1..=1_800).contains(&retry_after), "{retry_after}");
    let problem: Value = serde_json::from_str(result["third"]["body"].as_str().unwrap()).unwrap();
    assert_eq!(problem["status"], 429);
    // Its preflight does not allow the method.
    assert!(result["unlisted"]["error"].is_string(), "{result:#}");
}

#[test]
fn a_page_of_another_origin_reads_nothing() {
    let page = Page::new("return await ask(location.hash.slice(1) + '/');");
    let proxy = Tidegate::start(
        "[cors]\norigins = [\"https://app.example.com\"]\n[[routes]]\npath = \"/*\"\nrespond = { body = \"secret\" }\n",
    );
    let result = page.run(&proxy.url(""));
    assert!(result["error"].is_string(), "{result:#}");
}
