//! When callers want to make calls, and how that is written.

use std::fmt;
use std::str::FromStr;

use paceline_core::Micros;
use paceline_core::duration::{self, Exact};

/// When a caller wants to make its next call. Each caller has one call at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    /// As soon as the last one was answered.
    Saturated,
    /// As `Saturated` for `on_us`, then nothing for `off_us`, and so on from the start: all callers
    /// together, so that what was saved while they slept meets them at once.
    OnOff {
        /// How long they want, in microseconds.
        on_us: Micros,
        /// How long they do not.
        off_us: Micros,
    },
    /// At random moments, so many in a second on average, each caller for itself.
    Rate {
        /// Calls in a second of each caller; above 0.
        calls_per_second_each: f64,
    },
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturated => f.write_str("saturated"),
            Self::OnOff { on_us, off_us } => {
                write!(f, "on-off {}/{}", Exact(*on_us), Exact(*off_us))
            }
            Self::Rate { calls_per_second_each } => write!(f, "{calls_per_second_each}/s"),
        }
    }
}

impl FromStr for Demand {
    type Err = DemandError;

    /// Reads `saturated`, `on-off 5s/20s`, or the calls of each caller such as `0.5/s`.
    fn from_str(text: &str) -> Result<Self, DemandError> {
        let refused = || DemandError { text: text.trim().to_owned() };
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["saturated"] => Ok(Self::Saturated),
            // Long enough to save up for a burst before most providers that count by the second.
            ["on-off"] => Ok(Self::OnOff { on_us: 5_000_000, off_us: 5_000_000 }),
            ["on-off", spans] => {
                let (on, off) = spans.split_once('/').ok_or_else(refused)?;
                let span = |text| duration::parse(text).ok().filter(|us| *us > 0);
                match (span(on), span(off)) {
                    (Some(on_us), Some(off_us)) => Ok(Self::OnOff { on_us, off_us }),
                    _ => Err(refused()),
                }
            }
            [rate] => {
                let number = rate.strip_suffix("/s").ok_or_else(refused)?;
                let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                match number.parse::<f64>() {
                    Ok(calls_per_second_each)
                        if plain && (0.000_001..=1e6).contains(&calls_per_second_each) =>
                    {
                        Ok(Self::Rate { calls_per_second_each })
                    }
                    _ => Err(refused()),
                }
            }
            _ => Err(refused()),
        }
    }
}

/// Why a demand was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "demand {text:?}: write saturated, on-off (or on-off ON/OFF, such as `on-off 5s/20s`), or the \
     calls of each caller in a second, from 0.000001/s to 1000000/s, such as 0.5/s"
)]
pub struct DemandError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_printed_again() {
        for text in ["saturated", "on-off 5s/20s", "on-off 250ms/1m", "3/s", "0.5/s"] {
            let demand: Demand = text.parse().unwrap();
            assert_eq!(demand.to_string(), text);
        }
        let short: Demand = "on-off".parse().unwrap();
        assert_eq!(short.to_string(), "on-off 5s/5s");
        assert_eq!(short.to_string().parse(), Ok(short));
    }

    #[test]
    fn what_is_no_demand_is_refused_with_the_text_and_what_is_allowed() {
        for text in [
            "",
            "much",
            "5",
            "5/m",
            "-1/s",
            "0/s",
            "inf/s",
            "1e3/s",
            "NaN/s",
            "2000000/s",
            "./s",
            "on-off 5s",
            "on-off 0s/5s",
            "on-off 5s/x",
            "on-off 5s/5s 5s",
            "saturated 3",
        ] {
            let message = text.parse::<Demand>().unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
            assert!(message.contains("saturated, on-off"), "{message}");
        }
    }
}
