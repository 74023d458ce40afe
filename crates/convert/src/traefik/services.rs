//! Services of Traefik as upstreams.

use crate::document::{DocNode, Document};
use crate::model::TomlUpstream;
use crate::names::Names;
use crate::note::Note;

/// The highest weight of a server.
const MOST_WEIGHT: u64 = 1_000;

/// The upstreams that were made so far.
pub(super) struct TraefikServices<'d> {
    document: &'d Document,
    nodes: &'d DocNode,
    names: Names,
    made: Vec<(String, String)>,
    pub upstreams: Vec<TomlUpstream>,
}

impl<'d> TraefikServices<'d> {
    pub fn new(document: &'d Document, nodes: &'d DocNode) -> Self {
        Self { document, nodes, names: Names::default(), made: Vec::new(), upstreams: Vec::new() }
    }

    /// The name of a service's upstream, and the Host header that its servers get, if it is not the client's.
    pub fn upstream(&mut self, service: &str) -> Result<(String, Option<String>), String> {
        let plain = service.split('@').next().unwrap_or("");
        let node = self.nodes.get(plain);
        let balancer = node.get("loadBalancer");
        if !balancer.is_present() {
            let reason = if node.is_present() {
                "only `loadBalancer` can be converted"
            } else {
                "there is no such service"
            };
            return Err(format!("{reason}: requests get 501"));
        }
        let passes_host = balancer.get("passHostHeader").text() != Some("false");
        let host = (!passes_host).then(|| "upstream".to_owned());
        if let Some((_, name)) = self.made.iter().find(|(known, _)| known == plain) {
            return Ok((name.clone(), host));
        }
        let mut upstream = TomlUpstream { name: self.names.unique(plain), ..TomlUpstream::default() };
        upstream.notes.push(self.document.origin(node, &format!("service {plain}")));
        let known = ["healthCheck", "passHostHeader", "servers", "strategy"];
        upstream.notes.extend(self.document.remarks(balancer, &known));
        for server in balancer.get("servers").items() {
            self.add_server(server, &mut upstream);
        }
        if upstream.servers.is_empty() {
            return Err("none of its servers can be converted: requests get 501".to_owned());
        }
        self.add_settings(balancer, &mut upstream);
        let name = upstream.name.clone();
        self.upstreams.push(upstream);
        self.made.push((plain.to_owned(), name.clone()));
        Ok((name, host))
    }

    fn add_server(&self, server: &DocNode, upstream: &mut TomlUpstream) {
        let url = server.get("url").text().unwrap_or("").trim_end_matches('/');
        upstream.notes.extend(self.document.remarks(server, &["preservePath", "url", "weight"]));
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            let reason = "the URL of a server begins with `http://` or `https://`";
            upstream.notes.push(self.document.finding(server, &format!("url: {url}"), reason));
            return;
        }
        let weight = server.get("weight").number().unwrap_or(1).clamp(1, MOST_WEIGHT);
        let origin = without_path(url);
        if server.get("preservePath").is_true() {
            upstream.servers.push((url.to_owned(), weight));
        } else {
            if origin.len() < url.len() {
                let text = format!("Traefik ignores the path of {url}, since `preservePath` is not set.");
                upstream.notes.push(Note::text(text));
            }
            upstream.servers.push((origin.to_owned(), weight));
        }
    }

    /// Adds the balancing and the health checks of a service.
    fn add_settings(&self, balancer: &DocNode, upstream: &mut TomlUpstream) {
        let strategy = balancer.get("strategy");
        match strategy.text() {
            Some("p2c") => upstream.balance = Some("power_of_two".to_owned()),
            None | Some("wrr") => {}
            Some(name) => {
                let reason = "see `balance` of the upstream";
                upstream.notes.push(self.document.finding(strategy, &format!("strategy: {name}"), reason));
            }
        }
        let check = balancer.get("healthCheck");
        upstream.health_path = check.get("path").text().map(str::to_owned);
        for (name, value) in check.entries().iter().filter(|(name, _)| name != "path") {
            let reason = match &**name {
                "interval" | "timeout" => format!("set `health.{name}` of the upstream"),
                "unhealthyInterval" => "set `health.interval` of the upstream".to_owned(),
                _ => {
                    "tidegate requests the path from each server with GET, and expects a status of 2xx or 3xx"
                        .to_owned()
                }
            };
            upstream.notes.push(self.document.finding(value, &format!("healthCheck.{name}"), reason));
        }
    }
}

/// A URL up to its path.
fn without_path(url: &str) -> &str {
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    url[start..].find('/').map_or(url, |path| &url[..start + path])
}
