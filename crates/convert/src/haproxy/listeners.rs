//! Listeners of sections, and the routes that they serve.

use std::fs::File;
use std::path::Path;

use super::backends::milliseconds;
use super::sections::{Section, SectionLine};
use crate::duration::shown;
use crate::model::{Converted, TomlListener, TomlRoute, UniqueNames};
use crate::note::Note;

/// The consequence of a section whose listeners are not known.
const ALL_LISTENERS: &str = "ACCESS IS OPEN on all listeners: they all serve the routes of all sections, those of earlier sections first. \
                             Serve sections that only some clients may reach by another process";

/// The consequence of a section whose listeners are left out.
const NO_LISTENER: &str = "its addresses are left out, and so are its routes";

/// Words of `bind` that are converted, or that tidegate needs no counterpart of, with how many words follow each.
const BIND_WORDS: &[(&str, usize)] = &[
    ("accept-proxy", 0),
    ("alpn", 1),
    ("backlog", 1),
    ("ca-file", 1),
    ("ciphers", 1),
    ("ciphersuites", 1),
    ("crt", 1),
    ("crt-list", 1),
    ("curves", 1),
    ("defer-accept", 0),
    ("ecdhe", 1),
    ("expose-fd", 1),
    ("gid", 1),
    ("group", 1),
    ("id", 1),
    ("label", 1),
    ("level", 1),
    ("mode", 1),
    ("mss", 1),
    ("name", 1),
    ("nice", 1),
    ("no-sslv3", 0),
    ("no-tls-tickets", 0),
    ("no-tlsv10", 0),
    ("no-tlsv11", 0),
    ("npn", 1),
    ("prefer-client-ciphers", 0),
    ("process", 1),
    ("shards", 1),
    ("ssl", 0),
    ("tcp-ut", 1),
    ("tfo", 0),
    ("thread", 1),
    ("uid", 1),
    ("user", 1),
    // A listener for all IPv6 addresses accepts IPv4 as well.
    ("v4v6", 0),
    ("verify", 1),
];

/// The most connections that a listener can have.
const MOST_CONNECTIONS: u64 = 10_000_000;

/// A section with listeners.
pub(super) struct Frontend<'s> {
    pub section: &'s Section,
    pub addresses: Vec<String>,
    pub routes: Vec<TomlRoute>,
}

/// Adds the routes of sections, each for the listeners of its section.
pub(super) fn add_frontends(frontends: Vec<Frontend<'_>>, converted: &mut Converted) {
    let (left_out, frontends): (Vec<_>, Vec<_>) = frontends
        .into_iter()
        .partition(|it| it.addresses.is_empty() && it.section.find(&["bind"]).any(is_confined));
    converted
        .notes
        .extend(left_out.iter().map(|it| it.section.header.finding(NO_LISTENER).of_block().lost()));
    let is_known = frontends.iter().all(|it| it.routes.is_empty() || !it.addresses.is_empty());
    if frontends.len() == 1 || !is_known {
        let served = frontends.into_iter().filter(|it| !it.routes.is_empty());
        for (number, Frontend { section, routes, .. }) in served.enumerate() {
            converted.notes.extend((number > 0).then(|| section.header.finding(ALL_LISTENERS)));
            converted.routes.extend(routes);
        }
        return;
    }
    let mut names = UniqueNames::default();
    for Frontend { section, addresses, routes } in frontends {
        for (number, address) in addresses.iter().enumerate() {
            let listener = converted.listeners.iter_mut().find(|listener| listener.address == *address);
            let Some(listener) = listener else { continue };
            let name = listener.name.get_or_insert_with(|| names.unique(section.name())).clone();
            converted.routes.extend(routes.iter().map(|route| TomlRoute {
                listener: Some(name.clone()),
                notes: if number == 0 { route.notes.clone() } else { Vec::new() },
                ..route.clone()
            }));
        }
    }
}

/// Limits the connections of the only listener to those of the process. Several listeners are not limited together.
pub(super) fn limit_process(sections: &[Section], converted: &mut Converted) {
    let global = sections.iter().filter(|section| section.kind() == "global");
    let Some(line) = global.flat_map(|section| section.find(&["maxconn"])).last() else { return };
    let most = line.word(1).parse().ok().filter(|most| (1..=MOST_CONNECTIONS).contains(most));
    if let ([listener], Some(most)) = (&mut converted.listeners[..], most) {
        listener.max_connections = Some(listener.max_connections.map_or(most, |own| own.min(most)));
        listener.notes.push(line.origin());
        return;
    }
    let sum = converted.listeners.iter().map(|listener| listener.max_connections).sum::<Option<u64>>();
    if sum.zip(most).is_some_and(|(sum, most)| sum <= most) {
        converted.notes.push(line.origin());
        return;
    }
    let reason = "a process has no limit for all listeners: set `max_connections` of each of `[[listeners]]`";
    converted.notes.push(line.finding(reason));
}

/// Timeouts of listeners, with their default in milliseconds, and those of HAProxy, of which the first one that is set applies.
const TIMEOUTS: [(&str, u64, &[&str]); 4] = [
    ("header_timeout", 10_000, &["http-request", "client"]),
    ("body_timeout", 30_000, &["client"]),
    ("idle_timeout", 75_000, &["http-keep-alive", "http-request", "client"]),
    ("tunnel_timeout", 3_600_000, &["tunnel", "client"]),
];

/// Sets the timeouts of the listeners of a section.
fn set_timeouts(section: &Section, listeners: &mut [TomlListener]) {
    for (key, default, names) in TIMEOUTS {
        let last = |name: &&str| section.find(&["timeout"]).filter(|line| line.word(1) == *name).last();
        let Some(line) = names.iter().find_map(last) else { continue };
        // 0 is no timeout.
        let time = match milliseconds(line.word(2)) {
            Some(0) => u64::MAX,
            Some(time) => time,
            None => continue,
        };
        for listener in listeners.iter_mut().filter(|_| time != default) {
            listener.timeouts.insert(key, shown(time));
        }
    }
}

/// Adds the listeners of a section. Returns their addresses.
pub(super) fn listen(section: &Section, directory: &Path, converted: &mut Converted) -> Vec<String> {
    let before = converted.listeners.len();
    let mut addresses = Vec::new();
    for line in section.find(&["bind"]) {
        converted.notes.extend(unknown_words(line));
        if is_confined(line) {
            let reason =
                "a listener of tidegate is open to all networks that reach its address: this one is left out";
            converted.notes.push(line.finding(reason));
            continue;
        }
        for address in line.word(1).split(',') {
            let address = match address.rsplit_once(':') {
                Some(("" | "*", port)) => format!("0.0.0.0:{port}"),
                Some(("::", port)) => format!("[::]:{port}"),
                _ => address.to_owned(),
            };
            if address.parse::<std::net::SocketAddr>().is_err() {
                converted.notes.push(line.finding("tidegate listens on IP addresses with a port"));
                continue;
            }
            addresses.push(address.clone());
            let mut listener = TomlListener { address, ..TomlListener::default() };
            listener.proxy_protocol = line.words.iter().any(|word| word == "accept-proxy");
            listener.notes.extend(listener.proxy_protocol.then(|| line.origin()));
            if line.words.iter().any(|word| word == "ssl") {
                tls(line, directory, &mut listener);
            }
            if converted.listeners.iter().all(|known| known.address != listener.address) {
                converted.listeners.push(listener);
            }
        }
    }
    set_timeouts(section, &mut converted.listeners[before..]);
    let limits: Vec<&SectionLine> = section.find(&["maxconn"]).filter(|line| line.word(1) != "0").collect();
    if let Some((last, earlier)) = limits.split_last() {
        limit_connections(last, &mut converted.listeners[before..], &mut converted.notes);
        converted
            .notes
            .extend(earlier.iter().map(|line| line.finding("a later line replaces it").for_information()));
    }
    addresses
}

/// Whether a `bind` line accepts the connections of one network interface or namespace only.
fn is_confined(line: &SectionLine) -> bool {
    line.words.iter().any(|word| matches!(&**word, "interface" | "namespace"))
}

/// A note on the words of a `bind` line that are not converted.
fn unknown_words(line: &SectionLine) -> Option<Note> {
    let mut words = line.words.iter().skip(2).map(String::as_str);
    let mut unknown: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match (word, BIND_WORDS.iter().find(|(known, _)| *known == word)) {
            (_, Some((_, values))) => words.by_ref().take(*values).for_each(drop),
            ("interface" | "namespace", _) => drop(words.next()),
            ("ssl-min-ver", _) => unknown.extend(words.next().filter(|version| *version == "TLSv1.3")),
            _ => unknown.push(word),
        }
    }
    let open = if unknown.contains(&"v6only") { "ACCESS IS OPEN to IPv4 clients: " } else { "" };
    let reason = format!("{open}tidegate has no counterpart of `{}`", unknown.join(" "));
    (!unknown.is_empty()).then(|| line.finding(reason))
}

/// Sets the most connections of the listener of a section. Those of several listeners are not limited together.
fn limit_connections(line: &SectionLine, listeners: &mut [TomlListener], notes: &mut Vec<Note>) {
    let most = line.word(1).parse().ok().filter(|most| *most <= MOST_CONNECTIONS);
    if let ([listener], Some(most)) = (listeners, most) {
        listener.max_connections = Some(most);
        let text = "HAProxy lets further connections wait until others end; tidegate closes them, or idle ones in their place.";
        listener.notes.extend([line.origin(), Note::text(text)]);
    } else {
        let reason = format!(
            "each listener has its own `max_connections`, up to {MOST_CONNECTIONS}: set it in `[[listeners]]`"
        );
        notes.push(line.finding(reason));
    }
}

/// Adds the certificates of a `bind` line, each of which is one file with its key.
fn tls(line: &SectionLine, directory: &Path, listener: &mut TomlListener) {
    let files = line.words.windows(2).filter(|pair| pair[0] == "crt").map(|pair| directory.join(&pair[1]));
    if line.after("crt-list").is_some() {
        let reason =
            "tidegate reads no list of certificates: add `tls` to the listener, which has no TLS yet";
        listener.notes.push(line.finding(reason));
    }
    if line.after("verify") == Some("optional") {
        let reason = "client certificates are not checked yet: set `client_ca` of the listener's `tls`";
        listener.notes.push(line.finding(reason));
    }
    for file in files {
        let name = file.display().to_string();
        match File::open(&file) {
            Ok(_) if file.is_file() => listener.certificates.push((name.clone(), name)),
            _ => {
                let reason = format!(
                    "{name} is no file that can be read here: add it to `tls` of the listener, which serves plain HTTP without a certificate"
                );
                listener.notes.push(line.finding(reason));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{SourceFile, SourceFormat, convert, toml};

    /// The output, with the remarks that change behaviour.
    fn converted(text: &str) -> (String, Vec<String>) {
        let file = SourceFile { name: "f", text, directory: Path::new("") };
        let converted = convert(SourceFormat::Haproxy, &[file]).unwrap();
        let changes = converted.findings().into_iter().filter(|it| it.changes_behaviour);
        let changes = changes.map(|it| it.text).collect();
        (toml(&converted, ""), changes)
    }

    const SERVERS: &str = "backend a\n server a 10.0.0.1:80 check\nbackend b\n server b 10.0.0.2:80\n";

    #[test]
    fn timeouts_and_limits_of_defaults_are_those_of_listeners_and_upstreams() {
        let text = format!(
            "global\n maxconn 500\ndefaults\n mode http\n maxconn 700\n timeout connect 2s\n timeout client 20s\n timeout queue 4s\n \
             timeout http-keep-alive 1s\nfrontend f\n bind :80\n default_backend a\n{SERVERS}"
        );
        let (toml, changes) = converted(&text);
        assert!(changes.is_empty(), "{changes:?}");
        for line in [
            "max_connections = 500\n",
            "body_timeout = \"20s\"\nheader_timeout = \"20s\"\nidle_timeout = \"1s\"\ntunnel_timeout = \"20s\"\n",
            "connect_timeout = \"2s\"\npending_timeout = \"4s\"\n",
        ] {
            assert!(toml.contains(line), "{line}: {toml}");
        }
    }

    #[test]
    fn sections_are_served_on_their_own_addresses_only() {
        let text = format!(
            "global\n maxconn 500\ndefaults\n mode http\nfrontend web\n bind :80\n bind :81\n redirect scheme https code 301 if !{{ ssl_fc }}\n \
             default_backend a\nfrontend inner\n bind 10.0.0.9:80\n default_backend b\n{SERVERS}"
        );
        let (toml, changes) = converted(&text);
        assert_eq!(changes, ["maxconn 500"]);
        let route = |listener: &str, upstream: &str| {
            format!("listener = \"{listener}\"\npath = \"/*\"\nupstream = \"{upstream}\"")
        };
        for (listener, upstream) in [("web", "a"), ("web-2", "a"), ("inner", "b")] {
            assert!(toml.contains(&route(listener, upstream)), "{listener}: {toml}");
        }
        let redirect = "listener = \"web\"\nscheme = \"http\"\npath = \"/*\"\n\
                        respond = { redirect = \"https://{host}{path_and_query}\", status = 301 }";
        assert!(toml.contains(redirect) && toml.matches("[[routes]]").count() == 5, "{toml}");
    }

    #[test]
    fn checks_have_the_numbers_of_all_servers() {
        let text = "defaults\n mode http\n timeout check 3s\nlisten l\n bind :80\n option httpchk HEAD /up\n default-server inter 2s\n server a \
                    10.0.0.1:80 check rise 1 fall 4\n server b 10.0.0.2:80 check rise 1 fall 5\n";
        let (toml, changes) = converted(text);
        let health = "health = { path = \"/up\", healthy_after = 1, interval = \"2s\", timeout = \"3s\" }";
        assert!(toml.contains(health), "{toml}");
        assert_eq!(changes, ["server b 10.0.0.2:80 check rise 1 fall 5"]);
    }

    #[test]
    fn addresses_of_one_interface_are_left_out() {
        let web = "defaults\n mode http\nfrontend web\n bind :80 name w thread 1 ssl-min-ver TLSv1.2\n default_backend a\n";
        let inner = "frontend inner\n bind *:8080 interface lo\n default_backend b\n";
        let (toml, changes) = converted(&format!("{web}{inner}{SERVERS}"));
        assert_eq!(changes, ["frontend inner", "bind *:8080 interface lo"]);
        assert!(!toml.contains("8080\"") && toml.matches("[[routes]]").count() == 1, "{toml}");
        let named = web.replace("name w", "v6only strict-sni");
        let (toml, changes) = converted(&format!("{named}{SERVERS}"));
        assert_eq!(changes, ["bind :80 v6only strict-sni thread 1 ssl-min-ver TLSv1.2"]);
        assert!(toml.contains("ACCESS IS OPEN to IPv4"), "{toml}");
    }

    #[test]
    fn a_listener_without_its_certificate_changes_behaviour() {
        let text = format!(
            "defaults\n mode http\nfrontend f\n bind :443 ssl crt /none.pem\n default_backend a\n{SERVERS}"
        );
        assert_eq!(converted(&text).1, ["bind :443 ssl crt /none.pem"]);
    }
}
