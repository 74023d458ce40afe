//! Pictures of the page for the documentation. `make pictures` takes them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::consumers::setup::ConsumersFile;
use crate::support::{Browser, Client, RedisServer, Tidegate, Upstream, free_address, keep_picture};

const CONSUMERS: &str = "[acme]\ncredentials = [\"k-1\"]\n[globex]\ncredentials = [\"k-2\"]\n\
                         [initech]\ncredentials = [\"k-3\"]\n[umbrella]\ncredentials = [\"k-4\"]\n\
                         [hooli]\ncredentials = [\"k-5\"]\n";

/// Clients: the key of a consumer, a path, and the requests a second. The rates differ, so that requests do not come together
/// and leave a time in which acme is not denied.
const CLIENTS: [(&str, &str, f64); 8] = [
    ("k-1", "/orders", 5.3),
    ("k-1", "/orders", 4.7),
    ("k-1", "/search", 5.9),
    ("k-2", "/orders", 3.0),
    ("k-3", "/search", 4.0),
    ("k-4", "/orders", 1.5),
    ("k-4", "/search", 1.5),
    ("k-5", "/orders", 2.0),
];

/// Sends requests until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(proxy: &Tidegate) -> Self {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), proxy.addr());
        let client = |(key, path, rate): (&'static str, &'static str, f64)| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut next = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    client.get(path, &[&format!("X-Api-Key: {key}")]);
                    // The rate of a real client is what the pictures show.
                    next += Duration::from_secs_f64(1.0 / rate);
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            })
        };
        let threads = CLIENTS.into_iter().map(client).collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A number that goes up and down, and has some noise that is the same in each picture.
fn wave(slot: u32, base: f64, swing: f64) -> f64 {
    let noise = f64::from(slot.wrapping_mul(2_654_435_761) >> 24) / 256.0 - 0.5;
    base + swing * (f64::from(slot) / 45.0).sin() + swing * noise * 0.6
}

/// The hour before the process was started: denials begin 22 minutes before its end.
fn history() -> Value {
    let start = now() - 3_600.0;
    let frame = |slot: u32| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
        let count = |value: f64| value.max(0.0) as u64;
        let requests = count(wave(slot, 262.0, 30.0));
        let denied = if slot >= 228 { count(wave(slot, 215.0, 9.0)) } else { 0 };
        let errors = if (300..318).contains(&slot) { 6 } else { 0 };
        json!({
            "time": start + 10.0 * f64::from(slot + 1), "seconds": 10, "requests": requests,
            "responses": { "1xx": 0, "2xx": requests - denied - errors, "3xx": 0, "4xx": 0, "429": denied,
                "5xx": errors, "none": 0 },
            "decisions": {}, "latency": { "p50": wave(slot, 0.0042, 0.0006), "p99": wave(slot, 0.031, 0.009) },
            "limits": [{ "name": "per-consumer",
                "decisions": { "allowed": requests - denied, "near_limit": requests / 40, "denied": denied } }],
            "routes": [{ "name": "orders", "requests": requests / 2, "429": denied, "5xx": 0,
                "latency": { "p50": 0.0041, "p99": 0.028 } }],
            "limits_left_out": 0, "routes_left_out": 0, "connections": 6, "upstreams": [], "servers_left_out": 0,
            "store": { "kind": "redis", "state": "up", "breakers_open": 0, "calls": requests / 2,
                "requests": requests, "errors": 0, "owed_keys": 0, "owed_units": 0 },
        })
    };
    json!({ "seconds": 10, "frames": (0..359).map(frame).collect::<Vec<_>>() })
}

/// The last hour of a key.
fn key_history(tag: &str) -> Value {
    let spans = [(300_u32, 10_u32), (60, 9), (10, 6)];
    let mut from = now() - 3_600.0;
    let mut slots = Vec::new();
    for (seconds, count) in spans {
        for _ in 0..count {
            let is_late = from > now() - 1_330.0;
            let (requests, denials) =
                if is_late { (seconds * 15, seconds * 14) } else { (seconds * 3 / 4, 0) };
            slots.push(json!({ "from": from, "seconds": seconds, "requests": requests, "denials": denials }));
            from += f64::from(seconds);
        }
    }
    json!({ "limit": "per-consumer", "key": tag, "mode": "enforce", "max_error": 0, "slots": slots })
}

/// Gives the page the last hour, which the process has not served. All else is what it reports.
fn replace_history(browser: &mut Browser, tag: &str) {
    let replaced = json!({ "/v1/history": history(), "/v1/keys/history": key_history(tag) });
    browser.run_first(&format!(
        "const [real, replaced] = [fetch, {replaced}];\
         window.fetch = async (url, options) => {{\
             const body = replaced[String(url).split('?')[0]];\
             return body ? new Response(JSON.stringify(body)) : real(url, options);\
         }};"
    ));
}

#[test]
fn the_pictures_show_the_page() {
    let consumers = ConsumersFile::new(CONSUMERS);
    let (redis, one, other) = (RedisServer::start(), Upstream::echo(), Upstream::echo());
    let config = format!(
        "listen = \"127.0.0.1:0\"\n{}[log]\naccess = \"off\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\ntimeout = \"5s\"\n\
         [limits.per-consumer]\nrate = \"20/minute\"\nburst = 5\nkey = \"consumer\"\n\
         [limits.search]\nrate = \"600/minute\"\n\
         [upstreams.orders]\nservers = [\"{}\", \"http://{}\"]\nhealth = {{ path = \"/healthz\", interval = \"1s\" }}\n\
         [upstreams.search]\nservers = [\"{}\"]\n\
         [[routes]]\nname = \"orders\"\npath = \"/orders\"\nlimits = [\"per-consumer\"]\nupstream = \"orders\"\n\
         [[routes]]\nname = \"search\"\npath = \"/search\"\nlimits = [\"per-consumer\", \"search\"]\nupstream = \"search\"\n",
        consumers.table("credential = \"header:x-api-key\""),
        redis.url(),
        one.url(),
        free_address(),
        other.url(),
    );
    let proxy = Tidegate::start(&config);
    let _load = Load::start(&proxy);
    let mut browser = Browser::start();
    browser.show_as((1280, 900), "light");
    let link = format!("http://{}/#limit=per-consumer&consumer=acme", proxy.admin());
    browser.open(&link);
    browser.wait_text("#findings", "Upstream orders");
    browser.wait_text("#denied-rows", "hooli");
    browser.wait_text(".identity", "tag:");
    let tag = browser.text(".identity :last-child");
    replace_history(&mut browser, &tag);
    for (width, size) in [("wide", (1280, 900)), ("phone", (390, 844))] {
        for scheme in ["light", "dark"] {
            browser.show_as(size, scheme);
            browser.open(&link);
            browser.wait_text(".verdict", "Denied");
            browser.wait_text("#findings", "acme");
            browser.wait_text("#denied-rows", "globex");
            // What differs between two runs.
            browser.evaluate(
                "scrollTo(0, 0); document.querySelector('#host').textContent = '127.0.0.1:9900';\
                 document.querySelector('#facts dd').textContent = '3 d 4 h'",
            );
            let picture = browser.picture();
            keep_picture(&format!("page-{scheme}-{width}.png"), size, &picture);
        }
    }
}
