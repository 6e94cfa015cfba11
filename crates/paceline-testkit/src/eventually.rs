//! Waiting for what another thread or process does, without guessing how long it takes.

use std::time::{Duration, Instant};

/// Far above what any awaited thing needs, so that only a hang reaches it on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a failover may take: an election may fail, and be held again seconds later.
pub(crate) const PROMOTION_MAX: Duration = Duration::from_secs(30);

/// Looks again and again until `holds` says true.
///
/// # Panics
/// When it does not hold within twenty seconds; the message names `what`.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    awaited(what, PATIENCE, Duration::from_millis(2), || holds().then_some(()));
}

/// Looks every so often until there is something to be had, and returns that.
#[track_caller]
pub(crate) fn awaited<T>(
    what: &str,
    patience: Duration,
    every: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} in vain for: {what}");
        std::thread::sleep(every);
    }
}
