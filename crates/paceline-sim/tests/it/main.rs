//! Providers against what they promise, reckoned by brute force.

#![allow(clippy::unwrap_used, reason = "in a test, helpers included, a panic is the report")]

mod ease;
mod fleet;
mod providers;
