//! `[upstreams.NAME]`, and the URLs of routes, each of which is an upstream of its own.

mod resilience;
mod spec;
mod url;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

pub(super) use self::resilience::ReadKey;

use self::spec::{ALPN_HTTP_1, DefaultTls, upstream};
pub(super) use self::spec::{UpstreamKeys, with_defaults};
use self::url::{FORM, server_url};
use super::item::{Item, Text};
use super::suggest::nearest;
use super::table::entries;
use crate::gate::KeyPart;
use crate::id_vec::IdVec;
use crate::upstream::{ServerSpec, UpstreamId, UpstreamSpec};

/// All upstreams: those with a name first, then one for each URL that a route gives.
#[derive(Default)]
pub(super) struct ReadUpstreams {
    upstreams: IdVec<UpstreamId, ReadUpstream>,
    by_name: HashMap<String, UpstreamId>,
    default_tls: DefaultTls,
}

struct ReadUpstream {
    /// The span of its name, or of the URL in a route.
    span: Range<usize>,
    spec: Option<UpstreamSpec>,
    /// The key of `hash:PART`, if that chooses its servers.
    key: Option<ReadKey>,
    is_used: bool,
}

impl ReadUpstreams {
    fn add(&mut self, name: &str, upstream: ReadUpstream) -> UpstreamId {
        let id = self.upstreams.push(upstream);
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The key of `hash:PART`, if that chooses the servers of an upstream.
    pub fn key(&self, id: UpstreamId) -> Option<&ReadKey> {
        self.upstreams.get(id)?.key.as_ref()
    }

    /// The matching parts of these keys, with their spans.
    pub fn with_part(
        &self,
        is_match: impl Fn(&KeyPart) -> bool,
    ) -> impl Iterator<Item = (&KeyPart, Range<usize>)> {
        let keys = self.upstreams.iter().filter_map(|upstream| upstream.key.as_ref());
        keys.filter_map(move |key| {
            Some((key.spec.parts.iter().find(|part| is_match(part))?, key.span.clone()))
        })
    }

    /// The upstream that a route names, or whose URL it gives.
    pub fn resolve(&mut self, item: Item<'_>) -> Option<UpstreamId> {
        let text = item.string_like("a URL or the name of an upstream", FORM)?;
        let known = self.by_name.get(&text.value).copied();
        let id = match known {
            Some(id) => id,
            None if text.value.contains("://") => {
                let spec = server_url(&text).and_then(|server| {
                    let tls = self
                        .default_tls
                        .for_servers(item, std::slice::from_ref(&server), ALPN_HTTP_1)
                        .ok()?;
                    Some(UpstreamSpec { tls, ..with_defaults(&text.value, vec![server]) })
                });
                self.add(&text.value, ReadUpstream { span: item.span(), spec, key: None, is_used: true })
            }
            None => return self.unknown(&text),
        };
        let upstream = self.upstreams.get_mut(id)?;
        upstream.is_used = true;
        Some(id)
    }

    fn unknown<T>(&self, text: &Text<'_>) -> Option<T> {
        let problem = text.unknown("upstream");
        let is_address = text.value.contains(':') || text.value.contains('.') || text.value == "localhost";
        text.reject(match nearest(&text.value, self.by_name.keys().map(String::as_str)) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None if text.from_env => problem.help(FORM),
            None if is_address => {
                problem.help(format!("a URL starts with http://: \"http://{}\"", text.value))
            }
            None => problem.help(format!("define it: [upstreams.{}]", text.value)),
        })
    }

    /// The spans of the upstreams that no route uses.
    pub fn unused(&self) -> impl Iterator<Item = Range<usize>> {
        self.upstreams.iter().filter(|upstream| !upstream.is_used).map(|upstream| upstream.span.clone())
    }

    /// The servers of each valid upstream, with its span.
    pub fn servers(&self) -> impl Iterator<Item = (&[ServerSpec], Range<usize>)> {
        self.upstreams.iter().filter_map(|one| Some((&*one.spec.as_ref()?.servers, one.span.clone())))
    }

    /// All upstreams, if all of them are valid.
    pub fn into_all(self) -> Option<IdVec<UpstreamId, UpstreamSpec>> {
        self.upstreams.into_iter().map(|upstream| upstream.spec).collect()
    }
}

/// Reads all upstreams that have a name. Files are relative to `directory`.
pub(super) fn upstreams(item: Option<Item<'_>>, directory: &Path) -> ReadUpstreams {
    let mut read = ReadUpstreams::default();
    for (name, item) in item.and_then(entries).unwrap_or_default() {
        let (spec, key) = upstream(&name, item, directory, &read.default_tls);
        read.add(name.text, ReadUpstream { span: name.span.clone(), spec, key, is_used: false });
    }
    read
}
