//! A fleet in virtual time against a provider that counts strictly: what a policy would do before
//! anybody pays for it.
//!
//! - [`provider`]: how a provider counts, kind by kind, and how it is written.

pub mod provider;

pub use provider::{Kind, Provider, ProviderError, ProviderSpec};
