//! `tidegate convert`: what it writes, and that tidegate then decides as the origin does.

mod access;
mod account;
mod authorization;
mod forwarded;
mod golden;
mod haproxy;
mod kubernetes;
mod nginx;
mod origin;
mod public;
mod traefik;
mod traffic;

use super::{Finished, repository, tidegate};
