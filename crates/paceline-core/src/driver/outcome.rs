//! What a driver tells: what became of waiters, and what it wants done.

use crate::decide::{Booking, Cause, Group};
use crate::{Cost, Micros};

/// What became of somebody.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<W> {
    /// It goes now. Where it slept, `due_at` is when it was due at the earliest.
    Go {
        /// Who.
        waiter: W,
        /// The place it goes on.
        booking: Booking,
        /// When it was due.
        due_at: Micros,
        /// Until when it may go; later its place is spent and it stands in line anew.
        good_until: Micros,
        /// Whether it goes first in a suspension, and the others wait for its answer; see
        /// [`probed`](crate::decide::probed), which whoever does not make the call has to tell.
        probe: bool,
    },
    /// It would have to wait for longer than it may.
    Refused {
        /// Who.
        waiter: W,
        /// When the call would pass if nobody called but those before it, from now.
        retry_after_us: Micros,
        /// What refused.
        cause: Cause,
    },
    /// Its call can never pass.
    Never {
        /// Who.
        waiter: W,
        /// What it wanted.
        cost: Cost,
        /// The most of the quota's unit that can.
        cost_max: i64,
        /// The quota, from 1, that is too small.
        quota: usize,
    },
    /// A place nobody here can use any more: it goes back to the bucket.
    GiveBack(Booking),
    /// The same of one that was to go first in a suspension: another may instead, once that is told
    /// by [`probed`](crate::decide::probed).
    Unprobed(Booking),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask the store this (nothing at all is a look), then call [`answered`](super::Driver::answered) or
    /// [`failed`](super::Driver::failed). Nothing else is asked until then.
    Ask(Vec<Group>),
    /// Ask the store whether this place may go first in a suspension, then call
    /// [`probed`](super::Driver::probed) or [`failed`](super::Driver::failed). Nothing else is asked
    /// until then.
    Probe(Booking),
    /// Nothing before this moment, unless something happens.
    SleepUntil(Micros),
    /// The answer to what was asked is awaited; somebody goes without it at this moment, if it has
    /// not come by then.
    Await(Option<Micros>),
    /// Nobody waits.
    Rest,
}

/// Somebody whom a failed flight left without an answer.
#[derive(Debug)]
pub struct Stranded<W> {
    /// Who.
    pub waiter: W,
    /// The place it had slept for, which the store may or may not still hold.
    pub booking: Option<Booking>,
}
