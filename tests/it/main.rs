//! Integration tests, in one binary so that they link once.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod cli;
mod config;
mod reports;
mod stores;
mod support;
mod tidy;
