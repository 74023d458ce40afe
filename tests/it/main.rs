//! Tests of the whole: real files, real sockets, real processes.

mod stores;
mod support;
