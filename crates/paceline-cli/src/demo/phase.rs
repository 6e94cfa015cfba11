//! What happens along the way, and when it did.

use std::time::Duration;

/// What the demo does to the bucket when a phase begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Halve,
    Suspend,
    Resume,
}

/// The phases after the start: name, share of the whole time, act.
pub(super) const SCRIPT: [(&str, f64, Act); 4] = [
    ("full speed", 0.35, Act::Nothing),
    ("half the limit", 0.25, Act::Halve),
    ("suspended", 0.1, Act::Suspend),
    ("resumed, full speed", 0.3, Act::Resume),
];

/// One phase, on the provider's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) act: Act,
    pub(super) from: Duration,
    pub(super) until: Duration,
}

impl Phase {
    pub(super) fn begin(name: &'static str, now: Duration) -> Self {
        Self { name, act: Act::Nothing, from: now, until: Duration::MAX }
    }

    /// Ends the present phase and begins another.
    pub(super) fn next(phases: &mut Vec<Self>, name: &'static str, act: Act, now: Duration) {
        Self::end(phases, now);
        phases.push(Self { act, ..Self::begin(name, now) });
    }

    pub(super) fn end(phases: &mut [Self], now: Duration) {
        if let Some(last) = phases.last_mut() {
            last.until = now;
        }
    }

    pub(super) fn holds(&self, moment: Duration) -> bool {
        self.from <= moment && moment < self.until
    }

    pub(super) fn span(&self) -> Duration {
        self.until.saturating_sub(self.from)
    }
}
