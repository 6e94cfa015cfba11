//! How long the store took to answer of late. The shortest of the last few tells what an answer
//! takes when nothing holds it up, even after some were; the longest tells what to be ready for.

use crate::Micros;

/// So many are kept.
const KEPT: usize = 4;

/// The last few.
#[derive(Debug, Default)]
pub(super) struct Trips {
    us: [Micros; KEPT],
    count: usize,
}

impl Trips {
    pub(super) fn add(&mut self, us: Micros) {
        self.us[self.count % KEPT] = us;
        // Full twice over is as full as full once.
        self.count = if self.count + 1 == 2 * KEPT { KEPT } else { self.count + 1 };
    }

    /// The shortest; `None` where none has been made.
    pub(super) fn least(&self) -> Option<Micros> {
        self.kept().iter().copied().min()
    }

    /// The longest; 0 where none has been made.
    pub(super) fn longest(&self) -> Micros {
        self.kept().iter().copied().max().unwrap_or(0)
    }

    fn kept(&self) -> &[Micros] {
        &self.us[..self.count.min(KEPT)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_four_count() {
        let mut trips = Trips::default();
        assert_eq!((trips.least(), trips.longest()), (None, 0));
        for us in 1..=100 {
            trips.add(us);
            assert_eq!((trips.least(), trips.longest()), (Some((us - 3).max(1)), us));
        }
    }
}
