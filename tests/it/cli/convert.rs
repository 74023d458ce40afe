//! `tidegate convert`: what it writes, and that tidegate then decides as the origin does.

mod golden;
mod nginx;
mod traffic;

use super::{Finished, repository, tidegate};
