//! The keys of the configuration file: `keys!` declares those of a table beside its reader, and the messages, the
//! documentation and the JSON schema are made from the same list.

mod declare;
mod describe;
mod key;
pub mod kinds;
pub mod mistaken;
mod reference;

pub(super) use self::declare::keys;
pub use self::describe::{KeyText, TableText, describe, tables};
pub(super) use self::key::ANY_NAME;
pub use self::key::{ConfigKey, DeclaredKeys, Default, TableKeys, ValueKind};
pub use self::reference::{Block, Section, schema, sections};
