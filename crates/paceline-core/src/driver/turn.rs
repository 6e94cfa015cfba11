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
//! Where the slowest quota is a window, which opens for many calls at once, a process is as many
//! shares behind as what it had of the last window goes into the limit.
//!
//! The booked-ahead time is what all have in common and what every answer tells, so nothing is
//! written for this, and nobody needs to count processes. The function is a logarithm, so that two
//! processes are told apart equally well among ten and among a thousand.

use std::collections::VecDeque;

use crate::Micros;
use crate::policy::Rate;

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
/// What was granted within a span is remembered in so many parts.
const WINDOW_PARTS: Micros = 64;
/// A turn is so much of what it had of the last window.
const WINDOW_TURN: f64 = 0.25;
/// A turn is what comes to this process in so long, so that work on the store stays small.
const TURN_US: f64 = 1_500_000.0;
/// A turn's places span at most this, or so much more that the next can be asked for meanwhile.
const SPAN_US: f64 = 180_000.0;
const SPAN_TRIPS: f64 = 1.75;

/// One process's turns.
#[derive(Debug)]
pub(super) struct Turn {
    lookahead_us: f64,
    span_us: f64,
    /// The last one: when it began, and its tokens.
    last: Option<(Micros, i64)>,
    /// Tokens a microsecond that came to this process lately.
    share: Option<f64>,
    /// How far ahead the bucket was booked lately, as a part of the lookahead.
    ahead: Option<f64>,
    /// Refusals since the last turn.
    tries: u32,
    /// What it was granted within the last span of the slowest window: when, and tokens.
    in_window: VecDeque<(Micros, i64)>,
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
            span_us: SPAN_US,
            last: None,
            share: None,
            ahead: None,
            tries: 0,
            in_window: VecDeque::new(),
        }
    }

    /// How many tokens it asks for in one turn, at least 1.
    pub(super) fn tokens(&self, now: Micros, pace: Option<Rate>) -> i64 {
        let Some(pace) = pace else { return 1 };
        let usual = match pace.is_even {
            true => self.share.unwrap_or(0.0) * TURN_US,
            // A window opens for all at once: a part of what it had of the last one.
            false => 1.0 + self.in_window(now, pace) * WINDOW_TURN,
        };
        usual.min(pace.per_us * self.span_us).max(1.0) as i64
    }

    /// How long the store takes to answer.
    pub(super) fn trip(&mut self, trip_us: Micros) {
        self.span_us = (trip_us as f64 * SPAN_TRIPS).max(SPAN_US).min(self.lookahead_us);
    }

    /// Whether nobody else seems to want anything.
    pub(super) fn is_alone(&self) -> bool {
        self.ahead.is_none_or(|ahead| ahead <= LEAST)
    }

    /// The longest wait its first call may have, at `now`.
    pub(super) fn wait_max(&self, now: Micros, pace: Option<Rate>) -> Micros {
        let behind = self.behind(now, pace).clamp(1.0, SHARES_MAX);
        let part = LEAST + (1.0 - LEAST) * behind.ln() / SHARES_MAX.ln();
        (part * self.lookahead_us) as Micros
    }

    /// It was granted so many.
    pub(super) fn granted(&mut self, tokens: i64, now: Micros, pace: Option<Rate>) {
        let Some(pace) = pace.filter(|_| tokens > 0) else { return };
        self.tries = 0;
        if !pace.is_even {
            let span_us = (pace.most / pace.per_us) as Micros;
            while self.in_window.front().is_some_and(|(at, _)| at + span_us < now) {
                self.in_window.pop_front();
            }
            match self.in_window.back_mut() {
                Some((at, taken)) if now - *at < span_us / WINDOW_PARTS => *taken += tokens,
                _ => self.in_window.push_back((now, tokens)),
            }
        }
        let in_turn = self.shares_since_turn(now, pace) < 0.5;
        let Some((began_at, taken)) = &mut self.last else {
            self.last = Some((now, tokens));
            return;
        };
        if in_turn {
            *taken += tokens;
            return;
        }
        let share = *taken as f64 / (now - *began_at).max(1) as f64;
        let share = self.share.map_or(share, |it| (it + share) / 2.0);
        self.share = Some(share.max(pace.per_us / SHARES_MAX));
        (*began_at, *taken) = (now, tokens);
    }

    /// An answer told when the next call would be due; one's own places lie `step` tokens apart.
    pub(super) fn saw(
        &mut self,
        head_due: Micros,
        now: Micros,
        own: Micros,
        step: f64,
        pace: Option<Rate>,
    ) {
        self.tries = self.tries.saturating_add(1);
        let Some(pace) = pace else { return };
        if !pace.is_even {
            // What it waits for is time that must pass, not others.
            return;
        }
        let alone = (head_due - own) as f64 * pace.per_us < 1.5 * step;
        let ahead = if alone { 0.0 } else { (head_due - now) as f64 / self.lookahead_us };
        let ahead = ahead.clamp(0.0, 1.0);
        self.ahead = Some(self.ahead.map_or(ahead, |it| SMOOTH * ahead + (1.0 - SMOOTH) * it));
    }

    /// When to ask for a call that would be due at `head_due` as things stand: when it will be far
    /// enough behind to get in, if others keep the bucket booked as they did; and soon enough that
    /// it does not run dry if they do not. The more there seem to be, the longer it relies on them.
    /// `chance` is a random number from 0 to 1.
    pub(super) fn ask_at(
        &self,
        head_due: Micros,
        now: Micros,
        pace: Option<Rate>,
        chance: f64,
    ) -> Micros {
        let Some(pace) = pace else { return now };
        if !pace.is_even {
            // A full window opens at a known moment. Who had least of it books first.
            return head_due.saturating_sub(self.wait_max(now, Some(pace))).max(now);
        }
        let rate = pace.per_us;
        let ahead = self.ahead.unwrap_or(LEAST);
        let others = SHARES_MAX.powf((ahead - LEAST).max(0.0) / (1.0 - LEAST));
        let (entitled, cycle_us) = match self.last {
            Some((began_at, taken)) => {
                let by_others = others * taken as f64 / rate;
                let by_share = self.share.map_or(by_others, |share| taken as f64 / share);
                let since = (now - began_at) as f64;
                let after = if since < EARLY * by_share {
                    // Cut to whole microseconds it may be now, and asked for without end.
                    (EARLY * by_share).max(since + 1.0)
                } else {
                    by_others.clamp(since + 0.15 * by_share, since + 0.3 * by_share)
                };
                (began_at.saturating_add(after as Micros), by_share)
            }
            None => {
                // Nobody new is behind anybody else new: they find out by chance.
                let spread_us = f64::from(1 << self.tries.min(16)) / rate;
                let open = head_due.saturating_sub(self.lookahead_us as Micros).max(now);
                (open.saturating_add((chance * spread_us) as Micros), 0.0)
            }
        };
        let many = (others.ln() / OTHERS_MANY.ln()).min(1.0);
        let relied_us = many * RELIED_MAX * self.lookahead_us.max(0.2 * cycle_us)
            - (1.0 - many) * LEAST * self.lookahead_us;
        let latest = head_due.saturating_add(relied_us as Micros);
        // Before that it may not book so far ahead, even if nobody else books any more.
        let earliest = head_due.saturating_sub(self.wait_max(head_due, Some(pace)));
        entitled.max(earliest).min(latest).max(now)
    }

    /// How many shares it is behind: of a window by what it had of it in its last span, else by the
    /// time since its last turn.
    fn behind(&self, now: Micros, pace: Option<Rate>) -> f64 {
        match pace {
            None => SHARES_MAX,
            Some(pace) if pace.is_even => self.shares_since_turn(now, pace),
            Some(pace) => pace.most / self.in_window(now, pace).max(1.0),
        }
    }

    /// Tokens it was granted in the last span of a window.
    fn in_window(&self, now: Micros, pace: Rate) -> f64 {
        let from = now - (pace.most / pace.per_us) as Micros;
        let in_span = self.in_window.iter().filter(|(at, _)| *at >= from);
        in_span.map(|(_, tokens)| *tokens).sum::<i64>() as f64
    }

    fn shares_since_turn(&self, now: Micros, pace: Rate) -> f64 {
        match self.last {
            Some((began_at, taken)) => (now - began_at) as f64 * pace.per_us / taken.max(1) as f64,
            None => SHARES_MAX,
        }
    }
}
