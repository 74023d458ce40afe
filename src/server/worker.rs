//! A worker: one thread that accepts connections and serves them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::ListenerSpec;
use super::connection::serve;
use super::drain::{Connections, Lifecycle, time_to_drain};
use super::listen::{BACKLOG, Listener};
use super::transport;
use crate::proxy::{ActiveProxy, ProxyConfig};
use crate::telemetry::LogThrottle;

/// How often connections to servers are looked through.
const SWEEP: Duration = Duration::from_secs(1);
/// How often memory is given back that connections have left.
const RELEASE: Duration = Duration::from_millis(250);
/// Larger than the blocks of which the allocator keeps some at hand.
const LARGE_BLOCK: usize = 1024 * 1024;
/// How long to wait when no connection can be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a worker is to do from now on.
#[derive(Debug)]
pub struct Order {
    /// What it serves with.
    pub generation: ProxyConfig,
    /// Its sockets on addresses that are new.
    pub listeners: Vec<Listener>,
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    thread: std::thread::JoinHandle<io::Result<()>>,
    orders: mpsc::Sender<(Order, oneshot::Sender<()>)>,
}

impl Worker {
    /// Starts a thread that serves until it has drained.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(number: usize, first: Order, drain: watch::Receiver<Lifecycle>) -> io::Result<Self> {
        let builder = std::thread::Builder::new().name(format!("worker-{number}"));
        let (orders, received) = mpsc::channel(1);
        Ok(Self { thread: builder.spawn(move || run(first, received, drain))?, orders })
    }

    /// Has it go on as ordered; returns when it does. One that drains goes on as it is.
    pub async fn apply(&self, order: Order) {
        let (done, is_done) = oneshot::channel();
        if self.orders.send((order, done)).await.is_ok() {
            let _ = is_done.await;
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it could not start, or ended by a panic.
    pub fn join(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker has panicked")))
    }
}

type Orders = mpsc::Receiver<(Order, oneshot::Sender<()>)>;

fn run(first: Order, orders: Orders, drain: watch::Receiver<Lifecycle>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve_all(first, orders, drain))
}

async fn serve_all(first: Order, mut orders: Orders, drain: watch::Receiver<Lifecycle>) -> io::Result<()> {
    // Who connects meanwhile waits in the backlog.
    let live = Rc::new(ActiveProxy::new(first.generation).await);
    let mut listening = JoinSet::new();
    for listener in first.listeners {
        listening.spawn_local(listen(listener, Rc::clone(&live), drain.clone()));
    }
    let sweeping = tokio::task::spawn_local(sweep(Rc::clone(&live)));
    let mut draining = drain.clone();
    loop {
        tokio::select! {
            Some((order, done)) = orders.recv() => {
                live.apply(order.generation).await;
                for listener in order.listeners {
                    listening.spawn_local(listen(listener, Rc::clone(&live), drain.clone()));
                }
                let _ = done.send(());
            }
            Some(ended) = listening.join_next() => ended.map_err(io::Error::other)??,
            () = time_to_drain(&mut draining) => break,
        }
    }
    while let Some(ended) = listening.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    sweeping.abort();
    live.finish().await;
    Ok(())
}

/// Serves an address until nobody listens there any more, and its last connection is closed.
async fn listen(
    listener: Listener,
    live: Rc<ActiveProxy>,
    drain: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let connections = Rc::new(Connections::default());
    accept(listener, live, &connections, drain).await?;
    connections.drain();
    connections.all_closed().await;
    Ok(())
}

/// Accepts connections until it is time to drain, and then those that wait already.
async fn accept(
    mut listener: Listener,
    live: Rc<ActiveProxy>,
    connections: &Rc<Connections>,
    mut drain: watch::Receiver<Lifecycle>,
) -> io::Result<()> {
    let mut spec = listener.spec.borrow_and_update().clone();
    let start = |stream: TcpStream, address, spec: &Arc<ListenerSpec>| {
        let place = match transport::place(&listener.places, address, spec, &live) {
            Ok(place) => place,
            Err(full) => {
                tracing::debug!(%address, "refused: {full}");
                return;
            }
        };
        let (spec, live, open) = (Arc::clone(spec), Rc::clone(&live), connections.open(place.occupant()));
        tokio::task::spawn_local(async move {
            let mut place = place;
            let accepted = transport::accept(stream, address, &spec, &live, &mut place).await;
            if let Some(accepted) = accepted {
                serve(accepted, &spec, &live, &open).await;
            }
        });
    };
    let socket = TcpListener::from_std(listener.socket)?;
    let mut failing = LogThrottle::default();
    loop {
        let accepted = tokio::select! {
            // Connections come last: under a flood there is always one more.
            biased;
            () = time_to_drain(&mut drain) => break,
            changed = listener.spec.changed() => {
                if changed.is_err() {
                    // The configuration has it no more.
                    break;
                }
                spec = listener.spec.borrow_and_update().clone();
                continue;
            }
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => start(stream, address, &spec),
            Err(error) if is_about_one(&error) => {}
            Err(error) => {
                if failing.is_due() {
                    tracing::warn!("can't accept connections on {}: {error}", spec.address);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // What waits in the backlog was accepted by the kernel: it is served before the socket closes. No more than
    // fits there, or a flood would keep us here.
    let socket = socket.into_std()?;
    for _ in 0..BACKLOG {
        let Ok((stream, address)) = socket.accept() else { break };
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            start(stream, address, &spec);
        }
    }
    drop(socket);
    // Whoever has it closed has waited for this.
    drop(listener.is_open);
    Ok(())
}

/// Whether an error of accept is one connection's own.
fn is_about_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn sweep(live: Rc<ActiveProxy>) {
    let (mut tick, mut release) = (tokio::time::interval(SWEEP), tokio::time::interval(RELEASE));
    loop {
        tokio::select! {
            _ = tick.tick() => live.now().sweep(),
            _ = release.tick() => release_memory(),
            () = live.room_is_wanted() => live.now().make_room(),
        }
    }
}

/// Lets memory that many connections have used go back to the system. The allocator gives back what has been free for
/// a while, but only when a large block is freed; a server whose connections all rest frees none.
fn release_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BLOCK)));
}
