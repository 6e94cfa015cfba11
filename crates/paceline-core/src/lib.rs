//! The decision behind Paceline, and nothing else: what a policy is, what is remembered of a
//! bucket, and one exact function that answers a call. No clock, no I/O, no async: time is an
//! argument, so every answer can be a line in a table.
//!
//! - [`policy`]: quotas and policies with their text form, valid from construction.
//! - [`state`]: what is remembered for one bucket, as plain integers.
//! - [`decide`]: the decision and its sister operations; `decide.lua` is its twin inside Redis.
//! - [`driver`]: how the waiters of one bucket in one process are served.
//! - [`duration`]: spans of time as people write them (`250ms`, `30s`, `1d`).
//! - [`view`]: what a person wants to see of a bucket.
//! - [`script`]: the Lua twin's text, its arguments and how its replies and hash are read.
//! - [`unit`](mod@unit): what quotas count, and what a call costs of each.

pub mod decide;
pub mod driver;
pub mod duration;
pub mod ease;
pub mod policy;
pub mod script;
pub mod state;
pub mod unit;
pub mod view;

pub use decide::{
    Ask, Batch, Booking, Cause, Decision, Group, Look, Lowered, Probed, Refused, Remaining, Run,
    Sight, Standing,
};
pub use policy::{Policy, PolicyError, Quota, Shape};
pub use state::{Bare, Bucket, Clock, Level, Probing, State, Suspension, Window};
pub use unit::{Cost, CostError, Unit};
pub use view::{QuotaView, SuspensionView, View};

/// A moment or a span in whole microseconds. Moments are counted from the Unix epoch on the
/// store's clock. Signed, because differences of moments are.
pub type Micros = i64;

/// The longest span anybody may name (an interval, a wait, a suspension): ten years. It keeps
/// every sum of spans and moments far below 2^53, where Lua's numbers stop being exact.
pub const SPAN_MAX_US: Micros = 3_650 * 86_400 * 1_000_000;

/// The largest whole number that both Rust and Lua (IEEE doubles) count exactly: 2^53.
pub const EXACT_MAX: i64 = 1 << 53;
