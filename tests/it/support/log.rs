//! The output of a proxy.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};

/// Lines that a proxy has written.
#[derive(Debug, Default)]
pub struct Log {
    pub lines: Mutex<Vec<String>>,
    /// Notified of each line.
    pub more: Condvar,
}

impl Log {
    /// Reads all lines.
    pub fn of(output: impl Read + Send + 'static) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                written.lines.lock().unwrap().push(line);
                written.more.notify_all();
            }
        });
        log
    }
}
