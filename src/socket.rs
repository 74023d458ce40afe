//! Sockets: buffers, timeouts that cost a busy connection nothing, minimum rates, and lingering close.

mod buffered;
mod lingering;
mod rate;
mod setup;
mod timed;
mod timer;

pub use buffered::BufferedStream;
pub use lingering::Lingering;
pub use rate::{EarnedCredit, RATE_GRACE, TransferRate};
pub use setup::{listen_cure, set_tcp_options, unix_connect_cure, unix_listen_cure};
pub use timed::{Activity, TimedStream};
pub use timer::{Deadline, LazyTimer, TooLate, earlier};
