//! Sockets: buffers, timeouts that cost a busy connection nothing, minimum rates, and lingering close.

mod buffered;
mod lingering;
mod listen_cure;
mod options;
mod rate;
mod timed;
mod timer;

pub use buffered::BufferedStream;
pub use lingering::Lingering;
pub use listen_cure::{listen_cure, unix_listen_cure};
pub use options::set_tcp_options;
pub use rate::{EarnedCredit, RATE_GRACE, TransferRate};
pub use timed::{Activity, TimedStream};
pub use timer::{Deadline, LazyTimer, TooLate};
