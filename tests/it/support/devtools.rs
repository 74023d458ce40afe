//! A real browser without a window, driven by the Chrome `DevTools` Protocol.

use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

use super::browser::headless;
use super::log::Log;
use super::{Process, eventually, patience};

/// The ratios of WCAG 2.2 between each text and what is behind it, below 4.5.
const LOW_CONTRAST: &str = r"(() => {
    const parse = (text) => text.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (node) => {
        for (; node; node = node.parentElement) {
            const colour = parse(getComputedStyle(node).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const low = [];
    for (let text; (text = texts.nextNode());) {
        const node = text.parentElement;
        if (!text.data.trim() || !node.checkVisibility() || node.matches('script, style, noscript, :disabled')) continue;
        const style = getComputedStyle(node);
        const [one, other] = [parse(node.namespaceURI.includes('svg') ? style.fill : style.color), behind(node)].map(light);
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (ratio < 4.5) low.push(`${text.data.trim()}: ${ratio.toFixed(2)}`);
    }
    return low;
})()";

/// A browser with one page.
pub struct Browser {
    _process: Process,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    last_id: u64,
    /// The events of the page, in their order.
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts one with an empty page.
    #[track_caller]
    pub fn start() -> Self {
        let profile = TempDir::new().unwrap();
        let mut process = Process::start(
            headless(profile.path())
                .args(["--hide-scrollbars", "--remote-debugging-port=0", "about:blank"])
                .env("TZ", "UTC")
                .stdout(Stdio::null())
                .stderr(Stdio::piped()),
        );
        let log = Log::of(process.stderr.take().unwrap());
        let mut url = String::new();
        eventually("the browser listens", || {
            let lines = log.lines.lock().unwrap();
            let found = lines.iter().find_map(|line| line.strip_prefix("DevTools listening on "));
            found.unwrap_or_default().clone_into(&mut url);
            !url.is_empty()
        });
        let address: SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        let (socket, _) = tungstenite::client(&url, stream).unwrap();
        let mut browser = Self {
            _process: process,
            socket,
            session: None,
            last_id: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.send("Target.createTarget", &json!({ "url": "about:blank" }));
        let session = browser
            .send("Target.attachToTarget", &json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            browser.send(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Sends a command and returns its result.
    #[track_caller]
    pub fn send(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(command.to_string())).unwrap();
        loop {
            let text = self.socket.read().unwrap().into_text().unwrap();
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] != id {
                self.events.push(message);
                continue;
            }
            assert!(message["error"].is_null(), "{method}: {}", message["error"]);
            return message["result"].take();
        }
    }

    /// Opens a page in place of the present one, and forgets the events of that.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        // Otherwise another fragment would not load the page again.
        self.send("Page.navigate", &json!({ "url": "about:blank" }));
        self.events.clear();
        let opened = self.send("Page.navigate", &json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
    }

    /// Runs a script in every page that is opened from now on, before its own scripts.
    #[track_caller]
    pub fn run_first(&mut self, script: &str) {
        self.send("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script }));
    }

    /// The value of an expression, or of the promise that it returns.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.send("Runtime.evaluate", &params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        eventually(expression, || self.evaluate(&format!("!!({expression})")) == true);
    }

    /// The text of the first element that a selector finds; empty if there is none.
    #[track_caller]
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({})?.innerText ?? ''", json!(selector)));
        text.as_str().unwrap().to_owned()
    }

    /// Waits until the text of an element contains `part`.
    #[track_caller]
    pub fn wait_text(&mut self, selector: &str, part: &str) {
        self.wait(&format!(
            "document.querySelector({})?.innerText.includes({})",
            json!(selector),
            json!(part)
        ));
    }

    /// Clicks on an element.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        self.wait(&format!("document.querySelector({})?.checkVisibility()", json!(selector)));
        self.evaluate(&format!("document.querySelector({}).click()", json!(selector)));
    }

    /// Replaces the value of an input.
    #[track_caller]
    pub fn fill(&mut self, selector: &str, value: &str) {
        self.evaluate(&format!("document.querySelector({}).focus()", json!(selector)));
        self.evaluate("document.activeElement.select()");
        self.send("Input.insertText", &json!({ "text": value }));
    }

    /// Presses a key, such as `Tab` or `Enter`.
    #[track_caller]
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            _ => panic!("unknown key {key}"),
        };
        let kind = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for kind in [kind, "keyUp"] {
            let mut params = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" {
                params["text"] = json!(text);
            }
            self.send("Input.dispatchKeyEvent", &params);
        }
    }

    /// Sets the size of the page and the preferred colour scheme, `light` or `dark`.
    #[track_caller]
    pub fn show_as(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.send("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.send("Emulation.setEmulatedMedia", &features);
    }

    /// The texts whose contrast is below that of WCAG 2.2.
    #[track_caller]
    pub fn low_contrast(&mut self) -> Value {
        self.evaluate(LOW_CONTRAST)
    }

    /// A picture of what is visible, as PNG.
    #[track_caller]
    pub fn picture(&mut self) -> Vec<u8> {
        let picture = self.send("Page.captureScreenshot", &json!({ "format": "png" }));
        BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// Errors, warnings and violations of the Content-Security-Policy since the page was opened.
    #[track_caller]
    pub fn problems(&mut self) -> Vec<String> {
        // Events of the past come before the result of a command.
        self.evaluate("1");
        let is_problem = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" | "Audits.issueAdded" | "Runtime.consoleAPICalled" => true,
            "Log.entryAdded" => event["params"]["entry"]["level"] != "verbose",
            _ => false,
        };
        self.events.iter().filter(is_problem).map(|event| event["params"].to_string()).collect()
    }

    /// The URLs of all requests since the page was opened.
    #[track_caller]
    pub fn requested(&mut self) -> Vec<String> {
        self.evaluate("1");
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }
}
