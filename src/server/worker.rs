//! A worker: one thread that accepts connections and serves them.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::connection::serve;
use super::connection_limiter::ConnectionLimiter;
use super::drain::{Connections, Lifecycle, drain_started};
use super::listen::{BACKLOG, Listener};
use super::refusal_pacer::RefusalPacer;
use super::spec::ListenerSpec;
use super::start_queue::StartQueue;
use super::transport;
use crate::proxy::{ActiveProxy, ProxyConfig};
use crate::telemetry::LogThrottle;
use crate::time::{monotonic, periodic};

/// How often idle upstream connections are checked, and freed memory is returned to the system.
const SWEEP: Duration = Duration::from_secs(1);
/// How often that is done after the last connection was closed: the allocator returns memory only after a while.
const LAST_SWEEPS: u32 = 4;
/// Larger than the blocks that the allocator caches, in bytes.
const LARGE_BLOCK: usize = 1024 * 1024;
/// How long to wait when no connection can be accepted, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A new configuration for a worker.
#[derive(Debug)]
pub struct WorkerUpdate {
    /// The configuration of its proxy.
    pub config: ProxyConfig,
    /// Its sockets on addresses that are new in this configuration.
    pub listeners: Vec<Listener>,
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    thread: std::thread::JoinHandle<io::Result<()>>,
    updates: mpsc::Sender<(WorkerUpdate, oneshot::Sender<()>)>,
}

impl Worker {
    /// Starts a thread that serves until the server has drained.
    pub fn start(
        number: usize,
        first: WorkerUpdate,
        lifecycle: watch::Receiver<Lifecycle>,
    ) -> io::Result<Self> {
        let builder = std::thread::Builder::new().name(format!("worker-{number}"));
        let (updates, received) = mpsc::channel(1);
        Ok(Self { thread: builder.spawn(move || run(first, received, lifecycle))?, updates })
    }

    /// Applies a new configuration; returns when it is in use. A worker that drains keeps its own.
    pub async fn apply(&self, update: WorkerUpdate) {
        let (done, is_done) = oneshot::channel();
        if self.updates.send((update, done)).await.is_ok() {
            let _ = is_done.await;
        }
    }

    /// Whether its thread has finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its thread to finish. Fails when the worker could not start, could not accept connections any more, or has
    /// panicked.
    pub fn join(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker has panicked")))
    }
}

type Updates = mpsc::Receiver<(WorkerUpdate, oneshot::Sender<()>)>;

fn run(first: WorkerUpdate, updates: Updates, lifecycle: watch::Receiver<Lifecycle>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve_all(first, updates, lifecycle))
}

async fn serve_all(
    first: WorkerUpdate,
    mut updates: Updates,
    lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    // Connections that arrive before this is done wait in the backlog.
    let proxy = Rc::new(ActiveProxy::new(first.config).await);
    let (pacer, starts) = (Rc::new(RefusalPacer::new(monotonic())), Rc::new(StartQueue::new()));
    let listen = |listener| {
        let connections = Rc::new(Connections::new(Rc::clone(&pacer), Rc::clone(&starts)));
        listen(listener, Rc::clone(&proxy), connections, lifecycle.clone())
    };
    let mut listening = JoinSet::new();
    for listener in first.listeners {
        listening.spawn_local(listen(listener));
    }
    let distributing = Rc::clone(&starts);
    tokio::task::spawn_local(async move { distributing.run().await });
    let sweeping = tokio::task::spawn_local(sweep(Rc::clone(&proxy)));
    tokio::task::spawn_local(watch_readiness(Rc::clone(&proxy), lifecycle.clone()));
    let mut draining = lifecycle.clone();
    loop {
        tokio::select! {
            Some((update, done)) = updates.recv() => {
                proxy.apply(update.config).await;
                for listener in update.listeners {
                    listening.spawn_local(listen(listener));
                }
                let _ = done.send(());
            }
            Some(ended) = listening.join_next() => ended.map_err(io::Error::other)??,
            () = drain_started(&mut draining) => break,
        }
    }
    while let Some(ended) = listening.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    sweeping.abort();
    proxy.release_slots().await;
    Ok(())
}

/// Tells the proxy when the process is not ready any more.
async fn watch_readiness(proxy: Rc<ActiveProxy>, mut lifecycle: watch::Receiver<Lifecycle>) {
    if lifecycle.wait_for(|stage| *stage != Lifecycle::Serving).await.is_ok() {
        proxy.set_not_ready();
    }
}

/// Serves a listener until it is removed or the server drains, and its last connection is closed.
async fn listen(
    listener: Listener,
    proxy: Rc<ActiveProxy>,
    connections: Rc<Connections>,
    lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    accept(listener, proxy, &connections, lifecycle).await?;
    connections.drain();
    connections.all_closed().await;
    Ok(())
}

/// Accepts connections until the listener is removed or the server drains, and then those that are in the backlog.
async fn accept(
    mut listener: Listener,
    proxy: Rc<ActiveProxy>,
    connections: &Rc<Connections>,
    mut lifecycle: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let spec = listener.spec.borrow_and_update().clone();
    let mut acceptor = Acceptor { spec, limiter: listener.limiter, proxy, connections };
    let socket = TcpListener::from_std(listener.socket)?;
    let mut failures = LogThrottle::default();
    loop {
        let accepted = tokio::select! {
            // New connections have the lowest priority: under a flood there is always another one.
            biased;
            () = drain_started(&mut lifecycle) => break,
            changed = listener.spec.changed() => {
                if changed.is_err() {
                    // The listener is no longer part of the configuration.
                    break;
                }
                acceptor.spec = listener.spec.borrow_and_update().clone();
                continue;
            }
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => acceptor.start(stream, address),
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                if failures.is_due() {
                    tracing::warn!("can't accept connections on {}: {error}", acceptor.spec.address);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let socket = socket.into_std()?;
    acceptor.accept_backlog(&socket);
    drop(socket);
    // Reports that the socket is closed, so it is dropped after the socket.
    drop(listener.is_open);
    Ok(())
}

/// Serves the connections of one listener, each in a task.
struct Acceptor<'l> {
    /// The settings for new connections.
    spec: Arc<ListenerSpec>,
    limiter: Arc<ConnectionLimiter>,
    proxy: Rc<ActiveProxy>,
    connections: &'l Rc<Connections>,
}

impl Acceptor<'_> {
    /// Serves a connection, unless too many are open.
    fn start(&self, stream: TcpStream, address: SocketAddr) {
        let permit = match transport::permit(&self.limiter, address, &self.spec, &self.proxy) {
            Ok(permit) => permit,
            Err(full) => {
                tracing::debug!(%address, "refused: {full}");
                return;
            }
        };
        let (spec, proxy) = (Arc::clone(&self.spec), Rc::clone(&self.proxy));
        let (tracker, open) = (self.connections.open(permit.status()), proxy.open_connection());
        tokio::task::spawn_local(async move {
            let (mut permit, _open) = (permit, open);
            let accepted = transport::accept(stream, address, &spec, &proxy, &mut permit).await;
            if let Some(accepted) = accepted {
                serve(accepted, &spec, &proxy, &tracker).await;
            }
        });
    }

    /// Serves the connections in the backlog, which their clients see as established; at most as many as the backlog holds,
    /// because under a flood there is always another one.
    fn accept_backlog(&self, socket: &std::net::TcpListener) {
        for _ in 0..BACKLOG {
            let Ok((stream, address)) = socket.accept() else { break };
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                self.start(stream, address);
            }
        }
    }
}

/// Whether an error of accept concerns only one connection, so that the next one can be accepted at once.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Sweeps while there are connections, and for a while afterwards; an idle worker has no timer.
async fn sweep(proxy: Rc<ActiveProxy>) {
    loop {
        let (mut tick, mut last) = (periodic(SWEEP), 0);
        while last < LAST_SWEEPS {
            tokio::select! {
                _ = tick.tick() => {
                    last = if proxy.sweep() { 0 } else { last + 1 };
                    release_memory();
                }
                () = proxy.notified() => proxy.adopt_changes(),
            }
        }
        tokio::select! {
            () = proxy.connection_opened() => {}
            () = proxy.notified() => proxy.adopt_changes(),
        }
    }
}

/// Returns memory to the system that many connections have used. The allocator returns what has been free for a while,
/// but only when a large block is freed, and a worker whose connections are all idle frees none.
fn release_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BLOCK)));
}
