//! A fleet in virtual time against a provider that counts strictly: what a policy would do before
//! anybody pays for it.
//!
//! - [`provider`]: how a provider counts, kind by kind, and how it is written.
//! - [`scenario`], [`demand`]: what is to be simulated.
//! - [`faults`]: what goes wrong meanwhile.
//! - [`simulate`] runs it, with the production decision and driver, and holds every run to the
//!   properties of the design.
//! - [`soak`]: random scenarios, one a seed, and what must come of them.
//! - [`report`]: what came of it, and the recorder that a run feeds.
//! - [`chart`]: a report as a picture, for a terminal and as an SVG.

pub mod chart;
pub mod demand;
pub mod faults;
mod fleet;
pub mod provider;
pub mod report;
pub mod scenario;
pub mod soak;

pub use demand::{Demand, DemandError};
pub use faults::Faults;
pub use fleet::{Broken, SimulationError, TIMEOUT_US, simulate};
pub use provider::{Kind, Provider, ProviderError, ProviderSpec};
pub use report::{Bin, Recorder, Report, Waits};
pub use scenario::{Scenario, StoreKind};
