//! Abuse: whoever wears a server out is stopped, or costs little, while others are served as before.
//!
//! Each case has a proxy of its own with good clients at work ([`crowd`]) while somebody from another address does
//! harm. Cases stand in lists; each says how much memory the harm may cost while it lasts.

mod crowd;
mod http1;
mod http2;
mod limits;
mod servers;
mod swarm;
mod tls;

use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustls::ClientConfig;

use crate::support::{Authority, Frames, Tidegate, Upstream, connect_from, eventually, get};
use crowd::Crowd;

/// What harm comes from.
const ABROAD: &str = "127.0.0.2";
/// What memory may have grown by when it is over, in KiB: what allocators keep.
const KEPT: u64 = 6 * 1024;
/// The most keys that are counted.
const MAX_KEYS: usize = 1000;
/// So many requests of each good client must have had an end during the abuse.
const LEAST: usize = 20;

/// A kind of abuse.
struct Case {
    name: &'static str,
    /// Lines for both listeners.
    listener: &'static str,
    /// What memory may grow by while it lasts, in KiB.
    grows: u64,
    /// Whether clients who come anew find a place meanwhile.
    welcomes: bool,
    /// Does it, and asserts what else becomes of whoever does it.
    abuse: fn(&Ground),
}

/// Where it takes place: a proxy with two listeners, one of them with TLS, before good servers and others.
struct Ground {
    proxy: Tidegate,
    plain: SocketAddr,
    tls: SocketAddr,
    config: Arc<ClientConfig>,
    /// Never answers.
    silent: Upstream,
    /// Answers without end.
    endless: Upstream,
    /// Agrees to tunnels.
    tunnel: Upstream,
    /// Says what it is asked to say, without end.
    babbling: Upstream,
    _good: Upstream,
}

impl Ground {
    fn new(listener: &str) -> Self {
        let authority = Authority::new();
        authority.sign("a.test");
        let good = Upstream::echo();
        let silent = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
        let (endless, tunnel, babbling) = (servers::endless(), servers::tunnel(), servers::babbling());
        let proxy = Tidegate::start(&format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
             [[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificates = [{{ {} }}] }}\n{listener}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nmax_keys = {MAX_KEYS}\n\
             [limits.each]\nrate = \"700/s\"\nburst = 100\nkey = \"client_ip\"\n\
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
             [[routes]]\npath = \"/babbling\"\nupstream = \"{}\"\n\
             [[routes]]\npath = \"/tunnel\"\nupstream = \"{}\"\n",
            authority.pair("a.test"),
            silent.url(),
            good.url(),
            good.url(),
            silent.url(),
            endless.url(),
            babbling.url(),
            tunnel.url(),
        ));
        let addresses = proxy.addresses(2);
        let config = authority.client(None, &[&rustls::version::TLS13]);
        let (plain, tls) = (addresses[0], addresses[1]);
        Self { proxy, plain, tls, config, silent, endless, tunnel, babbling, _good: good }
    }

    /// What the metrics say behind these words.
    #[track_caller]
    fn metric(&self, words: &str) -> String {
        let metrics = get(self.proxy.admin(), "/metrics", &[]);
        let line = metrics.text().lines().find_map(|line| line.strip_prefix(words));
        line.unwrap_or_else(|| panic!("no {words} in {}", metrics.text())).to_owned()
    }

    /// A connection from abroad.
    #[track_caller]
    fn connect(&self) -> TcpStream {
        connect_from(ABROAD, self.plain).unwrap()
    }

    /// The same to the listener with TLS, on which nothing is said yet.
    #[track_caller]
    fn connect_tls(&self) -> TcpStream {
        connect_from(ABROAD, self.tls).unwrap()
    }

    /// HTTP/2 from abroad, with these settings.
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
    /// Stages it. It says what it has found, and fails if that is not as it must be.
    fn stage(&self) {
        let mut ground = Ground::new(self.listener);
        let members = if self.welcomes { Crowd::all } else { Crowd::faithful };
        let crowd = Crowd::start(members(ground.plain, ground.tls, &ground.config));
        let calm = crowd.share(LEAST);
        let before = ground.proxy.memory();
        crowd.forget();
        let start = (std::time::Instant::now(), ground.proxy.processor_time());
        (self.abuse)(&ground);
        let spent = (start.0.elapsed(), ground.proxy.processor_time().checked_sub(start.1).unwrap());
        let share = crowd.share(LEAST);
        let peak = ground.proxy.peak_memory();
        let mut after = 0;
        eventually("memory comes back", || {
            after = ground.proxy.memory();
            after <= before + KEPT
        });
        eprintln!(
            "{:60} {:5.1} % | p95 {:4} ms, calm {:3} ms | {before:6} {peak:6} {after:6} KiB | {:4} ms of {:4} ms",
            self.name,
            share.percent(),
            share.p95().as_millis(),
            calm.p95().as_millis(),
            spent.1.as_millis(),
            spent.0.as_millis(),
        );
        assert!(share.percent() >= 95.0, "good clients get too few answers; {}", share.worst());
        assert!(peak <= before + self.grows, "memory grows by {} KiB", peak - before);
        assert!(ground.proxy.is_running());
    }
}

/// Stages one case after the other, and says which fail.
#[track_caller]
fn stage(cases: &[Case]) {
    let wanted = std::env::var("TIDEGATE_ABUSE").unwrap_or_default();
    let mut failed = Vec::new();
    for case in cases.iter().filter(|case| case.name.contains(&wanted)) {
        if catch_unwind(AssertUnwindSafe(|| case.stage())).is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "{} of {} cases: {failed:#?}", failed.len(), cases.len());
}
