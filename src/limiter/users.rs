//! Tells the background work of a limiter when no request can use the limiter any more.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::time::periodic;

/// How often it is checked whether the last requests have ended.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// One of the clones of a limiter.
#[derive(Clone, Debug)]
pub(super) struct Users {
    unused: Rc<Notify>,
    /// None in the background work.
    in_use: Option<Rc<InUse>>,
}

/// Dropped with the last clone.
#[derive(Debug)]
struct InUse(Rc<Notify>);

impl Default for Users {
    fn default() -> Self {
        let unused = Rc::<Notify>::default();
        Self { in_use: Some(Rc::new(InUse(Rc::clone(&unused)))), unused }
    }
}

impl Users {
    /// This clone is that of the background work.
    pub fn leave(&mut self) {
        self.in_use = None;
    }

    /// Waits until the others are dropped, and then until `is_unused`.
    pub async fn gone(&self, is_unused: impl Fn() -> bool) {
        self.unused.notified().await;
        let mut check = periodic(CHECK_INTERVAL);
        while !is_unused() {
            check.tick().await;
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
