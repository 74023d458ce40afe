//! A worker: one thread that accepts connections and serves them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use super::connection::{protocol, serve};
use super::drain::Connections;
use super::listen::{BACKLOG, Listener};
use super::transport;
use crate::proxy::Proxy;

/// How often connections to servers are looked through.
const SWEEP: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a worker is made of.
pub struct WorkerSetup<F> {
    /// Its sockets.
    pub listeners: Vec<Listener>,
    /// Makes its proxy, within its runtime.
    pub proxy: F,
    /// Says when to drain.
    pub drain: watch::Receiver<bool>,
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    thread: std::thread::JoinHandle<io::Result<()>>,
}

impl Worker {
    /// Starts a thread that serves until it has drained.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start<F>(number: usize, setup: WorkerSetup<F>) -> io::Result<Self>
    where
        F: FnOnce() -> Proxy + Send + 'static,
    {
        let builder = std::thread::Builder::new().name(format!("worker-{number}"));
        Ok(Self { thread: builder.spawn(move || run(setup))? })
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

fn run<F: FnOnce() -> Proxy>(setup: WorkerSetup<F>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve_all(setup))
}

async fn serve_all<F: FnOnce() -> Proxy>(setup: WorkerSetup<F>) -> io::Result<()> {
    let proxy = Rc::new((setup.proxy)());
    // Who connects meanwhile waits in the backlog.
    proxy.begin().await;
    let connections = Rc::new(Connections::default());
    let mut accepting = Vec::new();
    for listener in setup.listeners {
        let (proxy, connections, drain) = (Rc::clone(&proxy), Rc::clone(&connections), setup.drain.clone());
        accepting.push(tokio::task::spawn_local(accept(listener, proxy, connections, drain)));
    }
    let sweeping = tokio::task::spawn_local(sweep(Rc::clone(&proxy)));
    let keeper = Rc::clone(&proxy);
    let keeping = tokio::task::spawn_local(async move { keeper.keep().await });
    for task in accepting {
        task.await.map_err(io::Error::other)??;
    }
    connections.drain();
    connections.all_closed().await;
    sweeping.abort();
    keeping.abort();
    proxy.give_back_slots().await;
    Ok(())
}

/// Accepts connections until it is time to drain, and then those that wait already.
async fn accept(
    listener: Listener,
    proxy: Rc<Proxy>,
    connections: Rc<Connections>,
    mut drain: watch::Receiver<bool>,
) -> io::Result<()> {
    let spec = listener.spec;
    let protocol = Rc::new(protocol(&spec));
    let socket = TcpListener::from_std(listener.socket)?;
    let start = |stream: TcpStream, address| {
        let Some(counted) = Listener::count(&listener.connections, spec.max_connections) else {
            tracing::debug!(%address, "refused: {} connections are open", spec.max_connections);
            return;
        };
        let (spec, protocol, proxy) = (spec.clone(), Rc::clone(&protocol), Rc::clone(&proxy));
        let open = connections.open();
        tokio::task::spawn_local(async move {
            let _counted = counted;
            // Without it small answers would wait for acknowledgements; a connection that refuses is gone.
            if stream.set_nodelay(true).is_ok()
                && let Some(accepted) = transport::accept(stream, address, &spec, &proxy).await
            {
                serve(accepted, &spec, &protocol, proxy, open).await;
            }
        });
    };
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = socket.accept() => accepted,
            _ = drain.wait_for(|is_time| *is_time) => break,
        };
        match accepted {
            Ok((stream, address)) => start(stream, address),
            Err(error) if is_about_one(&error) => {}
            Err(error) => {
                tracing::warn!("can't accept connections on {}: {error}", spec.address);
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
            start(stream, address);
        }
    }
    Ok(())
}

/// Whether an error of accept is one connection's own.
fn is_about_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn sweep(proxy: Rc<Proxy>) {
    let mut tick = tokio::time::interval(SWEEP);
    loop {
        tick.tick().await;
        proxy.sweep();
    }
}
