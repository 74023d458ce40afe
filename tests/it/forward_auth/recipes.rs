//! The recipes of docs/forward-auth.md with the real nginx, Traefik and Caddy: what clients get, what servers get, and what
//! clients can't forge.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::consumers::setup::{CONSUMERS, ConsumersFile};
use crate::support::{Client, Message, Tidegate, Upstream, WebServer, eventually};

/// A request that finds out whether a server is ready.
const READY: &[u8] = b"GET /status HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n";

/// Headers that only a proxy may send: those that tidegate itself would remove.
const FORGED: [&str; 36] = [
    "X-Consumer-Name",
    "X-Consumer-Tier",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Method",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Forwarded-Uri",
    "X-Forwarded",
    "Forwarded",
    "Forwarded-For",
    "X-Original-Forwarded-For",
    "X-Original-Host",
    "X-Original-Method",
    "X-Original-URI",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-HTTP-Method",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "X-Host",
    "X-Real-IP",
    "X-Client-IP",
    "Client-IP",
    "X-Cluster-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-ProxyUser-Ip",
    "X-Envoy-External-Address",
    "Front-End-Https",
    "X-Scheme",
    "Proxy",
];

/// The first block of the page with this info string.
fn recipe(info: &str) -> String {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/forward-auth.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{info}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Tidegate with the file of the page, in which nothing refills while a test runs, and with consumers.
fn tidegate(keys: &str, consumers: &ConsumersFile) -> Tidegate {
    let file = recipe("toml").replace("30/minute", "60/hour").replace("127.0.0.1:8080", "127.0.0.1:0");
    let file = file.replace("\"decide\"\n", &format!("\"decide\"\n{keys}\n"));
    Tidegate::start(&(file + &consumers.table("unknown = \"anonymous\"")))
}

/// A proxy in front of a server, which sends authorization requests to tidegate.
struct Front {
    server: WebServer,
    upstream: Upstream,
    _tidegate: Tidegate,
    _consumers: ConsumersFile,
}

impl Front {
    /// Starts a program with a recipe: `configure` writes it to a directory for a port, and returns the arguments.
    fn start(
        program: &str,
        (info, keys): (&str, &str),
        configure: impl Fn(&Path, u16, &str) -> Vec<String>,
    ) -> Self {
        let consumers = ConsumersFile::new(CONSUMERS);
        let (tidegate, upstream) = (tidegate(keys, &consumers), Upstream::echo());
        let recipe = recipe(info)
            .replace("127.0.0.1:8080", &tidegate.addr().to_string())
            .replace("127.0.0.1:9000", &upstream.addr().to_string());
        let server = WebServer::start(program, READY, |directory, port| configure(directory, port, &recipe));
        let front = Self { server, upstream, _tidegate: tidegate, _consumers: consumers };
        eventually("the proxy forwards", || front.get("127.0.0.1", "/status", &[]).status() == 200);
        front
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr(Ipv4Addr::LOCALHOST.into())
    }

    /// The response to a request from this address.
    fn get(&self, client: &str, target: &str, headers: &[&str]) -> Message {
        let has_host = headers.iter().any(|header| header.starts_with("Host:"));
        let host = ["Host: api.test"].iter().filter(|_| !has_host);
        let headers: Vec<&str> = host.chain(headers).copied().collect();
        Client::connect_from(client, self.addr()).get(target, &headers)
    }

    /// Plays the same requests in front of each proxy. Returns the response to the first one.
    fn check(&self) -> Message {
        let client = "127.0.0.5";
        let first = self.get(client, "/orders?x=1", &[]);
        assert_eq!(first.status(), 200);
        assert!(first.echoed().start.starts_with("GET /orders?x=1 "), "{first:?}");
        for _ in 0..4 {
            assert_eq!(self.get(client, "/orders", &[]).status(), 200);
        }
        let served = self.upstream.requests().len();
        let denied = self.get(client, "/orders", &[]);
        assert_eq!(denied.status(), 429);
        let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{denied:?}");
        assert_eq!(denied.header("x-ratelimit-limit"), Some("5"));
        assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
        assert_eq!(self.get("127.0.0.6", "/internal/x", &[]).status(), 403);
        assert_eq!(self.get("127.0.0.6", "/%69nternal/x", &[]).status(), 403);
        for forged in [
            "X-Forwarded-For: 192.0.2.9",
            "X-Forwarded-Uri: /status",
            "X-Forwarded-Method: OPTIONS",
            "X-Forwarded-Host: other.test",
            "X-Original-URI: /status",
            "X-Original-URL: http://api.test/status",
            "X-Original-Method: OPTIONS",
            "X-Real-IP: 192.0.2.9",
            "Forwarded: for=192.0.2.9",
            "X_Forwarded_Uri: /status",
            "Content-Length: 0",
        ] {
            let response = self.get(client, "/orders", &[forged]);
            assert!([400, 429].contains(&response.status()), "{forged}: {response:?}");
        }
        assert_eq!(self.upstream.requests().len(), served, "nothing of this is served");
        self.check_headers_of_clients();
        assert_eq!(self.get(client, "/status", &[]).status(), 200);
        assert_eq!(self.get("127.0.0.6", "/orders", &[]).status(), 200);
        first
    }
}

impl Front {
    /// The server gets no header that only a proxy may send, but those of the decision.
    fn check_headers_of_clients(&self) {
        let client = "127.0.0.8";
        for name in FORGED {
            let lines = [&*format!("{name}: forged"), &format!("{}: forged", name.to_lowercase())];
            for sent in [&lines[..1], &lines] {
                let response = self.get(client, "/status", sent);
                let is_clean = || !response.text().contains("forged");
                assert!(response.status() == 200 && is_clean(), "{sent:?}: {response:?}");
            }
            // A server that reads headers from variables would take it for the other one.
            let variant = self.get(client, "/status", &[&format!("{}: forged", name.replace('-', "_"))]);
            let is_variant = name.contains('-');
            let is_clean = || variant.status() == 200 && !variant.text().contains("forged");
            assert!(variant.status() == 400 && is_variant || is_clean(), "{name}: {variant:?}");
        }
        for (sent, name, tier) in [
            (&["X-Api-Key: k-2"][..], Some("acme"), Some("pro")),
            (&["X-Api-Key: s-1", "X-Consumer-Tier: pro"], Some("small"), None),
            (&["X-Consumer-Name: acme", "X-Consumer-Tier: pro"], None, None),
        ] {
            let echoed = self.get(client, "/status", sent).echoed();
            let found = ["x-consumer-name", "x-consumer-tier"]
                .map(|name| echoed.header(name).filter(|value| !value.is_empty()));
            assert_eq!(found, [name, tier], "{sent:?}");
        }
        assert_eq!(self.get(client, "/status", &["X-Api-Key: b-1"]).status(), 403);
        let twin = self.get(client, "/status", &["X-Api-Key: k-2", "X_Api_Key: b-1"]);
        assert!(twin.status() == 400 || !twin.text().contains("b-1"), "{twin:?}");
    }
}

#[test]
fn nginx_asks_before_it_serves() {
    let front = Front::start("nginx", ("nginx", "deny_status = 403"), |directory, port, recipe| {
        let site = recipe.replace("listen 80;", &format!("listen 127.0.0.1:{port};"));
        let paths = "client_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\n\
                     uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n";
        let file = format!(
            "daemon off;\nmaster_process off;\nuser root;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\n\
             http {{\naccess_log off;\n{paths}{site}}}\n"
        );
        fs::write(directory.join("nginx.conf"), file).unwrap();
        ["-p", directory.to_str().unwrap(), "-c", "nginx.conf", "-e", "stderr"].map(str::to_owned).to_vec()
    });
    let first = front.check();
    assert_eq!(first.header("x-ratelimit-limit"), Some("5"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("4"));
    // A target in absolute form, of which nginx takes the path.
    let response = front.get("127.0.0.7", "http://api.test/internal/x", &[]);
    assert_eq!(response.status(), 403);
    // A host that would move the path, if it were joined with the target.
    for host in ["Host: a?/status", "Host: a#", "Host: a@b"] {
        assert_ne!(front.get("127.0.0.5", "/orders", &[host]).status(), 200, "{host}");
    }
}

#[test]
fn traefik_asks_before_it_serves() {
    let front = Front::start("traefik", ("yaml", ""), |directory, port, recipe| {
        fs::write(directory.join("dynamic.yaml"), recipe).unwrap();
        let entry = format!("--entryPoints.web.address=127.0.0.1:{port}");
        let provider = "--providers.file.filename=dynamic.yaml".to_owned();
        let quiet =
            ["--global.checkNewVersion=false", "--global.sendAnonymousUsage=false", "--log.level=ERROR"];
        [entry, provider].into_iter().chain(quiet.map(str::to_owned)).collect()
    });
    let first = front.check();
    assert_eq!(first.echoed().header("x-ratelimit-remaining"), Some("4"));
    assert!(front.get("127.0.0.5", "/orders", &[]).text().contains("quota-exceeded"));
}

/// Caddy with the recipe, in which the first text is replaced by the second.
fn caddy((from, to): (&str, &str)) -> Front {
    Front::start("caddy", ("text", ""), |directory, port, recipe| {
        let site = recipe.replace(":80 {", &format!(":{port} {{\n\tbind 127.0.0.1")).replace(from, to);
        fs::write(directory.join("Caddyfile"), format!("{{\n\tadmin off\n}}\n{site}")).unwrap();
        ["run", "--config", "Caddyfile", "--adapter", "caddyfile"].map(str::to_owned).to_vec()
    })
}

#[test]
fn caddy_asks_before_it_serves() {
    let front = caddy(("", ""));
    let first = front.check();
    assert_eq!(first.echoed().header("x-ratelimit-remaining"), Some("4"));
    assert!(front.get("127.0.0.5", "/orders", &[]).text().contains("quota-exceeded"));
    // A request that no limit counts: Caddy 2.6 sends the name of the placeholder.
    let unlimited = front.get("127.0.0.5", "/status", &[]).echoed();
    let placeholder = "{http.reverse_proxy.header.X-Ratelimit-Remaining}";
    assert!([None, Some(placeholder)].contains(&unlimited.header("x-ratelimit-remaining")), "{unlimited:?}");
}

/// `handle` sorts directives in Caddy's own order, as without a block.
#[test]
fn without_route_caddy_removes_what_the_decision_says() {
    let consumer = |front: &Front| {
        let echoed = front.get("127.0.0.5", "/status", &["X-Api-Key: k-2"]).echoed();
        echoed.header("x-consumer-name").map(str::to_owned)
    };
    assert_eq!(consumer(&caddy(("", ""))).as_deref(), Some("acme"));
    assert_eq!(consumer(&caddy(("route {", "handle {"))), None);
}
