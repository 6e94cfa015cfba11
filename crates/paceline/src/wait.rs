//! How a call waits. Who comes to a bucket where nobody waits asks the store on its own: one round
//! trip and no task between. All others stand in the [`line`](crate::line) of their bucket, whose
//! driver asks for many at once and lets each go at its moment.

use std::sync::Arc;

use paceline_core::driver::Alone;
use paceline_core::{Ask, Batch, Booking, Cause, Decision, Micros, Policy, Probing, Run, Sight};
use tracing::Instrument;

use crate::answer::{Answer, Refusal, RefusedBy};
use crate::away::WhenAway;
use crate::bucket::{Asked, Call};
use crate::clock::micros;
use crate::error::Error;
use crate::limiter::Waits;
use crate::line::{Line, Outcome, Standing};
use crate::permit::Held;
use crate::store::Taken;

/// While this process keeps its own share, a waiter sees after this long at the latest whether the
/// store is back.
const LOOK_AGAIN_US: Micros = 250_000;
/// Most jitter added to the time it comes back at.
const JITTER_MAX_US: Micros = 20_000;

/// What asking alone led to.
enum Went {
    Answered(Asked),
    Stands(Standing),
}

impl Call<'_> {
    /// Waits for a permit, up to a deadline in microseconds from now where there is one.
    pub(crate) async fn wait(&self, deadline: Option<Micros>) -> Result<Answer, Error> {
        self.check_cost()?;
        let span =
            tracing::debug_span!("acquire", bucket = self.bucket.name(), cost = %self.cost());
        self.wait_until_it_goes(deadline).instrument(span).await
    }

    async fn wait_until_it_goes(&self, deadline: Option<Micros>) -> Result<Answer, Error> {
        let line = &self.bucket.line;
        let clock = &line.shared.clock;
        let start = clock.steady();
        let deadline_at = deadline.map(|deadline| start.saturating_add(deadline));
        let Some(_counted) = Waits::one_more(line) else {
            return self.one_too_many(deadline_at.is_some());
        };
        let mut standing = match self.go_alone(deadline_at).await? {
            Some(Went::Answered(Asked::Placed(held))) => {
                return Ok(Answer::Granted(self.granted(held, clock.steady() - start)));
            }
            Some(Went::Answered(Asked::Free(permit))) => return Ok(Answer::Granted(permit)),
            Some(Went::Answered(Asked::Refused(refusal, _))) if !refusal.is_local() => {
                return Ok(Answer::Refused(self.refused(refusal)));
            }
            Some(Went::Answered(Asked::Refused(refusal, retry_us))) => {
                match self.rest(refusal, retry_us, deadline_at).await {
                    Some(refusal) => return Ok(Answer::Refused(self.refused(refusal))),
                    None => self.join(deadline_at),
                }
            }
            Some(Went::Stands(standing)) => standing,
            None => self.join_at(start, deadline_at),
        };
        loop {
            match standing.outcome().await {
                Outcome::Go(held, good_until) => {
                    let now = clock.steady();
                    if now <= good_until {
                        return Ok(Answer::Granted(self.granted(held, now - start)));
                    }
                    tracing::debug!(bucket = line.name, "woke too late for its place");
                    held.missed();
                }
                Outcome::Refused(retry_after_us, cause, policy) => {
                    let refusal = self.refusal(retry_after_us, cause, &policy, false);
                    return Ok(Answer::Refused(self.refused(refusal)));
                }
                Outcome::Never(cost_max, quota, policy) => {
                    return Err(self.never(cost_max, quota, &policy));
                }
                Outcome::Stranded(error, held) => {
                    if let Some(permit) = self.stranded(error, held, deadline_at, start).await? {
                        return Ok(permit);
                    }
                }
                Outcome::Abandoned => {}
            }
            standing = self.join(deadline_at);
        }
    }

    fn join(&self, deadline_at: Option<Micros>) -> Standing {
        self.join_at(self.bucket.line.shared.clock.steady(), deadline_at)
    }

    fn join_at(&self, now: Micros, deadline_at: Option<Micros>) -> Standing {
        self.bucket.line.join(&self.bucket.policy, self.cost(), deadline_at, now)
    }

    /// Asks the store on its own where nobody waits; `None` where somebody does.
    async fn go_alone(&self, deadline_at: Option<Micros>) -> Result<Option<Went>, Error> {
        let line = &self.bucket.line;
        let clock = &line.shared.clock;
        let alone = {
            let mut waiting = line.waiting();
            if waiting.driver.is_at_rest() && line.may_go_alone() {
                waiting.driver.alone(deadline_at, clock.steady())
            } else {
                None
            }
        };
        let Some(alone) = alone else { return Ok(None) };
        let mut flight = AloneFlight { line, alone: Some(alone) };
        let wait_max_us = flight.alone.as_ref().map_or(0, |alone| alone.wait_max_us);
        let asked = self.take(Ask { cost: self.cost(), wait_max_us }).await;
        let Taken { decision, policy: stored, doubted } = match asked {
            Ok(taken) => taken,
            Err(error) => {
                drop(flight);
                let error = line.shared.failed(&line.name, error);
                return self.without_store(error).map(|it| Some(Went::Answered(it)));
            }
        };
        line.store_answered(stored.clone(), &self.bucket.policy, doubted);
        let policy = stored.as_ref().unwrap_or(&self.bucket.policy);
        match decision {
            Decision::Granted { wait_us: 0, booking, probe } => {
                drop(flight);
                let held = Held::new(line, booking, clock.steady()).first(probe);
                Ok(Some(Went::Answered(Asked::Placed(held))))
            }
            Decision::Never { cost_max, quota } => {
                drop(flight);
                Err(self.never(cost_max, quota, policy))
            }
            Decision::Granted { .. } | Decision::Denied { .. } => {
                let Some(alone) = flight.alone.take() else { return Ok(None) };
                let batch = batch_of(decision);
                let now = clock.steady();
                let cost = self.cost();
                let standing = line.stand(|waiting, waiter| {
                    waiting.bring(&self.bucket.policy);
                    waiting.policy = Arc::clone(policy);
                    waiting.driver.alone_answered(
                        alone,
                        waiter,
                        cost,
                        deadline_at,
                        &batch,
                        policy,
                        now,
                    )
                });
                Ok(Some(Went::Stands(standing)))
            }
        }
    }

    /// A failed flight left it without an answer: what `WhenAway` says.
    async fn stranded(
        &self,
        error: Error,
        held: Option<Held>,
        deadline_at: Option<Micros>,
        start: Micros,
    ) -> Result<Option<Answer>, Error> {
        let shared = &self.bucket.line.shared;
        if let Some(held) = held {
            if error.is_unavailable() && shared.when_away != WhenAway::Refuse {
                // The store granted it before it went away.
                return Ok(Some(Answer::Granted(
                    self.granted(held, shared.clock.steady() - start),
                )));
            }
            // Whether it still stands is not known; it counts as spent.
            held.release();
        }
        match self.without_store(error)? {
            Asked::Free(permit) => {
                let waited = micros(shared.clock.steady() - start);
                Ok(Some(Answer::Granted(permit.after(waited))))
            }
            Asked::Refused(refusal, retry_us) => Ok(self
                .rest(refusal, retry_us, deadline_at)
                .await
                .map(|refusal| Answer::Refused(self.refused(refusal)))),
            Asked::Placed(held) => Ok(Some(Answer::Granted(self.granted(held, 0)))),
        }
    }

    /// Rests until this process's own share may have room or the store may be back; the refusal
    /// where that cannot be by its deadline.
    async fn rest(
        &self,
        refusal: Refusal,
        retry_us: Micros,
        deadline_at: Option<Micros>,
    ) -> Option<Refusal> {
        let clock = &self.bucket.line.shared.clock;
        if deadline_at.is_some_and(|deadline_at| clock.steady() + retry_us > deadline_at) {
            return Some(refusal);
        }
        let pause = retry_us.clamp(1, LOOK_AGAIN_US);
        let jitter = fastrand::i64(0..=JITTER_MAX_US.min(pause / 4 + 1));
        clock.sleep(pause + jitter).await;
        None
    }

    fn one_too_many(&self, may_be_refused: bool) -> Result<Answer, Error> {
        let line = &self.bucket.line;
        let waiters_max = line.shared.waiters_max;
        line.shared.counts.crowded.add();
        line.meters.refused_by_crowd.increment(1);
        if !may_be_refused {
            return Err(Error::crowded(format!(
                "bucket {:?}: {waiters_max} calls wait already, as many as may; make fewer at a time \
                 or raise `max_waiters`",
                line.name
            )));
        }
        let cause = RefusedBy::Crowd { waiters_max };
        // When there will be room is not known; a caller that comes back at once finds the same.
        let retry_after = micros(LOOK_AGAIN_US);
        Ok(Answer::Refused(Refusal { bucket: line.name.clone(), retry_after, cause, local: false }))
    }

    pub(crate) fn refusal(
        &self,
        retry_after_us: Micros,
        cause: Cause,
        policy: &Policy,
        local: bool,
    ) -> Refusal {
        let cause = match cause {
            Cause::Suspended => RefusedBy::Suspension,
            Cause::Quota(number) => {
                RefusedBy::Quota { number, text: crate::bucket::quota_text(policy, number) }
            }
        };
        let bucket = self.bucket.line.name.clone();
        Refusal { bucket, retry_after: micros(retry_after_us), cause, local }
    }
}

/// One who asks alone. Dropped, the others may ask.
struct AloneFlight<'a> {
    line: &'a Arc<Line>,
    alone: Option<Alone>,
}

impl Drop for AloneFlight<'_> {
    fn drop(&mut self) {
        if self.alone.is_some() {
            let mut waiting = self.line.waiting();
            waiting.driver.alone_done();
            self.line.stir(waiting);
        }
    }
}

/// A decision as the driver takes answers.
fn batch_of(decision: Decision) -> Batch {
    let sight =
        |now, bucket_time, made| Sight { now, bucket_time, left: 0, probing: Probing::No, made };
    match decision {
        // Who goes first does not wait.
        Decision::Granted { wait_us, booking, .. } => {
            let Booking { granted_at, due, before, .. } = booking;
            let sight = sight(granted_at, due - wait_us, Some(granted_at - 1));
            let runs = vec![Run { due, calls: 1 }];
            Batch { sight, before, runs, probe: false, stopped: None }
        }
        refused => {
            let sight = sight(0, 0, None);
            Batch { sight, before: 0, runs: Vec::new(), probe: false, stopped: Some(refused) }
        }
    }
}
