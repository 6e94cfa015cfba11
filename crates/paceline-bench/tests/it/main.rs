//! Runs of the figures' fleets that are worth having in every build, cut short. The provider's record
//! is judged by what came before what, so that nothing depends on how fast the machine is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod teach;
