//! Waiting for what another thread or process does, without guessing how long it takes.

use std::time::{Duration, Instant};

/// Far above what any awaited thing needs, so that only a hang reaches it on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks again and again until `holds` says true.
///
/// # Panics
/// When it does not hold within twenty seconds; the message names `what`.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
