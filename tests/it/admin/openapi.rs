//! docs/openapi.json describes what the admin interface does: each of its examples is sent, and each response compared with
//! its schema.

mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};

use serde_json::Value;

use self::servers::{limited, priced, refuse_each_class};
use super::events::EventStream;
use crate::consumers::setup::ConsumersFile;
use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, get, schema_problems};

/// The limit and the address of the examples, beside a limit with all that a limit can have.
const CONFIG: &str = r#"
    listen = "127.0.0.1:0"
    [client_ip]
    header = "x-forwarded-for"
    trusted_proxies = ["127.0.0.0/8"]
    [log]
    keys = "plain"
    [admin]
    listen = "127.0.0.1:0"
    token = "s3cret-admin-t0ken"
    read_token = "s3cret-read-t0ken"
    [limits.per-address]
    rate = "2/hour"
    [limits.per-method]
    algorithm = "gcra"
    rate = "1/hour"
    cost = "header:x-cost"
    key = ["method"]
    tiers = { by = "method", POST = { burst = 9 } }
    overrides = { PUT = { burst = 19 } }
    mode = "shadow"
    [[routes]]
    path = "/"
    limits = ["per-address", "per-method"]
    respond = { status = 204 }
"#;

const CONSUMERS: &str = "[acme]\ncredentials = [\"k-1\"]\n[zeta]\ncredentials = [\"k-2\"]\n";

fn document() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    // Clients have to ignore properties that they don't know. Here each must be described.
    for (_, schema) in document["components"]["schemas"].as_object_mut().unwrap() {
        schema["additionalProperties"] = Value::Bool(false);
    }
    document
}

/// Sends a request with this token.
fn ask(admin: SocketAddr, line: &str, token: &str, body: Option<&str>) -> Message {
    let body = body.unwrap_or_default();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = Client::connect(admin);
    if line == "GET /v1/events" {
        // Its body does not end.
        client.send(request);
        return client.read_head().unwrap().unwrap();
    }
    client.ask(&request)
}

/// The request of an operation's examples: its line and its body.
fn example(path: &str, method: &str, operation: &Value) -> (String, Option<String>) {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let text = match &parameter["example"] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        query.append_pair(parameter["name"].as_str().unwrap(), &text);
    }
    let query = query.finish();
    let mark = if query.is_empty() { "" } else { "?" };
    let body = &operation["requestBody"]["content"]["application/json"]["example"];
    let body = (!body.is_null()).then(|| body.to_string());
    (format!("{} {path}{mark}{query}", method.to_uppercase()), body)
}

/// Compares a response with what the document says of this status.
#[track_caller]
fn assert_described(document: &Value, operation: &Value, response: &Message) -> Option<Value> {
    let status = response.status().to_string();
    let mut described = &operation["responses"][&status];
    assert!(!described.is_null(), "{status} is not described: {}", response.text());
    if let Some(reference) = described["$ref"].as_str() {
        described = document.pointer(reference.trim_start_matches('#')).unwrap();
    }
    let kind = response.header("content-type").unwrap();
    let content = &described["content"][kind];
    assert!(!content.is_null(), "{kind} is not described: {described}");
    if kind != "application/json" {
        return None;
    }
    let value: Value = serde_json::from_str(response.text()).unwrap();
    if content["schema"]["$ref"].is_string() {
        let problems = schema_problems(&content["schema"], &value, document);
        assert!(problems.is_empty(), "{problems:?}: {value}");
    }
    Some(value)
}

/// Collects the properties that a value has, as `SCHEMA.NAME`.
fn collect(document: &Value, schema: &Value, value: &Value, seen: &mut BTreeSet<String>) {
    if let Some(items) = value.as_array() {
        for item in items {
            collect(document, &schema["items"], item, seen);
        }
    }
    if value.is_object() {
        schema["anyOf"].as_array().into_iter().flatten().for_each(|one| collect(document, one, value, seen));
    }
    let Some(reference) = schema["$ref"].as_str() else { return };
    let target = document.pointer(reference.trim_start_matches('#')).unwrap();
    let name = reference.rsplit('/').next().unwrap();
    for (property, value) in value.as_object().unwrap() {
        seen.insert(format!("{name}.{property}"));
        collect(document, &target["properties"][property], value, seen);
    }
}

/// A proxy that has denied the key of the examples to two consumers, and another key to one; and the file of consumers, which it
/// reads again when it reloads.
fn proxy() -> (Tidegate, ConsumersFile) {
    let consumers = ConsumersFile::new(CONSUMERS);
    let proxy = Tidegate::start(&format!("{CONFIG}{}", consumers.table("credential = \"header:x-api-key\"")));
    let send = |method: &str, address: &str, key: &str| {
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {address}\r\nX-Api-Key: {key}\r\n\
             X-Cost: 1\r\nContent-Length: 0\r\n\r\n"
        );
        Client::connect(proxy.addr()).ask(&request).status()
    };
    let statuses = ["k-1", "k-1", "k-1", "k-2"].map(|key| send("GET", "192.0.2.7", key));
    assert_eq!(statuses, [204, 204, 429, 429]);
    let statuses = ["POST", "GET", "GET"].map(|method| send(method, "192.0.2.8", "k-1"));
    assert_eq!(statuses, [204, 204, 429]);
    (proxy, consumers)
}

#[test]
fn every_example_gets_the_response_that_is_described() {
    let (document, (proxy, _consumers)) = (document(), proxy());
    let admin = proxy.admin();
    let mut operations = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations.insert(format!("{method} {path}"), (path, method, operation));
        }
    }
    // The order in which each finds something to show. A reset would leave nothing that was denied.
    let order = [
        "get /v1/top",
        "get /v1/keys/denied",
        "post /v1/keys/block",
        "post /v1/keys/raise",
        "get /v1/keys/raises",
        "get /v1/keys/peek",
        "get /v1/keys",
        "post /v1/keys/end-raise",
        "post /v1/keys/unblock",
        "post /v1/keys/reset",
    ];
    let rest = operations.keys().filter(|name| !order.contains(&name.as_str())).cloned();
    let all: Vec<String> = order.iter().map(ToString::to_string).chain(rest).collect();
    let mut seen = BTreeSet::new();
    for name in &all {
        let (path, method, operation) = operations[name];
        let (line, body) = example(path, method, operation);
        let response = ask(admin, &line, "s3cret-admin-t0ken", body.as_deref());
        assert_eq!(response.status(), 200, "{line}: {}", response.text());
        let value = assert_described(&document, operation, &response);
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        if let Some(value) = value.filter(|_| schema["$ref"].is_string()) {
            collect(&document, schema, &value, &mut seen);
        }
    }
    // A limit with tiers, which is not that of the examples.
    let keys = ask(admin, "GET /v1/keys", "s3cret-admin-t0ken", None);
    let value = assert_described(&document, operations["get /v1/keys"].2, &keys).unwrap();
    collect(&document, &serde_json::json!({"$ref": "#/components/schemas/KeyList"}), &value, &mut seen);
    collect_events(&document, &mut seen);
    collect_reloads(&document, &mut seen);
    let mut described = described_properties(&document);
    #[cfg(feature = "acme")]
    collect_certificates(&document, &mut seen);
    if cfg!(not(feature = "acme")) {
        described.retain(|property| !property.starts_with("Acme") && property != "Status.acme");
    }
    assert_eq!(seen, described);
}

#[test]
fn a_parameter_is_required_if_no_request_succeeds_without_it() {
    let (document, (proxy, _consumers)) = (document(), proxy());
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(operation) = methods.get("get").filter(|_| path.starts_with("/v1/")) else { continue };
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for (index, parameter) in parameters.iter().enumerate() {
            let mut others = operation.clone();
            others["parameters"].as_array_mut().unwrap().remove(index);
            let (line, _) = example(path, "get", &others);
            let status = ask(proxy.admin(), &line, "s3cret-admin-t0ken", None).status();
            let expected = if parameter["required"].as_bool().unwrap() { 400 } else { 200 };
            assert_eq!(status, expected, "{line} without {}", parameter["name"]);
        }
    }
}

/// Compares the state of a process that obtains certificates with its schema.
#[cfg(feature = "acme")]
fn collect_certificates(document: &Value, seen: &mut BTreeSet<String>) {
    let (proxy, _storage) = crate::acme::setup::without_server();
    let response = ask(proxy.admin(), "GET /v1/status", "", None);
    let value = assert_described(document, &document["paths"]["/v1/status"]["get"], &response).unwrap();
    collect(document, &serde_json::json!({ "$ref": "#/components/schemas/Status" }), &value, seen);
}

/// Compares the events of a proxy with Redis and an upstream with their schemas.
fn collect_events(document: &Value, seen: &mut BTreeSet<String>) {
    let (redis, server) = (RedisServer::start(), Upstream::echo());
    let (full, _release) = Upstream::gated("HTTP/1.1 204 No Content\r\n\r\n");
    let priced = priced();
    let limit = |name: &str, more: &str| format!("[limits.{name}]\nrate = \"1/hour\"\n{more}");
    let limits = [
        limit("per-address", "ban = { after = 2, within = \"1m\", for = \"1h\" }\n"),
        limit(
            "per-key",
            "key = \"header:x-key\"\non_missing = \"deny\"\nblock = [\"key:b\"]\nallow = [\"key:a\"]\n",
        ),
        limit("wide", "burst = 9\nmode = \"shadow\"\n"),
        limit("fair", "mode = \"mark\"\n"),
        limit("granted", "burst = 99\nahead = \"auto\"\n"),
        limit(
            "units",
            "burst = 99\ncost = { reserve = 1, settle = \"header:x-units\" }\ncost_max = 20\nkeep_cost_header = true\n",
        ),
    ];
    let units =
        format!("[[routes]]\npath = \"/units/*\"\nlimits = [\"units\"]\nupstream = \"{}\"\n", priced.url());
    let routes = ["per-address", "per-key", "wide", "fair", "granted"].map(|limit| {
        format!("[[routes]]\npath = \"/{limit}\"\nlimits = [\"{limit}\"]\nupstream = \"{}\"\n", server.url())
    });
    let admin = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let routes = routes.concat() + &units + &limited(&full);
    let proxy = Tidegate::start_with(&redis, &(admin.to_owned() + &limits.concat() + &routes));
    proxy.wait_ready();
    refuse_each_class(&proxy, &full);
    for _ in 0..11 {
        get(proxy.addr(), "/per-address", &[]);
        get(proxy.addr(), "/wide", &[]);
        get(proxy.addr(), "/fair", &[]);
    }
    for headers in [&[][..], &["X-Key: a"], &["X-Key: b"]] {
        get(proxy.addr(), "/per-key", headers);
    }
    for cost in ["0", "5", "50", "none"] {
        assert_eq!(get(proxy.addr(), &format!("/units/{cost}"), &[]).status(), 200);
    }
    let keys = ask(proxy.admin(), "GET /v1/keys/peek?limit=units&key=127.0.0.1", "", None);
    let value = assert_described(document, &document["paths"]["/v1/keys/peek"]["get"], &keys).unwrap();
    collect(document, &serde_json::json!({"$ref": "#/components/schemas/KeyList"}), &value, seen);
    let limits = ask(proxy.admin(), "GET /v1/limits", "", None);
    let value = assert_described(document, &document["paths"]["/v1/limits"]["get"], &limits).unwrap();
    collect(document, &serde_json::json!({"$ref": "#/components/schemas/LimitList"}), &value, seen);
    let refusals = ask(proxy.admin(), "GET /v1/top?by=refusals", "", None);
    let value = assert_described(document, &document["paths"]["/v1/top"]["get"], &refusals).unwrap();
    collect(document, &serde_json::json!({"$ref": "#/components/schemas/TopList"}), &value, seen);
    let mut stream = EventStream::open(proxy.admin(), &[]);
    for (name, schema) in [("hello", "Hello"), ("frame", "Frame")] {
        let event = stream.expect(name);
        let schema = serde_json::json!({ "$ref": format!("#/components/schemas/{schema}") });
        let problems = schema_problems(&schema, &event, document);
        assert!(problems.is_empty(), "{problems:?}: {event}");
        collect(document, &schema, &event, seen);
    }
}

/// Compares the outcomes of reloads, and the state of the process after them, with their schemas.
fn collect_reloads(document: &Value, seen: &mut BTreeSet<String>) {
    let server = Upstream::echo();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = |listener: &str, rate: &str| {
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}[admin]\nlisten = \"127.0.0.1:0\"\n\
             [limits.unused]\nrate = \"{rate}\"\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
            server.url()
        )
    };
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, &text("", "1/s"));
    let store = format!("[store]\nurl = \"{}\"\n", redis.url());
    let in_use = format!("[[listeners]]\naddress = \"{}\"\n", taken.local_addr().unwrap());
    for (config, status, schema) in [
        (text(&store, "2/s"), 200, "Reload"),
        (text(&store, "0/s"), 422, "ReloadFailure"),
        (text(&(in_use + &store), "3/s"), 409, "ReloadFailure"),
    ] {
        proxy.write(&config);
        for (line, path, body, status, schema) in [
            ("POST /v1/reload", "/v1/reload", Some("{}"), status, schema),
            ("GET /v1/status", "/v1/status", None, 200, "Status"),
        ] {
            let response = ask(proxy.admin(), line, "", body);
            assert_eq!(response.status(), status, "{line}: {}", response.text());
            let method = if body.is_some() { "post" } else { "get" };
            let value = assert_described(document, &document["paths"][path][method], &response).unwrap();
            let schema = serde_json::json!({ "$ref": format!("#/components/schemas/{schema}") });
            collect(document, &schema, &value, seen);
        }
    }
}

/// All properties of responses that are described, as `SCHEMA.NAME`.
fn described_properties(document: &Value) -> BTreeSet<String> {
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let of_responses = schemas.iter().filter(|(name, _)| !name.ends_with("Request") && *name != "Error");
    of_responses
        .flat_map(|(name, schema)| {
            let properties = schema["properties"].as_object().unwrap().keys();
            properties.map(move |property| format!("{name}.{property}"))
        })
        .collect()
}

#[test]
fn errors_are_those_that_are_described() {
    let (document, (proxy, _consumers)) = (document(), proxy());
    let admin = proxy.admin();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let (line, body) = example(path, method, operation);
            let is_change = method == "post";
            let is_public = operation["security"].as_array().is_some_and(Vec::is_empty);
            let expect = |line: &str, token: &str, body: Option<&str>, status: u16| {
                let response = ask(admin, line, token, body);
                assert_eq!(response.status(), status, "{line} {body:?}: {}", response.text());
                assert_described(&document, operation, &response);
            };
            let reading = if is_change { 403 } else { 200 };
            expect(&line, "s3cret-read-t0ken", body.as_deref(), reading);
            if !is_public {
                // Without Bearer, so that it does not count as a guess.
                let response = get(admin, path, &[]);
                assert_eq!(response.status(), 401, "{path}");
                assert_described(&document, operation, &response);
            }
            let other = if is_change { format!("PUT {path}") } else { format!("POST {path}") };
            expect(&other, "s3cret-admin-t0ken", None, 405);
            if path == "/v1/reload" {
                expect(&line, "s3cret-admin-t0ken", Some("{\"unknown\":1}"), 400);
            } else if is_change {
                expect(&line, "s3cret-admin-t0ken", Some("{}"), 400);
                let unknown = body.as_deref().unwrap().replace("per-address", "unknown");
                expect(&line, "s3cret-admin-t0ken", Some(&unknown), 404);
            } else if operation["parameters"].is_array() {
                expect(&format!("GET {path}?unknown=1"), "s3cret-admin-t0ken", None, 400);
                expect(&line.replace("per-address", "unknown"), "s3cret-admin-t0ken", None, 404);
            }
        }
    }
}

#[test]
fn the_document_is_served() {
    let (proxy, _consumers) = proxy();
    let served = ask(proxy.admin(), "GET /openapi.json", "s3cret-read-t0ken", None);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    assert_eq!(served.text(), std::fs::read_to_string(file).unwrap());
    assert_eq!(served.header("content-type"), Some("application/json"));
}
