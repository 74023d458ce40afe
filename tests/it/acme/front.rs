//! A proxy that serves the directory of an ACME server: with renewal information, which the Pebble of Debian does not have,
//! and with responses that ask to wait.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Pebble, Tidegate, curl};

/// A proxy with a directory. What it does not serve itself are URLs of the Pebble.
pub struct Front {
    proxy: Tidegate,
    directory: String,
}

impl Front {
    /// Serves renewal information: the same window for each certificate.
    #[track_caller]
    pub fn with_window(pebble: &Pebble, [start, end]: [&str; 2]) -> Self {
        let body = json!({ "suggestedWindow": { "start": start, "end": end } });
        Self::start(pebble, "renewalInfo", 200, "application/json", &body)
    }

    /// Rejects each order, and asks to wait for an hour.
    #[track_caller]
    pub fn with_refusal(pebble: &Pebble, status: u16, kind: &str) -> Self {
        let kind = format!("urn:ietf:params:acme:error:{kind}");
        let body = json!({ "type": kind, "detail": "try again later" });
        Self::start(pebble, "newOrder", status, "application/problem+json", &body)
    }

    #[track_caller]
    fn start(pebble: &Pebble, member: &str, status: u16, media_type: &str, body: &Value) -> Self {
        let (address, tls) = pebble.front();
        let ca = pebble.authority().display().to_string();
        let mut directory: Value =
            serde_json::from_str(&curl(&["--cacert", &ca, &pebble.directory()]).2).unwrap();
        directory[member] = format!("https://{address}/{member}/1").into();
        let json = "content-type = \"application/json\"";
        let proxy = Tidegate::start(&format!(
            "[[listeners]]\naddress = \"{address}\"\n{tls}\n[log]\naccess = \"json\"\n\
             [[routes]]\npath = \"/dir\"\nrespond = {{ body = '{directory}' }}\nresponse_headers = {{ set = {{ {json} }} }}\n\
             [[routes]]\npath = \"/{member}/*\"\nrespond = {{ status = {status}, body = '{body}' }}\n\
             response_headers = {{ set = {{ content-type = \"{media_type}\", retry-after = \"3600\" }} }}\n"
        ));
        Self { proxy, directory: format!("https://{address}/dir") }
    }

    /// `[acme]` for this directory, with these further lines.
    pub fn acme(&self, pebble: &Pebble, storage: &Path, more: &str) -> String {
        pebble.acme(storage, more).replace(&pebble.directory(), &self.directory)
    }

    /// What it keeps in a storage.
    pub fn files(&self, storage: &Path) -> PathBuf {
        storage.join(self.directory.trim_start_matches("https://").replace([':', '/'], "-"))
    }

    /// The requests that it has answered, after waiting for `count` of them.
    #[track_caller]
    pub fn accesses(&self, count: usize) -> Vec<String> {
        self.proxy.accesses(count)
    }
}
