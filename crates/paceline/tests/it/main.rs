//! The library as its users see it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(all(feature = "tower", feature = "reqwest"))]
mod answers;
mod away;
mod cancellation;
mod environment;
#[cfg(feature = "http")]
mod learn;
mod limiter;
mod meters;
#[cfg(feature = "tower")]
mod neighbours;
#[cfg(feature = "http")]
mod observe;
#[cfg(feature = "tower")]
mod pacer;
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
