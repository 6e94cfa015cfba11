//! The core's tests: vectors, properties and reported failures in Rust, and the twin against a
//! real redis-server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a seed is a bug report, and has to be seen")]

mod cases;
mod driver;
mod heard;
mod policies;
mod probing;
mod properties;
mod traces;
mod twin;
