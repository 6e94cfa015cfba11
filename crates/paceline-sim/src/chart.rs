//! A report's bins as pictures: a few lines for a terminal, and an SVG.
//!
//! Both show calls that passed with those refused on top, and a line at what the provider's limit
//! allows. What is refused is told by shape and words as well as by colour.

mod svg;
mod terminal;

pub use self::svg::svg;
pub use self::terminal::{Letters, terminal};

/// A count in at most five characters: `7`, `1.7`, `950`, `12k`, `3.4M`.
#[allow(clippy::cast_precision_loss, reason = "for reading, not for decisions")]
fn short(count: f64) -> String {
    let scaled = [(1e9, "G"), (1e6, "M"), (1e3, "k")]
        .into_iter()
        // So that what is rounded up to a thousand goes with the next.
        .find(|(size, _)| count >= size * 0.9995);
    let (count, unit) = scaled.map_or((count, ""), |(size, unit)| (count / size, unit));
    let tenths = (count * 10.0).round() / 10.0;
    if tenths >= 100.0 || tenths.fract() == 0.0 {
        format!("{tenths:.0}{unit}")
    } else {
        format!("{tenths:.1}{unit}")
    }
}

#[cfg(test)]
mod testing {
    use crate::{Recorder, Report, Scenario};

    /// A report of a minute before `50/s`, where in second `n` what `calls` says passes and is
    /// refused.
    pub(super) fn report(policy: &str, calls: impl Fn(i64) -> (u64, u64)) -> Report {
        let scenario = Scenario::new(policy.parse().unwrap(), "sliding 50/s".parse().unwrap());
        let mut recorder = Recorder::new(&scenario);
        for second in 0..60 {
            let (passed, refused) = calls(second);
            for n in 0..passed + refused {
                recorder.call(0, 0, second * 1_000_000, n < passed);
            }
        }
        recorder.finish(60_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_told_in_five_characters() {
        for (count, told) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.667, "1.7"),
            (50.0, "50"),
            (99.96, "100"),
            (950.4, "950"),
            (999.7, "1k"),
            (12_345.0, "12.3k"),
            (999_990.0, "1M"),
            (3_400_000.0, "3.4M"),
            (1e12, "1000G"),
        ] {
            assert_eq!(short(count), told);
        }
    }
}
