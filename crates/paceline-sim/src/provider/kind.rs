//! The ways of counting by name.

use std::fmt;
use std::str::FromStr;

use super::ProviderError;

/// How a provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// At most the limit in any span of the interval; each call is remembered.
    Sliding,
    /// At most the limit in each interval; when they begin is the provider's secret.
    Fixed,
    /// At most the limit in each interval, which begins with the first call after the last one.
    First,
    /// Two counts: this interval's calls and, by the share of it that a sliding window still
    /// covers, the last one's. A part of a call counts as none, as where counts are rounded down
    /// or the sum is compared before the call is added.
    Counter,
    /// As `Counter`, where a part of a call counts as a whole one, as where the sum is compared
    /// after the call is added.
    CounterUp,
    /// A bucket of tokens that refills evenly.
    Bucket,
    /// A meter that each call fills by one, and that loses one at each tick.
    Leaky,
    /// A smallest gap between calls: the interval divided by the limit.
    Spacing,
    /// At most the limit under way at once; an answer takes the interval.
    Concurrency,
}

impl Kind {
    /// All of them, in the order they are told.
    pub const ALL: [Self; 9] = [
        Self::Sliding,
        Self::Fixed,
        Self::First,
        Self::Counter,
        Self::CounterUp,
        Self::Bucket,
        Self::Leaky,
        Self::Spacing,
        Self::Concurrency,
    ];

    /// The name in a provider's text form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sliding => "sliding",
            Self::Fixed => "fixed",
            Self::First => "first",
            Self::Counter => "counter",
            Self::CounterUp => "counter-up",
            Self::Bucket => "bucket",
            Self::Leaky => "leaky",
            Self::Spacing => "spacing",
            Self::Concurrency => "concurrency",
        }
    }

    /// What it is called in a sentence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sliding => "sliding window",
            Self::Fixed => "fixed window",
            Self::First => "window from the first call",
            Self::Counter => "sliding counter",
            Self::CounterUp => "sliding counter, rounded up",
            Self::Bucket => "token bucket",
            Self::Leaky => "leaky meter",
            Self::Spacing => "smallest gap",
            Self::Concurrency => "calls under way",
        }
    }

    /// What it does, in a line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Sliding => "At most the limit in any span of the interval",
            Self::Fixed => {
                "At most the limit in each interval; when they begin is the provider's secret"
            }
            Self::First => "At most the limit in an interval that begins with its first call",
            Self::Counter => "A sliding window reckoned from two counts, rounded down",
            Self::CounterUp => "A sliding window reckoned from two counts, rounded up",
            Self::Bucket => "A bucket of tokens that refills the limit in each interval",
            Self::Leaky => "A meter that each call fills by one and each tick lowers by one",
            Self::Spacing => "A smallest gap between calls: the interval divided by the limit",
            Self::Concurrency => {
                "At most the limit under way at once; an answer takes the interval"
            }
        }
    }

    /// Whether it has a capacity besides its limit.
    #[must_use]
    pub fn has_capacity(self) -> bool {
        matches!(self, Self::Bucket | Self::Leaky)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = ProviderError;

    fn from_str(text: &str) -> Result<Self, ProviderError> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            ProviderError::new(text, format!("a kind is one of {names}"))
        })
    }
}
