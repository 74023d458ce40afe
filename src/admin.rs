//! The admin interface: metrics, readiness, the limits and their keys, over HTTP and for operators only.
//!
//! It has its own listener and runs on the main thread: its requests take no time from the workers, except for the locks
//! of the in-process store. `admin::handle` lists what it offers, and docs/openapi.json describes it for other programs.

mod activity;
pub mod api;
mod client;
mod control;
mod events;
mod guard;
mod handle;
mod keys;
mod limits;
mod listen;
mod page;
mod raises;
mod response;
mod sessions;
mod spec;
mod state;
mod status;
mod top;

pub use activity::ProcessActivity;
pub use control::{ConfigControl, ReloadCall};
pub use listen::{AdminListenError, AdminListener, listen_next, serve};
pub use spec::{AdminAddress, AdminSpec, AdminToken, AdminTokenError};
pub use state::{Admin, GaugeSources, ListenerSource, StoreServer, record_activity};
