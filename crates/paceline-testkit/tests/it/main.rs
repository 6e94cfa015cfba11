//! The kit held to what it says of itself, since every other suite believes it.

#![allow(clippy::unwrap_used, reason = "in a test, helpers included, a panic is the report")]

mod proxy;
mod redis_cluster;
mod redis_server;
mod replica_pair;
mod scratch;
mod scripted;
mod sentinel_set;
mod time_shift;
mod wire;
