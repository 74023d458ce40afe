//! Sockets: buffers, time limits that cost a busy connection nothing, minimum rates, and how a connection ends.

mod buffered;
mod lingering;
mod options;
mod rate;
mod timed;
mod timer;

pub use buffered::BufferedStream;
pub use lingering::Lingering;
pub use options::set_options;
pub use rate::{RATE_GRACE, TransferRate};
pub use timed::{Activity, TimedStream};
pub use timer::{Deadline, LazyTimer, TooLate};
