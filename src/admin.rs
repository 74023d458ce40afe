//! The admin interface: metrics, readiness, the limits and their keys, over HTTP and for operators only.
//!
//! It has its own listener and runs on the main thread: its requests take no time from the workers, except for the locks
//! of the in-process store. `operations` lists what it offers, and docs/openapi.json describes it for other programs.

mod activity;
pub mod api;
mod body;
mod client;
mod connection;
mod control;
mod deadline;
mod denied;
mod event;
mod events;
mod failures;
mod guard;
mod handle;
mod history;
mod keys;
mod limits;
mod listen;
mod metrics;
mod names;
mod openapi;
mod operations;
mod page;
mod raises;
mod recorder;
mod reload;
mod response;
mod serve;
mod sessions;
mod spec;
mod state;
mod status;
mod top;

pub use activity::ProcessActivity;
pub use control::{ConfigControl, ConfigText, ReloadCall};
pub use listen::{AdminListenError, AdminListener, listen};
pub use recorder::record_activity;
pub use serve::serve;
pub use spec::{AdminAddress, AdminSpec, AdminTokenError, Token};
pub use state::{Admin, GaugeSources, ListenerSource};
