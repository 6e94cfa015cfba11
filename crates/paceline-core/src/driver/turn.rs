//! How processes that know nothing of each other share one bucket by max-min.
//!
//! A process that was granted `n` tokens has had its turn, and what it may ask for grows from then
//! on: after the time in which the bucket brings `n` tokens it is one share behind, after `p` times
//! that, `p` shares. The further behind, the further ahead it may book, so where many compete the
//! bucket is booked just so far ahead that those most behind get in, and the next in order are
//! those next behind. Where `P` processes always want more each gets in when it is `P` shares
//! behind, whatever the size of its turns: all get the same. Who wants less is always far behind
//! and gets in at once.
//!
//! The booked-ahead time is what all have in common and what every answer tells, so nothing is
//! written for this, and nobody needs to count processes. The function is a logarithm, so that two
//! processes are told apart equally well among ten and among a thousand.

use crate::Micros;

/// What a process may book ahead however often it had its turn, as a part of the lookahead. The
/// bucket runs dry only where nobody asks while it is booked this far.
const LEAST: f64 = 0.15;
/// So many shares behind a process may book as far ahead as there is.
const SHARES_MAX: f64 = 250.0;
/// Where so many others seem to compete, a process relies on them to keep the bucket booked for so
/// long after it would run dry, as a part of the lookahead.
const OTHERS_MANY: f64 = 20.0;
const RELIED_MAX: f64 = 0.5;
/// The weight of the last answer in what is known of how far ahead the bucket is booked.
const SMOOTH: f64 = 0.3;
const EARLY: f64 = 1.0;
/// A turn is what comes to this process in so long, so that work on the store stays small.
const TURN_US: f64 = 1_500_000.0;
/// A turn's places span at most this.
const SPAN_US: f64 = 180_000.0;

/// One process's turns.
#[derive(Debug)]
pub(super) struct Turn {
    lookahead_us: f64,
    /// The last one: when it began, and its tokens.
    last: Option<(Micros, i64)>,
    /// Tokens a microsecond that came to this process lately.
    share: Option<f64>,
    /// How far ahead the bucket was booked lately, as a part of the lookahead.
    ahead: Option<f64>,
    /// Refusals since the last turn.
    tries: u32,
    /// Whether a window was full since then, beyond what anybody may book ahead.
    closed: bool,
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "estimates; casts to whole numbers saturate"
)]
impl Turn {
    pub(super) fn new(lookahead_us: Micros) -> Self {
        Self {
            lookahead_us: lookahead_us.max(1) as f64,
            last: None,
            share: None,
            ahead: None,
            tries: 0,
            closed: false,
        }
    }

    /// How many tokens it asks for in one turn, at least 1, where the bucket brings `rate` tokens a
    /// microsecond.
    pub(super) fn tokens(&self, rate: f64) -> i64 {
        if !rate.is_finite() {
            return 1;
        }
        // At first a quarter, as if four shared.
        let share = self.share.unwrap_or(0.0);
        let most = rate * SPAN_US;
        (share * TURN_US).min(most).max(1.0) as i64
    }

    /// Whether nobody else seems to want anything.
    pub(super) fn is_alone(&self) -> bool {
        self.ahead.is_none_or(|ahead| ahead <= LEAST)
    }

    /// The longest wait its first call may have, at `now`.
    pub(super) fn wait_max(&self, now: Micros, rate: f64) -> Micros {
        let behind = self.behind(now, rate).clamp(1.0, SHARES_MAX);
        let part = LEAST + (1.0 - LEAST) * behind.ln() / SHARES_MAX.ln();
        (part * self.lookahead_us) as Micros
    }

    /// It was granted so many.
    pub(super) fn granted(&mut self, tokens: i64, now: Micros, rate: f64) {
        if tokens == 0 {
            return;
        }
        self.tries = 0;
        let in_turn = self.behind(now, rate) < 0.5;
        let Some((began_at, taken)) = &mut self.last else {
            self.last = Some((now, tokens));
            return;
        };
        if in_turn {
            *taken += tokens;
            return;
        }
        if std::mem::take(&mut self.closed) {
            // A time in which nobody got anything says nothing of this process's share.
            (*began_at, *taken) = (now, tokens);
            return;
        }
        let share = *taken as f64 / (now - *began_at).max(1) as f64;
        let share = self.share.map_or(share, |it| (it + share) / 2.0);
        self.share = Some(share.max(rate / SHARES_MAX));
        (*began_at, *taken) = (now, tokens);
    }

    /// An answer told when the next call would be due.
    pub(super) fn saw(&mut self, head_due: Micros, now: Micros, own: Micros, rate: f64) {
        self.tries = self.tries.saturating_add(1);
        if self.is_closed(head_due, now, rate) {
            // Everybody waits, for time to pass rather than for each other.
            self.closed = true;
            return;
        }
        let alone = (head_due - own) as f64 * rate < 1.5;
        let ahead = if alone { 0.0 } else { (head_due - now) as f64 / self.lookahead_us };
        let ahead = ahead.clamp(0.0, 1.0);
        self.ahead = Some(self.ahead.map_or(ahead, |it| SMOOTH * ahead + (1.0 - SMOOTH) * it));
    }

    /// When to ask for a call that would be due at `head_due` as things stand: when it will be far
    /// enough behind to get in, if others keep the bucket booked as they did; and soon enough that
    /// it does not run dry if they do not. The more there seem to be, the longer it relies on them.
    /// `chance` is a random number from 0 to 1.
    pub(super) fn ask_at(&self, head_due: Micros, now: Micros, rate: f64, chance: f64) -> Micros {
        let ahead = self.ahead.unwrap_or(LEAST);
        let others = SHARES_MAX.powf((ahead - LEAST).max(0.0) / (1.0 - LEAST));
        let (entitled, cycle_us) = match self.last {
            Some((began_at, taken)) if rate.is_finite() => {
                let by_others = others * taken as f64 / rate;
                let by_share = self.share.map_or(by_others, |share| taken as f64 / share);
                let since = (now - began_at) as f64;
                let after = if since < EARLY * by_share {
                    EARLY * by_share
                } else {
                    by_others.clamp(since + 0.15 * by_share, since + 0.3 * by_share)
                };
                (began_at.saturating_add(after as Micros), by_share)
            }
            _ => {
                // Nobody new is behind anybody else new: they find out by chance.
                let spread_us = f64::from(1 << self.tries.min(16)) / rate;
                let open = head_due.saturating_sub(self.lookahead_us as Micros).max(now);
                (open.saturating_add((chance * spread_us) as Micros), 0.0)
            }
        };
        let many = (others.ln() / OTHERS_MANY.ln()).min(1.0);
        let relied_us = many * RELIED_MAX * self.lookahead_us.max(0.2 * cycle_us)
            - (1.0 - many) * LEAST * self.lookahead_us;
        // Where a window is full nobody can be relied on.
        let closed = self.is_closed(head_due, now, rate);
        let relied_us = if closed { -LEAST * self.lookahead_us } else { relied_us };
        let latest = head_due.saturating_add(relied_us as Micros);
        let earliest = head_due.saturating_sub(self.lookahead_us as Micros);
        entitled.max(earliest).min(latest).max(now)
    }

    /// Whether the next call is due later than bookings of the lookahead can explain.
    fn is_closed(&self, head_due: Micros, now: Micros, rate: f64) -> bool {
        (head_due - now) as f64 > self.lookahead_us + 2.0 / rate
    }

    /// How many shares it is behind.
    fn behind(&self, now: Micros, rate: f64) -> f64 {
        match self.last {
            Some((began_at, taken)) if rate.is_finite() => {
                (now - began_at) as f64 * rate / taken.max(1) as f64
            }
            _ => SHARES_MAX,
        }
    }
}
