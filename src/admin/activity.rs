//! The activity of the process: a history of frames, and one frame a second while a client watches.
//!
//! A `telemetry::Frame` is the difference of two `CounterSums`, so a request counts nothing for it. `admin::record_activity`, a
//! task of the main thread, reads the counters on a blocking thread: every ten seconds for the history, and every second while
//! an event stream is open. The `admin::ProcessActivity` outlives configurations. It keeps the last sums, which belong to
//! names: a name that was removed and added again starts at 0, and then all that it has counted is new. The task publishes a
//! frame in a `watch` channel, and the task of each stream sends the latest one when its client has taken the one before, so
//! that no client delays the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::telemetry::{CounterSums, Frame, GaugeValues, Metrics, Refusals};
use crate::time::{Timestamp, monotonic};

/// The seconds of a frame of the history.
pub(super) const HISTORY_SECONDS: u64 = 10;
/// The frames of the history: an hour.
const HISTORY_FRAMES: usize = 360;
/// The seconds of a frame of an event stream.
pub(super) const LIVE_SECONDS: u64 = 1;
/// How much earlier a frame may be: the timer is not exact.
const TOLERANCE: Duration = Duration::from_millis(500);

/// The activity of the process. It outlives a configuration.
#[derive(Debug)]
pub struct ProcessActivity {
    /// The oldest first.
    history: Mutex<VecDeque<Arc<Frame>>>,
    read: Mutex<Readings>,
    /// The latest frame; none while no client watches.
    live: watch::Sender<Option<LiveFrame>>,
    /// Whether a client has started to watch since the last frame.
    is_first_due: AtomicBool,
    /// Notified when a client starts to watch.
    subscribed: Notify,
}

/// A frame for the clients that watch, as an event.
#[derive(Clone, Debug)]
pub(super) struct LiveFrame {
    /// The activity since the last frame.
    pub next: Bytes,
    /// The activity since the last frame of the history, for clients that have just started to watch.
    pub first: Option<Bytes>,
}

/// The counters at the end of the last frames.
#[derive(Debug)]
struct Readings {
    history: Arc<CounterSums>,
    /// None while no client watches.
    live: Option<Arc<CounterSums>>,
}

/// Which frames are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// A frame of the event streams.
    live: bool,
    /// The first frame of an event stream.
    first: bool,
    /// A frame of the history.
    history: bool,
}

impl ProcessActivity {
    /// The activity of a process that starts now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let history = Arc::new(CounterSums::zero(now));
        Self {
            history: Mutex::default(),
            read: Mutex::new(Readings { history, live: None }),
            live: watch::Sender::new(None),
            is_first_due: AtomicBool::new(false),
            subscribed: Notify::new(),
        }
    }

    /// The frames of the last hour, the oldest first.
    pub(super) fn history(&self) -> Vec<Arc<Frame>> {
        self.history.lock().iter().map(Arc::clone).collect()
    }

    /// What upstreams have refused in about this time before now, and the time that it was counted in, which is never longer.
    pub(super) fn refusals(&self, window: Duration, metrics: &Metrics) -> (Refusals, Duration) {
        let read = self.read.lock();
        let mut refusals = Refusals::since(&read.history, metrics);
        let mut covered = monotonic().saturating_duration_since(read.history.at);
        for frame in self.history.lock().iter().rev() {
            if covered + frame.span() > window + TOLERANCE {
                break;
            }
            covered += frame.span();
            frame.add_refusals(&mut refusals);
        }
        (refusals, covered.min(window))
    }

    /// Waits until a client starts to watch.
    pub(super) async fn subscribed(&self) {
        self.subscribed.notified().await;
    }

    /// The latest frame, each second and at once.
    pub(super) fn watch(&self) -> watch::Receiver<Option<LiveFrame>> {
        let frames = self.live.subscribe();
        self.is_first_due.store(true, Ordering::Relaxed);
        self.subscribed.notify_one();
        frames
    }

    /// Whether a client watches.
    pub(super) fn is_watched(&self) -> bool {
        self.live.receiver_count() > 0
    }

    /// The frames that are due.
    pub(super) fn due(&self) -> Due {
        let now = monotonic();
        let mut read = self.read.lock();
        let is_watched = self.is_watched();
        if !is_watched && read.live.take().is_some() {
            self.live.send_replace(None);
        }
        let is_due = |last: &CounterSums, seconds| {
            now.duration_since(last.at) + TOLERANCE > Duration::from_secs(seconds)
        };
        let first = is_watched && self.is_first_due.swap(false, Ordering::Relaxed);
        Due {
            live: is_watched && (first || read.live.as_ref().is_none_or(|last| is_due(last, LIVE_SECONDS))),
            first,
            history: is_due(&read.history, HISTORY_SECONDS),
        }
    }

    /// Makes the frames that are due.
    pub(super) fn update(&self, due: Due, metrics: &Metrics, gauges: &GaugeValues, time: Timestamp) {
        let mut read = self.read.lock();
        let last = read.live.as_ref().unwrap_or(&read.history);
        let sums = Arc::new(CounterSums::read(metrics, last, monotonic()));
        let frame = |last: &CounterSums| Frame::between(last, &sums, gauges, time);
        if due.live {
            let next = event("frame", &frame(last));
            let first = due.first.then(|| event("frame", &frame(&read.history)));
            self.live.send_replace(Some(LiveFrame { next, first }));
            read.live = Some(Arc::clone(&sums));
        }
        if due.history {
            let frame = Arc::new(frame(&read.history));
            let mut history = self.history.lock();
            if history.len() == HISTORY_FRAMES {
                history.pop_front();
            }
            history.push_back(frame);
            drop(history);
            read.history = sums;
        }
    }
}

impl Due {
    /// Whether there is one.
    pub fn any(self) -> bool {
        self.live || self.history
    }
}

/// An event with a value as JSON.
pub(super) fn event(name: &str, value: &impl Serialize) -> Bytes {
    // Serialization can't fail: the values have string keys and finite numbers. The text has no line breaks.
    let data = serde_json::to_string(value).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Asks the client to wait this long before it connects again.
pub(super) fn retry(milliseconds: u32) -> Bytes {
    format!("retry: {milliseconds}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(activity: &ProcessActivity, metrics: &Metrics) -> Due {
        let due = activity.due();
        if due.any() {
            activity.update(due, metrics, &GaugeValues::default(), Timestamp(0));
        }
        due
    }

    #[tokio::test(start_paused = true)]
    async fn the_history_has_an_hour_in_frames_of_ten_seconds() {
        let (activity, metrics) = (ProcessActivity::new(monotonic()), Metrics::new(Timestamp(0)));
        for second in 1..=3_700_u64 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let due = update(&activity, &metrics);
            assert_eq!((due.live, due.history), (false, second.is_multiple_of(10)), "{second}");
            assert_eq!(activity.history().len() as u64, (second / 10).min(360));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_made_each_second_only_while_a_client_watches() {
        let (activity, metrics) = (ProcessActivity::new(monotonic()), Metrics::new(Timestamp(0)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!update(&activity, &metrics).any());
        let mut frames = activity.watch();
        // The first continues the history, and comes at once.
        assert!(update(&activity, &metrics).live);
        assert_eq!(seconds(&mut frames).1, Some(3.0));
        assert!(!update(&activity, &metrics).any());
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(update(&activity, &metrics).live);
            assert_eq!(seconds(&mut frames), (1.0, None));
        }
        // Another client gets what the history does not show yet; the first gets no second twice.
        let mut other = activity.watch();
        tokio::time::advance(Duration::from_millis(250)).await;
        assert!(update(&activity, &metrics).live);
        assert_eq!((seconds(&mut other), seconds(&mut frames)), ((0.25, Some(6.25)), (0.25, Some(6.25))));
        drop((frames, other));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!update(&activity, &metrics).any());
        assert!(activity.live.borrow().is_none());
    }

    /// The seconds that a frame covers, and the first frame of a client.
    fn seconds(frames: &mut watch::Receiver<Option<LiveFrame>>) -> (f64, Option<f64>) {
        let LiveFrame { next, first } = frames.borrow_and_update().clone().unwrap();
        let seconds = |event: Bytes| {
            let text = std::str::from_utf8(&event).unwrap();
            let data = text.strip_prefix("event: frame\ndata: ").unwrap();
            serde_json::from_str::<serde_json::Value>(data).unwrap()["seconds"].as_f64().unwrap()
        };
        (seconds(next), first.map(seconds))
    }
}
