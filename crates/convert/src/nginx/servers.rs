//! `server` blocks: their addresses, names and certificates.

use std::fs::File;
use std::path::Path;

use super::tree::Directive;
use crate::model::{TomlListener, UniqueNames};
use crate::note::Note;

/// A `server` block.
pub(super) struct Server<'d> {
    pub directive: &'d Directive,
    /// Hosts of routes.
    pub hosts: Vec<String>,
    /// Whether it has names that can't be hosts of routes.
    pub has_lost_names: bool,
    pub notes: Vec<Note>,
    /// Whether its listeners require the client certificates that it requires.
    pub is_verified: bool,
    /// Where nginx serves it.
    pub addresses: Vec<String>,
    /// The file of the authorities of client certificates, with the directive that requires them.
    client_ca: Option<(String, &'d Directive)>,
}

/// The servers and their listeners.
#[derive(Default)]
pub(super) struct Servers<'d> {
    pub all: Vec<Server<'d>>,
    pub listeners: Vec<TomlListener>,
    /// The address of each listener, with the default server there, and whether it is chosen explicitly.
    defaults: Vec<(String, usize, bool)>,
}

/// The servers of one listener, or of all listeners if these have the same.
pub(super) struct ServersOfListener {
    /// The name of the listener; none for all listeners.
    pub listener: Option<String>,
    /// The numbers of the servers.
    pub servers: Vec<usize>,
    /// The number of the server that gets the requests for hosts that no server names.
    pub default: Option<usize>,
}

impl<'d> Servers<'d> {
    /// The servers among these directives. Files are relative to `directory`.
    pub fn of(directives: &'d [Directive], directory: &Path) -> Self {
        let mut found = Self::default();
        for directive in directives.iter().filter(|directive| directive.name == "server") {
            found.add(directive, directory);
            if let Some(server) = found.all.last_mut() {
                server.client_ca = client_ca(directives, server.directive, directory);
            }
        }
        found.separate_wildcards();
        found.add_client_authorities();
        merge_wildcards(&mut found.listeners);
        found
    }

    /// The servers of each listener. Gives the listeners names, if they have different servers.
    pub fn by_listener(&mut self) -> Vec<ServersOfListener> {
        let of = |listener: &TomlListener| {
            let is_here = |server: &Server<'_>| server.addresses.iter().any(|it| is_address_of(it, listener));
            let servers = self.all.iter().enumerate().filter(|(_, server)| is_here(server));
            let default = self.defaults.iter().filter(|(address, ..)| is_address_of(address, listener));
            // A default that is chosen explicitly is preferred, if two addresses became one listener.
            let default = default.max_by_key(|(.., is_explicit)| *is_explicit).map(|(_, server, _)| *server);
            (servers.map(|(number, _)| number).collect::<Vec<_>>(), default)
        };
        if self.listeners.is_empty() {
            let (servers, default) = ((0..self.all.len()).collect(), (!self.all.is_empty()).then_some(0));
            return vec![ServersOfListener { listener: None, servers, default }];
        }
        let found: Vec<_> = self.listeners.iter().map(of).collect();
        if found.windows(2).all(|pair| pair[0] == pair[1]) {
            let first = found.into_iter().next();
            let one = first.map(|(servers, default)| ServersOfListener { listener: None, servers, default });
            return one.into_iter().collect();
        }
        let mut unique = UniqueNames::default();
        let named = self.listeners.iter_mut().zip(found).map(|(listener, (servers, default))| {
            let name = listener.address.replace("0.0.0.0:", "port-").replace("[::]:", "port-");
            let name = unique.unique(&name);
            listener.name = Some(name.clone());
            ServersOfListener { listener: Some(name), servers, default }
        });
        named.collect()
    }

    fn add(&mut self, directive: &'d Directive, directory: &Path) {
        let mut server = Server {
            directive,
            hosts: Vec::new(),
            has_lost_names: false,
            notes: Vec::new(),
            is_verified: false,
            addresses: Vec::new(),
            client_ca: None,
        };
        for names in directive.directives().iter().filter(|inner| inner.name == "server_name") {
            for name in &names.args {
                add_host(&mut server, names, name);
            }
        }
        let number = self.all.len();
        let listens = directive.directives().iter().filter(|inner| inner.name == "listen");
        let mut count = 0;
        for listen in listens {
            count += 1;
            if let Some(address) = address(listen.arg(0)) {
                server.addresses.push(address.clone());
                self.listen(listen, address, number);
            } else {
                server.notes.push(listen.finding("tidegate listens on IP addresses with a port"));
            }
        }
        if count == 0 {
            let address = "0.0.0.0:80".to_owned();
            server.addresses.push(address.clone());
            self.listen(directive, address, number);
        }
        self.add_certificates(directive, directory, &mut server);
        self.all.push(server);
    }

    /// Leaves out addresses for all of IPv6 where nginx has other servers for all of IPv4 at the same port: tidegate accepts both on
    /// one listener.
    fn separate_wildcards(&mut self) {
        let ports: Vec<String> = self
            .listeners
            .iter()
            .filter_map(|it| Some(it.address.strip_prefix("[::]:")?.to_owned()))
            .collect();
        for port in ports {
            let (v4, v6) = (format!("0.0.0.0:{port}"), format!("[::]:{port}"));
            let of = |address: &String| {
                let here = self.all.iter().map(|server| server.addresses.contains(address));
                let default = self.defaults.iter().find(|(known, ..)| known == address);
                let listener = self.listeners.iter().find(|it| it.address == *address)?;
                let served = (here.collect::<Vec<bool>>(), default.map(|(_, server, _)| *server));
                Some((served, listener.proxy_protocol, listener.certificates.clone()))
            };
            let (of_v4, of_v6) = (of(&v4), of(&v6));
            if of_v4.is_none() || of_v4 == of_v6 {
                continue;
            }
            self.listeners.retain(|it| it.address != v6);
            self.defaults.retain(|(address, ..)| *address != v6);
            for server in self.all.iter_mut().filter(|server| server.addresses.contains(&v6)) {
                server.addresses.retain(|address| *address != v6);
                let listens = server.directive.directives().iter().filter(|it| it.name == "listen");
                let listens = listens.filter(|it| address(it.arg(0)).as_ref() == Some(&v6));
                let reason = format!(
                    "a listener for all IPv6 addresses also accepts IPv4, and nginx serves {v4} in another way: this address is left out, \
                     and IPv6 clients can't connect. Add listeners with the IPv6 addresses of the machine"
                );
                server.notes.extend(listens.map(|listen| listen.finding(reason.clone())));
            }
        }
    }

    /// Adds the authorities of client certificates to the listeners all of whose servers have the same.
    fn add_client_authorities(&mut self) {
        for listener in self.listeners.iter_mut().filter(|it| !it.certificates.is_empty()) {
            let servers = self.all.iter().filter(|server| server.addresses.contains(&listener.address));
            let mut required = servers.map(|server| server.client_ca.as_ref());
            let Some(Some((file, directive))) = required.next() else { continue };
            if required.all(|other| other.is_some_and(|(other, _)| other == file)) {
                listener.client_ca = Some(file.clone());
                listener.notes.push(directive.origin());
            }
        }
        for server in &mut self.all {
            let mut own = self.listeners.iter().filter(|it| server.addresses.contains(&it.address));
            server.is_verified =
                server.client_ca.is_some() && own.all(|listener| listener.client_ca.is_some());
        }
    }

    fn listen(&mut self, listen: &Directive, address: String, server: usize) {
        let is_explicit = listen.has("default_server") || listen.has("default");
        match self.defaults.iter_mut().find(|(known, ..)| *known == address) {
            Some((_, default, chosen)) => {
                if is_explicit && !*chosen {
                    (*default, *chosen) = (server, true);
                }
            }
            None => self.defaults.push((address.clone(), server, is_explicit)),
        }
        let known = self.listeners.iter().position(|listener| listener.address == address);
        let index = known.unwrap_or_else(|| {
            self.listeners.push(TomlListener { address, ..TomlListener::default() });
            self.listeners.len() - 1
        });
        if listen.has("proxy_protocol") {
            self.listeners[index].proxy_protocol = true;
            self.listeners[index].notes.push(listen.origin());
        }
    }

    /// Adds the certificates of a server to its listeners for TLS.
    fn add_certificates(&mut self, directive: &'d Directive, directory: &Path, server: &mut Server<'d>) {
        let block = directive.directives();
        let tls = block.iter().filter(|inner| inner.name == "listen" && inner.has("ssl"));
        let tls: Vec<String> = tls.filter_map(|listen| address(listen.arg(0))).collect();
        if tls.is_empty() {
            return;
        }
        let files = |name: &'static str| block.iter().filter(move |inner| inner.name == name);
        let mut certificates = Vec::new();
        for (cert, key) in files("ssl_certificate").zip(files("ssl_certificate_key")) {
            let paths = [cert, key].map(|file| directory.join(file.arg(0)));
            match paths.iter().zip([cert, key]).find_map(|(path, file)| Some((File::open(path).err()?, file)))
            {
                Some((error, file)) => {
                    let reason = format!(
                        "the file can't be read here ({error}): add it to `tls` of the listener, which serves plain HTTP without a certificate"
                    );
                    server.notes.push(file.finding(reason));
                }
                None => certificates.push(paths.map(|path| path.display().to_string()).into()),
            }
        }
        for listener in self.listeners.iter_mut().filter(|listener| tls.contains(&listener.address)) {
            for certificate in &certificates {
                if !listener.certificates.contains(certificate) {
                    listener.certificates.push(certificate.clone());
                }
            }
            if listener.certificates.is_empty() {
                let text = "NO TLS YET: nginx has TLS here, but no certificate was converted. Add tls = { certificates = \
                            [{ cert = …, key = … }] }";
                listener.notes.push(Note::text(text));
            }
        }
    }
}

/// Whether a server of this address is served by a listener; one for all IPv6 addresses serves those of IPv4 as well.
fn is_address_of(address: &str, listener: &TomlListener) -> bool {
    let of_all = address.strip_prefix("0.0.0.0:").map(|port| format!("[::]:{port}"));
    listener.address == address || of_all.is_some_and(|address| address == listener.address)
}

/// The file of authorities whose client certificates a server requires, with the directive that says so.
fn client_ca<'d>(
    http: &'d [Directive],
    server: &'d Directive,
    directory: &Path,
) -> Option<(String, &'d Directive)> {
    let last = |name: &str| {
        let named = |block: &'d [Directive]| block.iter().rev().find(|it| it.name == name);
        named(server.directives()).or_else(|| named(http))
    };
    let required = last("ssl_verify_client").filter(|directive| directive.arg(0) == "on")?;
    let file = directory.join(last("ssl_client_certificate")?.arg(0));
    File::open(&file).ok().map(|_| (file.display().to_string(), required))
}

fn add_host(server: &mut Server<'_>, names: &Directive, name: &str) {
    let is_host = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
    };
    let name = name.to_ascii_lowercase();
    if let Some(parent) = name.strip_prefix('.').filter(|parent| is_host(parent)) {
        server.hosts.extend([parent.to_owned(), format!("*.{parent}")]);
    } else if is_host(name.strip_prefix("*.").unwrap_or(&name)) {
        server.hosts.push(name);
    } else if !name.is_empty() && name != "_" {
        let reason = "the host of a route is a name, or `*.` and a name";
        server.has_lost_names = true;
        server.notes.push(Note::finding(&names.place, &format!("server_name {name}"), reason));
    }
}

/// The address of a `listen`, with its port.
fn address(text: &str) -> Option<String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<u16>().ok().map(|port| format!("0.0.0.0:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok()?),
        _ => (text, 80),
    };
    let host = match host {
        "*" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        _ => host,
    };
    let address = format!("{host}:{port}");
    address.parse::<std::net::SocketAddr>().ok().map(|address| address.to_string())
}

/// Removes listeners for all IPv4 addresses where one for all IPv6 addresses has the same port: it accepts both.
fn merge_wildcards(listeners: &mut Vec<TomlListener>) {
    let both: Vec<String> =
        listeners.iter().filter_map(|it| Some(it.address.strip_prefix("[::]:")?.to_owned())).collect();
    listeners.retain(|it| {
        !it.address.strip_prefix("0.0.0.0:").is_some_and(|port| both.iter().any(|it| it == port))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::tree::Tree;

    #[test]
    fn addresses_of_both_families_are_one_listener_if_they_are_served_alike() {
        let listeners = |text: &str| {
            let parsed = Tree::new(Path::new("")).parse("f", text).unwrap();
            let servers = Servers::of(&parsed, Path::new(""));
            let addresses: Vec<String> = servers.listeners.iter().map(|it| it.address.clone()).collect();
            (addresses.join(" "), servers.all.iter().map(|server| server.notes.len()).sum::<usize>())
        };
        let all = |address: &str| address.to_owned();
        assert_eq!(listeners("server { listen 80; listen [::]:80; }"), (all("[::]:80"), 0));
        assert_eq!(listeners("server { listen 80; } server { listen [::]:80; }"), (all("0.0.0.0:80"), 1));
        // The default servers differ.
        let text =
            "server { listen 80; listen [::]:80; } server { listen 80 default_server; listen [::]:80; }";
        assert_eq!(listeners(text), (all("0.0.0.0:80"), 2));
        let text = "server { listen 80 proxy_protocol; listen [::]:80; }";
        assert_eq!(listeners(text), (all("0.0.0.0:80"), 1));
    }

    #[test]
    fn a_listener_without_its_certificate_changes_behaviour() {
        let text = "server { listen 443 ssl; ssl_certificate /none.pem; ssl_certificate_key /none.key; }";
        let parsed = Tree::new(Path::new("")).parse("f", text).unwrap();
        let servers = Servers::of(&parsed, Path::new(""));
        assert!(matches!(&servers.all[0].notes[..], [Note::Finding(it)] if it.changes_behaviour));
    }

    #[test]
    fn addresses_have_a_port() {
        let cases = [
            ("80", Some("0.0.0.0:80")),
            ("*:8080", Some("0.0.0.0:8080")),
            ("127.0.0.1", Some("127.0.0.1:80")),
            ("[::]:443", Some("[::]:443")),
            ("[::1]", Some("[::1]:80")),
            ("localhost:81", Some("127.0.0.1:81")),
            ("unix:/run/x.sock", None),
            ("example.com:80", None),
            ("70000", None),
        ];
        for (text, expected) in cases {
            assert_eq!(address(text).as_deref(), expected, "{text}");
        }
    }
}
