//! What one limiter has seen and done, as plain counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the limiter was opened; all clones share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Permits granted by the store.
    pub granted: u64,
    /// Refusals answered by the store to `try_acquire` and `acquire_within`.
    pub refused: u64,
    /// Permits given back unused.
    pub given_back: u64,
    /// Operations asked of the store, of any kind.
    pub store_operations: u64,
    /// Operations that failed, for whatever reason.
    pub store_errors: u64,
    /// Calls that were refused because the store was away ([`WhenAway::Refuse`](crate::WhenAway)).
    pub refused_away: u64,
    /// Permits given without the store ([`WhenAway::Allow`](crate::WhenAway)).
    pub allowed_away: u64,
    /// Permits given from this process's own share ([`WhenAway::Local`](crate::WhenAway)).
    pub granted_local: u64,
    /// Refusals answered by this process's own share to `try_acquire` and `acquire_within`. Who waits
    /// for a place of that share is not refused.
    pub refused_local: u64,
    /// Calls refused because as many waited as may.
    pub refused_crowded: u64,
}

/// One running count.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The running counts behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) granted: Count,
    pub(crate) refused: Count,
    pub(crate) given_back: Count,
    pub(crate) store_errors: Count,
    pub(crate) refused_away: Count,
    pub(crate) allowed_away: Count,
    pub(crate) granted_local: Count,
    pub(crate) refused_local: Count,
    pub(crate) crowded: Count,
}
