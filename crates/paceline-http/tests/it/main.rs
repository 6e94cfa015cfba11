//! What answers of real providers say, and what profiles may say of providers.

#![allow(clippy::unwrap_used, reason = "in a test, helpers included, a panic is the report")]

mod allocations;
mod cases;
mod profiles;
mod properties;
mod samples;
