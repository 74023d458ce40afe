//! The thread of a limiter: it has the connection to the store, which is bound to a thread, and decides what callers on other
//! threads send it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::active::Control;
use super::calls::EngineCall;
use super::engine::Engine;
use crate::store::{StoreSpec, sweep_memory};
use crate::time::monotonic;

/// What the thread of a limiter is started with.
pub(super) struct ThreadConfig {
    pub control: Arc<Control>,
    pub store: StoreSpec,
}

/// A started thread. It ends when the last sender of calls is dropped.
pub(super) struct Started {
    pub calls: UnboundedSender<EngineCall>,
    /// True once the keys of tokens were fetched, or that has failed.
    pub is_ready: watch::Receiver<bool>,
    /// Fails when the thread has ended.
    pub ended: watch::Receiver<()>,
}

/// Starts the thread of a limiter.
///
/// # Errors
/// If no thread, or no runtime on it, can be created.
pub(super) fn start(config: ThreadConfig) -> io::Result<Started> {
    // Unbounded, since the release of what a request holds must not fail. Calls that wait are bounded by their places, and
    // each of the others is about something that is held.
    let (calls, received) = mpsc::unbounded_channel();
    let (ends, ended) = watch::channel(());
    let (ready, is_ready) = watch::channel(false);
    let (started, has_started) = sync_channel(1);
    let sender = calls.downgrade();
    std::thread::Builder::new().name("tidegate-limits".to_owned()).spawn(move || {
        // Dropped last, also if the thread panics.
        let _ends = ends;
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime: io::Result<LocalRuntime> = runtime;
        match runtime {
            Ok(runtime) => {
                // The caller waits for it.
                let _ = started.send(Ok(()));
                let served = catch_unwind(AssertUnwindSafe(|| {
                    runtime.block_on(async {
                        let engine = Engine::start(config.control, config.store, sender, ready).await;
                        serve(&engine, received).await;
                    });
                }));
                if served.is_err() {
                    tracing::error!("the thread of a limiter has panicked: requests that need it get 503");
                }
            }
            Err(error) => drop(started.send(Err(error))),
        }
    })?;
    has_started.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")))?;
    Ok(Started { calls, is_ready, ended })
}

async fn serve(engine: &Engine, mut received: UnboundedReceiver<EngineCall>) {
    let mut sweeper = JoinSet::new();
    sweeper.spawn_local(sweep_memory(engine.memory()));
    let mut tasks = JoinSet::new();
    while let Some(call) = received.recv().await {
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        while tasks.try_join_next().is_some() {}
        engine.answer(call, &mut tasks);
    }
    // Refunds that are on their way; each has a deadline.
    while tasks.join_next().await.is_some() {}
    engine.stop().await;
}
