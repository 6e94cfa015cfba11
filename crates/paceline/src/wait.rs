//! How a call waits. The waiters of one bucket in one process stand in one line: the first asks
//! the store, the others stand behind it, so that the work on the store does not grow with them.
//! Who gets a place a little ahead sleeps for it and lets the next one ask; before it goes it looks
//! whether its place still stands, so that a suspension or a new policy reaches sleepers too.

use std::sync::Arc;

use paceline_core::{Micros, Standing};
use tracing::Instrument;

use crate::answer::{Answer, Refusal, RefusedBy};
use crate::away::WhenAway;
use crate::bucket::{Asked, Bucket, Call};
use crate::clock::micros;
use crate::error::Error;
use crate::permit::Held;
use crate::places::{Place, Sleeper};

/// A waiter that has been refused, or whose place moved behind a suspension, asks again after this
/// long at the latest: a policy may have been raised or a suspension lifted meanwhile.
const LOOK_AGAIN_US: Micros = 250_000;
/// Most jitter added to the time a refused process comes back at.
const JITTER_MAX_US: i64 = 20_000;

/// A sleeper that wakes later than this after its moment was stopped, or its runtime blocked. With
/// others like it, it would go out in a bunch that no policy promises: it asks anew, and the place
/// it missed counts as spent.
const LATE_MAX_US: Micros = 100_000;

/// What became of a place that was slept for.
enum Slept {
    Due(Held),
    Void,
    TooLate(Refusal),
}

impl Call<'_> {
    /// Waits for a permit, up to a deadline in microseconds from now where there is one.
    pub(crate) async fn wait(&self, deadline: Option<Micros>) -> Result<Answer, Error> {
        let span = tracing::debug_span!("acquire", bucket = self.bucket.name(), cost = self.cost());
        self.wait_in_line(deadline).instrument(span).await
    }

    async fn wait_in_line(&self, deadline: Option<Micros>) -> Result<Answer, Error> {
        let clock = &self.bucket.line.shared.clock;
        let start = clock.steady();
        let left = || deadline.map(|deadline| deadline - (clock.steady() - start));
        loop {
            let (held, wait_us) = match self.place(left).await? {
                Asked::Placed(held, wait_us) => (held, wait_us),
                Asked::Free(permit) => {
                    return Ok(Answer::Granted(permit.after(micros(clock.steady() - start))));
                }
                Asked::Refused(refusal, _) => return Ok(Answer::Refused(self.refused(refusal))),
            };
            if wait_us == 0 {
                return Ok(Answer::Granted(self.granted(held, clock.steady() - start)));
            }
            match self.sleep(held, wait_us, left).await? {
                Slept::Due(held) => {
                    return Ok(Answer::Granted(self.granted(held, clock.steady() - start)));
                }
                Slept::Void => {}
                Slept::TooLate(refusal) => return Ok(Answer::Refused(self.refused(refusal))),
            }
        }
    }

    /// Stands in line and asks until there is a place, or none before the deadline.
    async fn place(&self, left: impl Fn() -> Option<Micros>) -> Result<Asked, Error> {
        let shared = &self.bucket.line.shared;
        let turn = self.bucket.line.turn.lock();
        let _turn = match left() {
            None => turn.await,
            Some(left) => tokio::select! {
                biased;
                turn = turn => turn,
                // Those before it wait longer than it may: the bucket says how long.
                () = shared.clock.sleep(left.max(0)) => return self.ask(0).await,
            },
        };
        loop {
            let left = left();
            let wait_max_us = shared.lookahead.min(left.unwrap_or(Micros::MAX)).max(0);
            let asked = self.ask(wait_max_us).await?;
            let Asked::Refused(refusal, retry_us) = asked else { return Ok(asked) };
            if left.is_some_and(|left| retry_us > left) {
                return Ok(Asked::Refused(refusal, retry_us));
            }
            // A share kept locally books nothing ahead; else there is room for new bookings as
            // soon as half of those made have gone.
            let ahead = if refusal.is_local() { 0 } else { shared.lookahead / 2 };
            let pause = (retry_us - ahead).clamp(1, LOOK_AGAIN_US);
            let jitter = fastrand::i64(0..=JITTER_MAX_US.min(pause / 4 + 1));
            tracing::trace!(bucket = self.bucket.name(), retry_us, "comes back");
            shared.clock.sleep(pause + jitter).await;
        }
    }

    /// Sleeps for a place and looks again before it goes.
    async fn sleep(
        &self,
        held: Held,
        wait_us: Micros,
        left: impl Fn() -> Option<Micros>,
    ) -> Result<Slept, Error> {
        let line = &self.bucket.line;
        let shared = &line.shared;
        let mut wake_at = shared.clock.steady() + wait_us;
        let mut held = held;
        loop {
            let lying = Lying::down(self.bucket, held, wake_at);
            lying.until_due().await;
            let late_us = shared.clock.steady() - lying.sleeper.place().wake_at;
            held = lying.rise();
            if late_us > LATE_MAX_US {
                tracing::debug!(bucket = line.name, late_us, "woke too late for its place");
                held.release();
                return Ok(Slept::Void);
            }
            match shared.store.check(&line.name, held.booking()).await {
                Ok(Standing::Due(0)) => return Ok(Slept::Due(held)),
                Ok(Standing::Due(more)) => {
                    if left().is_some_and(|left| more > left) {
                        return Ok(Slept::TooLate(Refusal {
                            bucket: line.name.clone(),
                            retry_after: micros(more),
                            cause: RefusedBy::Suspension,
                            local: false,
                        }));
                    }
                    wake_at = shared.clock.steady() + more.min(LOOK_AGAIN_US);
                }
                Ok(Standing::Void) => {
                    held.release();
                    return Ok(Slept::Void);
                }
                Err(error) if error.is_unavailable() && shared.when_away != WhenAway::Refuse => {
                    // The store granted it before it went away.
                    shared.counts.store_errors.add();
                    return Ok(Slept::Due(held));
                }
                Err(error) => {
                    // Whether it still stands is not known; it counts as spent.
                    held.release();
                    return shared.told(&line.name, Err(error));
                }
            }
        }
    }
}

/// A sleeper; dropped, it leaves its place to those behind it.
struct Lying<'a> {
    bucket: &'a Bucket,
    sleeper: Arc<Sleeper>,
    risen: bool,
}

impl<'a> Lying<'a> {
    fn down(bucket: &'a Bucket, held: Held, wake_at: Micros) -> Self {
        let place = Place { booking: held.release(), wake_at };
        Self { bucket, sleeper: bucket.line.places.enter(place), risen: false }
    }

    /// Sleeps until the place it has by then is due.
    async fn until_due(&self) {
        let clock = &self.bucket.line.shared.clock;
        loop {
            let left = self.sleeper.place().wake_at - clock.steady();
            if left <= 0 {
                return;
            }
            tokio::select! {
                () = clock.sleep(left) => return,
                () = self.sleeper.moved.notified() => {}
            }
        }
    }

    fn rise(mut self) -> Held {
        self.risen = true;
        let place = self.bucket.line.places.rise(&self.sleeper);
        Held::new(&self.bucket.line, place.booking)
    }
}

impl Drop for Lying<'_> {
    fn drop(&mut self) {
        if !self.risen {
            let left_over = self.bucket.line.places.leave(&self.sleeper);
            drop(Held::new(&self.bucket.line, left_over));
        }
    }
}
