//! `tidegate convert`: what it writes, and that tidegate then decides as the origin does.

mod golden;
mod haproxy;
mod nginx;
mod origin;
mod traffic;

use super::{Finished, repository, tidegate};
