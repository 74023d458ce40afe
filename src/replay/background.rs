//! Reads logs in a thread of their own.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::arrivals::Arrivals;
use super::entry::Entry;
use super::input::Progress;
use super::summary::ReadSummary;

/// Requests that are passed on together.
const BATCH: usize = 512;
/// Batches that wait at most.
const BATCHES: usize = 8;

/// Requests in the order of their arrival, which a thread reads ahead.
pub struct BackgroundReader {
    batches: Receiver<Vec<Entry<'static>>>,
    thread: JoinHandle<ReadSummary>,
    progress: Arc<Progress>,
}

impl BackgroundReader {
    /// Starts a thread that reads.
    pub fn start(mut arrivals: Arrivals) -> io::Result<Self> {
        let progress = Arc::clone(arrivals.progress());
        let (sender, batches) = sync_channel(BATCHES);
        let thread = Builder::new().name("log-reader".to_owned()).spawn(move || {
            loop {
                let batch: Vec<Entry<'static>> = arrivals.by_ref().take(BATCH).collect();
                if batch.is_empty() || sender.send(batch).is_err() {
                    return arrivals.summary();
                }
            }
        })?;
        Ok(Self { batches, thread, progress })
    }

    /// The next requests; none at the end.
    #[must_use]
    pub fn next_batch(&self) -> Option<Vec<Entry<'static>>> {
        self.batches.recv().ok()
    }

    /// How much was read.
    #[must_use]
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Stops the thread, and returns what it has read. Fails if the thread has panicked.
    pub fn finish(self) -> io::Result<ReadSummary> {
        drop(self.batches);
        self.thread.join().map_err(|_| io::Error::other("the thread that reads logs has panicked"))
    }
}
