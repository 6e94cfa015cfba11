//! The library as its users see it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod away;
mod cancellation;
mod environment;
mod limiter;
mod meters;
#[cfg(feature = "http")]
mod observe;
mod probe;
#[cfg(any(feature = "tower", feature = "reqwest"))]
mod refusing_server;
#[cfg(feature = "reqwest")]
mod reqwest;
mod settle;
mod tls;
#[cfg(feature = "tower")]
mod tower;
mod waiting;
