//! Entry points as listeners.

use crate::document::DocNode;
use crate::model::{TomlListener, TomlRoute, UniqueNames};
use crate::note::Note;

/// The usual addresses of entry points.
const USUAL: [(&str, &str); 4] =
    [("web", "0.0.0.0:80"), ("http", "0.0.0.0:80"), ("websecure", "0.0.0.0:443"), ("https", "0.0.0.0:443")];
/// The port of the first other entry point.
const FIRST_PORT: u16 = 8081;

/// The entry points that routers name, if these have different ones.
pub(super) struct EntryPoints {
    /// Their names, each with that of its listener.
    names: Vec<(String, String)>,
    /// Whether every router names some. Other routers are served by all entry points, of which there may be more.
    are_all: bool,
}

impl EntryPoints {
    /// Those of these routers.
    pub fn of(routers: &DocNode) -> Self {
        let of = |router: &DocNode| router.get("entryPoints").texts();
        let all: Vec<Vec<String>> = routers.entries().iter().map(|(_, router)| of(router)).collect();
        let mut found = Self { names: Vec::new(), are_all: all.iter().all(|own| !own.is_empty()) };
        if all.windows(2).all(|pair| pair[0] == pair[1]) {
            return found;
        }
        let mut unique = UniqueNames::default();
        for name in all.into_iter().flatten() {
            if found.names.iter().all(|(known, _)| *known != name) {
                let listener = unique.unique(&name);
                found.names.push((name, listener));
            }
        }
        found
    }

    /// The routes of a router: for each of its entry points, unless it has all that there are.
    pub fn routes(&self, router: &DocNode, all: Vec<TomlRoute>) -> Vec<TomlRoute> {
        let own = router.get("entryPoints").texts();
        let has_all = self.are_all && self.names.iter().all(|(name, _)| own.contains(name));
        if own.is_empty() || self.names.is_empty() || has_all {
            return all;
        }
        let names = self.names.iter().filter(|(name, _)| own.contains(name)).enumerate();
        let of_point = |(number, (_, listener)): (usize, &(String, String))| {
            let copy = |route: &TomlRoute| TomlRoute {
                listener: Some(listener.clone()),
                notes: if number == 0 { route.notes.clone() } else { Vec::new() },
                ..route.clone()
            };
            all.iter().map(copy).collect::<Vec<_>>()
        };
        names.flat_map(of_point).collect()
    }

    /// Their listeners. The addresses are in Traefik's static configuration.
    pub fn listeners(&self) -> Vec<TomlListener> {
        let mut listeners: Vec<TomlListener> = Vec::new();
        for (name, listener) in &self.names {
            let is_free = |address: &String| listeners.iter().all(|known| known.address != *address);
            let usual =
                USUAL.iter().find(|(known, _)| *known == name).map(|(_, address)| (*address).to_owned());
            let mut others = (FIRST_PORT..).map(|port| format!("0.0.0.0:{port}"));
            let address = usual.filter(is_free).or_else(|| others.find(is_free)).unwrap_or_default();
            let text = format!(
                "The address of the entry point {name} is in Traefik's static configuration: correct it."
            );
            let (notes, name) = (vec![Note::text(text)], Some(listener.clone()));
            listeners.push(TomlListener { notes, address, name, ..TomlListener::default() });
        }
        listeners
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{SourceFile, SourceFormat, convert, toml};

    #[test]
    fn routers_are_served_by_their_entry_points_only() {
        let text = "http:\n  services: { s: { loadBalancer: { servers: [{ url: \"http://a\" }] } } }\n  routers:\n    \
                    a: { rule: \"PathPrefix(`/a`)\", service: s, entryPoints: [web] }\n    \
                    b: { rule: \"PathPrefix(`/b`)\", service: s, entryPoints: [web, inner], tls: {} }\n    \
                    c: { rule: \"PathPrefix(`/c`)\", service: s }\n";
        let file = SourceFile { name: "f.yaml", text, directory: Path::new("") };
        let converted = convert(SourceFormat::Traefik, &[file]).unwrap();
        let found: Vec<_> =
            converted.routes.iter().map(|it| (&*it.path, it.listener.as_deref(), it.scheme)).collect();
        assert!(
            found.contains(&("/a*", Some("web"), None)) && found.contains(&("/c*", None, None)),
            "{found:?}"
        );
        for listener in ["web", "inner"] {
            assert!(found.contains(&("/b*", Some(listener), Some("https"))), "{found:?}");
        }
        let toml = toml(&converted, "");
        assert!(toml.contains("address = \"0.0.0.0:80\"\nname = \"web\""), "{toml}");
        assert!(toml.contains("address = \"0.0.0.0:8081\"\nname = \"inner\""), "{toml}");
        assert!(converted.findings().is_empty(), "{:?}", converted.findings());
    }
}
