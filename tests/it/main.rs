//! Integration tests, in one binary so that they link once.

mod cli;
mod config;
mod reports;
