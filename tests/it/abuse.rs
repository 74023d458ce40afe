//! Attacks: the proxy stops them, or they cost little, while other clients are served as before.
//!
//! Each case has a proxy of its own with good clients ([`good_clients`]) during an attack from another address. Each case has
//! a bound of the memory that the attack may cost.

mod connections;
mod good_clients;
mod http1;
mod http2;
mod limits;
mod servers;
mod tls;

use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::support::{Authority, Frames, Tidegate, Upstream, connect_from, eventually};
use good_clients::GoodClients;

/// The address of the attacker.
const ATTACKER: &str = "127.0.0.2";
/// The memory that may be retained after an attack, in KiB: allocators do not return all of it.
const RETAINED: u64 = 6 * 1024;
/// `max_keys` of the store.
const MAX_KEYS: usize = 1000;
/// How many requests each good client must complete during an attack.
const MIN_REQUESTS: usize = 20;

/// An attack.
struct Case {
    name: &'static str,
    /// Configuration lines of both listeners.
    listener: &'static str,
    /// By how much memory may grow during the attack, in KiB.
    max_growth: u64,
    /// Whether new connections are accepted during the attack.
    accepts_clients: bool,
    /// Runs the attack, and asserts its outcome for the attacker.
    attack: fn(&Setup),
}

/// A proxy with two listeners, one of them with TLS, in front of good and hostile servers.
struct Setup {
    proxy: Tidegate,
    plain: SocketAddr,
    tls: SocketAddr,
    config: Arc<ClientConfig>,
    /// Never responds.
    silent: Upstream,
    /// Sends endless responses.
    endless: Upstream,
    /// Accepts tunnels.
    tunnel: Upstream,
    /// Repeats the body of the request without end.
    repeating: Upstream,
    _good: Upstream,
}

impl Setup {
    fn new(listener: &str) -> Self {
        let authority = Authority::new();
        authority.sign("a.test");
        let good = Upstream::echo();
        let silent = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
        let (endless, tunnel, repeating) = (servers::endless(), servers::tunnel(), servers::repeating());
        let proxy = Tidegate::start(&format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
             [[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{{ {} }}] }}\n{listener}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nmax_keys = {MAX_KEYS}\n\
             [limits.each]\nrate = \"700/s\"\nburst = 100\nkey = \"client_ip\"\n\
             overrides = {{ \"{ATTACKER}\" = {{ rate = \"100/s\", burst = 100 }} }}\n\
             [limits.made_up]\nrate = \"5/hour\"\nkey = \"header:x-key\"\n\
             [upstreams.few]\nservers = [\"{}\"]\nmax_connections = 10\nmax_pending = 20\n\
             pending_timeout = \"500ms\"\nresponse_timeout = \"1s\"\n\
             [[routes]]\npath = \"/own\"\nrespond = {{ status = 200, body = \"own\\n\" }}\n\
             [[routes]]\npath = \"/good\"\nlimits = [\"each\"]\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/free\"\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/key\"\nlimits = [\"made_up\"]\nrespond = {{ status = 200 }}\n\
             [[routes]]\npath = \"/few\"\nupstream = \"few\"\n\
             [[routes]]\npath = \"/silent\"\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/endless\"\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/repeating\"\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/tunnel\"\nupstream = \"{}\"\n",
            authority.pair("a.test"),
            silent.url(),
            good.url(),
            good.url(),
            silent.url(),
            endless.url(),
            repeating.url(),
            tunnel.url(),
        ));
        let addresses = proxy.addresses(2);
        let config = authority.client(None, &[&rustls::version::TLS13]);
        let (plain, tls) = (addresses[0], addresses[1]);
        Self { proxy, plain, tls, config, silent, endless, tunnel, repeating, _good: good }
    }

    /// A connection from the attacker.
    #[track_caller]
    fn connect(&self) -> TcpStream {
        connect_from(ATTACKER, self.plain).unwrap()
    }

    /// The same to the listener with TLS, before the handshake.
    #[track_caller]
    fn connect_tls(&self) -> TcpStream {
        connect_from(ATTACKER, self.tls).unwrap()
    }

    /// HTTP/2 from the attacker, with these settings.
    #[track_caller]
    fn frames(&self, settings: &[(u16, u32)]) -> Frames {
        Frames::over(self.connect()).begin(settings)
    }

    /// The same over TLS.
    #[track_caller]
    fn frames_over_tls(&self, settings: &[(u16, u32)]) -> Frames {
        Frames::over_tls(self.connect_tls(), &self.config).begin(settings)
    }
}

impl Case {
    /// Runs the attack beside good clients, prints measurements, and asserts the bounds.
    fn run(&self) {
        let mut setup = Setup::new(self.listener);
        let members = if self.accepts_clients { GoodClients::all } else { GoodClients::persistent };
        let good_clients = GoodClients::start(members(setup.plain, setup.tls, &setup.config));
        let calm = good_clients.service_level(MIN_REQUESTS);
        let before = setup.proxy.memory();
        good_clients.reset();
        let start = (std::time::Instant::now(), setup.proxy.processor_time());
        (self.attack)(&setup);
        let spent = (start.0.elapsed(), setup.proxy.processor_time().checked_sub(start.1).unwrap());
        let service_level = good_clients.service_level(MIN_REQUESTS);
        let peak = setup.proxy.peak_memory();
        let mut after = 0;
        eventually("the memory is returned", || {
            after = setup.proxy.memory();
            after <= before + RETAINED
        });
        eprintln!(
            "{:60} {:5.1} % | p95 {:4} ms, calm {:3} ms | {before:6} {peak:6} {after:6} KiB | {:4} ms of {:4} ms",
            self.name,
            service_level.percent(),
            service_level.p95().as_millis(),
            calm.p95().as_millis(),
            spent.1.as_millis(),
            spent.0.as_millis(),
        );
        assert!(
            service_level.percent() >= 95.0,
            "good clients get too few responses; {}",
            service_level.worst()
        );
        assert!(peak <= before + self.max_growth, "the memory max_growth by {} KiB", peak - before);
        assert!(setup.proxy.is_running());
    }
}

/// Runs one case after the other, and reports those that fail.
#[track_caller]
fn run(cases: &[Case]) {
    let wanted = std::env::var("TIDEGATE_ABUSE").unwrap_or_default();
    let mut failed = Vec::new();
    for case in cases.iter().filter(|case| case.name.contains(&wanted)) {
        if catch_unwind(AssertUnwindSafe(|| case.run())).is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "{} of {} cases: {failed:#?}", failed.len(), cases.len());
}
