//! Paceline holds a fleet of independent processes to one pace for each third-party API they call,
//! with no coordinator, no lock and no shared memory: one atomic decision, made in one place, that
//! any process can ask for.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! use paceline::Limiter;
//!
//! // `redis://…` for a fleet, `host:` for all processes of this machine.
//! let limiter = Limiter::open("memory:").await?;
//! let github = limiter.bucket("github", "50/s burst 10, window 1000/m guard 50ms")?;
//! let answer = github.run(async || "called").await?;
//! # assert_eq!(answer, "called");
//! # Ok(()) }
//! ```
//!
//! - [`Limiter`] is a store, opened once; [`Bucket`] a handle of one bucket, with the verbs that
//!   acquire; [`Permit`] one granted call; [`Refusal`] says when to come back.
//! - [`Policy`] is what a bucket holds to: one to eight [`Quota`]s that must all pass.
//! - [`InFlight`] tells when the answer to a call has come; [`meters`] lists what is measured.
//! - [`Examination`] is what [`Limiter::examine`] found wrong or risky about a store.
//! - [`WhenAway`] is what a call gets while the store is away.
//! - [`blocking`] is the same for programs without async; [`testing`] is for tests of yours.
//! - With the feature `http`, `Bucket::observe` tells the fleet what a provider's answer said; see
//!   the module `http`. With the features `tower` and `reqwest`, HTTP clients ask and tell by
//!   themselves; see the modules of these names.
//! - [`guide`] builds a polite API client from start to end.

mod answer;
mod away;
pub mod blocking;
mod bucket;
mod clock;
mod error;
mod examination;
pub mod guide;
#[cfg(feature = "http")]
pub mod http;
mod into_policy;
mod limiter;
mod line;
mod listen;
pub mod meters;
mod name;
mod permit;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod stats;
mod status;
mod store;
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;
mod wait;

pub use paceline_core::duration;
pub use paceline_core::{Cost, CostError, Policy, PolicyError, Quota, Shape, Unit};

pub use answer::{Answer, Refusal, RefusedBy};
pub use away::WhenAway;
pub use bucket::{Bucket, Call};
pub use error::Error;
pub use examination::{Examination, Fact, Finding, Severity};
pub use into_policy::IntoPolicy;
pub use limiter::{Limiter, LimiterBuilder, STORE_DEFAULT, STORE_VARIABLE, WHEN_AWAY_VARIABLE};
pub use permit::{GrantedBy, InFlight, Permit};
pub use stats::Stats;
pub use status::{ProbeStatus, QuotaStatus, Status, SuspensionStatus};

/// The README's example compiles, or `cargo test` says so.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
