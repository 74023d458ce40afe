//! Other names of the hosts of Ingresses.

use super::annotations::IngressSettings;
use super::known::annotation;
use super::objects::Object;

/// The hosts of all Ingresses, and the aliases that were given to some of them so far.
pub(super) struct Aliases {
    hosts: Vec<String>,
    given: Vec<(String, Vec<String>)>,
}

/// The hosts of an Ingress.
fn hosts(ingress: &Object<'_>) -> Vec<String> {
    let rules = ingress.spec.get("rules").items().iter();
    rules.filter_map(|rule| rule.get("host").text()).map(str::to_ascii_lowercase).collect()
}

impl Aliases {
    /// No aliases yet of these Ingresses.
    pub fn of(all: &[Object<'_>]) -> Self {
        Self { hosts: all.iter().flat_map(hosts).collect(), given: Vec::new() }
    }

    /// Drops the aliases of an Ingress that are hosts, or aliases of other hosts: ingress-nginx ignores them, too.
    pub fn keep_new(&mut self, ingress: &Object<'_>, settings: &mut IngressSettings<'_>) {
        let own = hosts(ingress);
        for alias in std::mem::take(&mut settings.aliases) {
            let alias = alias.to_ascii_lowercase();
            let known = self.given.iter().find(|(known, _)| *known == alias);
            let reason = if self.hosts.contains(&alias) {
                "an Ingress has this host: it is no alias"
            } else if known.is_some_and(|(_, hosts)| *hosts != own) {
                "it is an alias of other hosts already"
            } else {
                self.given.push((alias.clone(), own.clone()));
                settings.aliases.push(alias);
                continue;
            };
            let note = annotation(ingress, "server-alias").finding(&format!("server-alias: {alias}"), reason);
            settings.route.notes.push(note);
        }
    }
}
