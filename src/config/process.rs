//! The keys of the top level that configure the process.

use std::time::Duration;

use super::table::Table;

/// The keys of the top level that configure the process.
pub(super) struct Process {
    pub workers: usize,
    pub shutdown_delay: Duration,
    pub shutdown_grace: Duration,
    pub watch: bool,
}

/// Reads them.
pub(super) fn process(top: &Table<'_>) -> Option<Process> {
    let workers = workers(top);
    let (shutdown_delay, shutdown_grace) = (top.duration("shutdown_delay"), top.duration("shutdown_grace"));
    let watch = top.boolean("watch");
    Some(Process {
        workers: workers?,
        shutdown_delay: shutdown_delay?,
        shutdown_grace: shutdown_grace?,
        watch: watch?,
    })
}

fn workers(top: &Table<'_>) -> Option<usize> {
    let item = top.item("workers");
    if item.is_integer() {
        return top.count("workers");
    }
    let text = item.string_like("\"auto\" or a number of threads", "")?;
    let help = "write \"auto\" for one thread per CPU, or a number without quotes";
    text.parsed("a number of threads", help, |text| (text == "auto").then(all_cpus))
}

fn all_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
