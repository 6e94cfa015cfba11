//! The core's tests: vectors, properties and reported failures in Rust, and the twin against a
//! real redis-server.

mod cases;
mod policies;
mod properties;
mod traces;
mod twin;
