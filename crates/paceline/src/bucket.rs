//! The handle of one bucket, and its verbs. One verb differs from another only by how long it may
//! wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use paceline_core::{Ask, Decision, Micros, Policy, SPAN_MAX_US};

use crate::answer::{Answer, Refusal, RefusedBy};
use crate::away::WhenAway;
use crate::clock::micros;
use crate::error::Error;
use crate::into_policy::IntoPolicy;
use crate::limiter::Limiter;
use crate::line::Line;
use crate::permit::{GrantedBy, Held, LONG_AGO, Permit};
use crate::status::Status;
use crate::store::Taken;

/// A bucket to make calls through. Cheap to clone; clones, and all handles of the same name from
/// the same [`Limiter`], share one queue of waiters.
///
/// | verb | waits | answers |
/// |---|---|---|
/// | [`run`](Self::run) | as long as it takes | what your call answered: acquires, spends, calls |
/// | [`acquire`](Self::acquire) | as long as it takes | a [`Permit`] |
/// | [`acquire_within`](Self::acquire_within) | up to a deadline, and refuses at once when that cannot be met | [`Answer`] |
/// | [`try_acquire`](Self::try_acquire) | never | [`Answer`] |
///
/// Most callers want [`run`](Self::run) or [`acquire`](Self::acquire). A call that costs more than
/// one token goes through [`cost`](Self::cost), which has the same verbs.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(crate) line: Arc<Line>,
    pub(crate) policy: Arc<Policy>,
    /// Whether what answers say may change the policy.
    #[cfg(feature = "http")]
    pub(crate) adapts: bool,
}

/// One kind of call on a bucket: so many tokens each. Has the same verbs as [`Bucket`].
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub(crate) bucket: &'a Bucket,
    cost: u32,
}

/// What asking the store once gave.
pub(crate) enum Asked {
    /// A place that is due now.
    Placed(Held),
    /// A permit that no store holds a place for.
    Free(Permit),
    /// A refusal, and when to come back in microseconds.
    Refused(Refusal, Micros),
}

impl Bucket {
    pub(crate) fn new(line: Arc<Line>, policy: Arc<Policy>) -> Self {
        Self {
            line,
            policy,
            #[cfg(feature = "http")]
            adapts: false,
        }
    }

    /// The bucket's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.line.name
    }

    /// This process's own policy. It creates the bucket; where there is one, the policy stored
    /// with it binds (see [`status`](Self::status)).
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The same verbs for calls of `cost` tokens. A cost of 0 is refused by them.
    #[must_use]
    pub fn cost(&self, cost: u32) -> Call<'_> {
        Call { bucket: self, cost }
    }

    /// Waits for a permit as long as it takes.
    ///
    /// Cancel safe: dropped while waiting, it takes nothing with it; its place goes to the next
    /// waiter, or back to the bucket.
    ///
    /// # Errors
    /// When the policy can never let the call pass ([`Error::is_never`]), or the store is away
    /// ([`Error::is_unavailable`], where [`WhenAway`] is `Refuse`) or unusable.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.cost(1).acquire().await
    }

    /// Waits for a permit until `deadline` from now. When that cannot be met it refuses at once and
    /// takes nothing. Cancel safe as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, deadline: Duration) -> Result<Answer, Error> {
        self.cost(1).acquire_within(deadline).await
    }

    /// Takes a permit if there is one now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// use paceline::Answer;
    ///
    /// let bucket = limiter.bucket("mail", "1/h")?;
    /// bucket.acquire().await?.spend();
    /// match bucket.try_acquire().await? {
    ///     Answer::Granted(permit) => permit.spend(),
    ///     Answer::Refused(refusal) => assert!(refusal.retry_after().as_secs() > 3_590),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Answer, Error> {
        self.cost(1).try_acquire().await
    }

    /// Waits for a permit, spends it and makes the call. What the call answered tells nobody whether it
    /// was refused, so after one that [goes first](Permit::is_probe) in a suspension the others wait as
    /// long as they do at most.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// let bucket = limiter.bucket("mail", "5/s")?;
    /// let answer = bucket.run(async || "sent").await?;
    /// assert_eq!(answer, "sent");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); then the call was not made.
    pub async fn run<T>(&self, call: impl AsyncFnOnce() -> T) -> Result<T, Error> {
        self.cost(1).run(call).await
    }

    /// As [`Limiter::status`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn status(&self) -> Result<Option<Status>, Error> {
        self.limiter().status(self.name()).await
    }

    /// As [`Limiter::suspend`].
    ///
    /// # Errors
    /// As there.
    pub async fn suspend(&self, span: Duration, reason: &str) -> Result<Duration, Error> {
        self.limiter().suspend(self.name(), span, reason).await
    }

    /// As [`Limiter::suspend_refused`].
    ///
    /// # Errors
    /// As there.
    pub async fn suspend_refused(&self, span: Duration, reason: &str) -> Result<Duration, Error> {
        self.limiter().suspend_refused(self.name(), span, reason).await
    }

    /// As [`Limiter::resume`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn resume(&self) -> Result<bool, Error> {
        self.limiter().resume(self.name()).await
    }

    /// As [`Limiter::set_policy`].
    ///
    /// # Errors
    /// As there.
    pub async fn set_policy(&self, policy: impl IntoPolicy) -> Result<bool, Error> {
        self.limiter().set_policy(self.name(), policy).await
    }

    /// As [`Limiter::delete`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete(&self) -> Result<bool, Error> {
        self.limiter().delete(self.name()).await
    }

    pub(crate) fn limiter(&self) -> Limiter {
        Limiter::sharing(Arc::clone(&self.line.shared))
    }
}

impl Call<'_> {
    /// As [`Bucket::acquire`].
    ///
    /// # Errors
    /// As there, and when the cost is 0.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        match self.wait(None).await? {
            Answer::Granted(permit) => Ok(permit),
            // Without a deadline nothing refuses.
            Answer::Refused(refusal) => Err(Error::never(refusal.to_string())),
        }
    }

    /// As [`Bucket::acquire_within`].
    ///
    /// # Errors
    /// As there, and when the cost is 0.
    pub async fn acquire_within(&self, deadline: Duration) -> Result<Answer, Error> {
        let deadline =
            Micros::try_from(deadline.as_micros()).unwrap_or(SPAN_MAX_US).min(SPAN_MAX_US);
        self.wait(Some(deadline)).await
    }

    /// As [`Bucket::try_acquire`].
    ///
    /// # Errors
    /// As there, and when the cost is 0.
    pub async fn try_acquire(&self) -> Result<Answer, Error> {
        match self.ask().await? {
            Asked::Placed(held) => Ok(Answer::Granted(self.granted(held, 0))),
            Asked::Free(permit) => Ok(Answer::Granted(permit)),
            Asked::Refused(refusal, _) => Ok(Answer::Refused(self.refused(refusal))),
        }
    }

    /// As [`Bucket::run`].
    ///
    /// # Errors
    /// As there, and when the cost is 0.
    pub async fn run<T>(&self, call: impl AsyncFnOnce() -> T) -> Result<T, Error> {
        self.acquire().await?.spend();
        Ok(call().await)
    }

    /// A call costs something.
    pub(crate) fn check_cost(&self) -> Result<(), Error> {
        if self.cost == 0 {
            return Err(Error::input(format!(
                "bucket {:?}: a call costs at least 1, not 0",
                self.bucket.line.name
            )));
        }
        Ok(())
    }

    /// Asks the store for what need not be waited for.
    async fn ask(&self) -> Result<Asked, Error> {
        self.check_cost()?;
        let Bucket { line, policy, .. } = self.bucket;
        match self.take(Ask { cost: i64::from(self.cost), wait_max_us: 0 }).await {
            Ok(Taken { decision, policy: stored, doubted }) => {
                let asked = self.asked(decision, stored.as_ref().unwrap_or(policy), false);
                line.store_answered(stored, policy, doubted);
                asked
            }
            Err(error) => self.without_store(line.shared.failed(&line.name, error)),
        }
    }

    /// What `WhenAway` says of a failure that was counted.
    pub(crate) fn without_store(&self, error: Error) -> Result<Asked, Error> {
        let Bucket { line, policy, .. } = self.bucket;
        let shared = &line.shared;
        if !error.is_unavailable() {
            return Err(error);
        }
        match shared.when_away {
            WhenAway::Refuse => {
                shared.counts.refused_away.add();
                line.meters.away.increment(1);
                Err(error)
            }
            WhenAway::Allow => {
                shared.counts.allowed_away.add();
                line.meters.by_allowed.increment(1);
                Ok(Asked::Free(Permit::without_store(GrantedBy::Allowed)))
            }
            WhenAway::Local { processes } => {
                line.share_used.store(true, Ordering::Relaxed);
                // Waiting for a place of its own share is the caller's loop's business.
                let ask = Ask { cost: i64::from(self.cost), wait_max_us: 0 };
                let (decision, share) =
                    line.share().take(policy, processes, ask, shared.clock.now())?;
                let asked = self.asked(decision, &share, true)?;
                // A refusal is counted where a caller is handed it: one who waits looks again.
                if !matches!(asked, Asked::Refused(..)) {
                    shared.counts.granted_local.add();
                    line.meters.by_local.increment(1);
                }
                Ok(asked)
            }
        }
    }

    fn asked(&self, decision: Decision, policy: &Policy, local: bool) -> Result<Asked, Error> {
        let line = &self.bucket.line;
        match decision {
            Decision::Granted { .. } if local => {
                Ok(Asked::Free(Permit::without_store(GrantedBy::Local)))
            }
            // Nobody looks at the clock for a permit that will hardly be dropped unspent.
            Decision::Granted { booking, probe, .. } => {
                Ok(Asked::Placed(Held::new(line, booking, LONG_AGO).first(probe)))
            }
            Decision::Denied { retry_after_us, cause } => {
                let refusal = self.refusal(retry_after_us, cause, policy, local);
                Ok(Asked::Refused(refusal, retry_after_us))
            }
            Decision::Never { cost_max, quota } => Err(self.never(cost_max, quota, policy)),
        }
    }

    pub(crate) fn never(&self, cost_max: i64, quota: usize, policy: &Policy) -> Error {
        self.bucket.line.meters.never.increment(1);
        Error::never(format!(
            "bucket {:?}: a cost of {} can never pass quota {quota} ({}), which lets {cost_max} \
             through at most; {}",
            self.bucket.line.name,
            self.cost,
            quota_text(policy, quota),
            if cost_max == 0 {
                "a limit of 0 lets nothing pass"
            } else {
                "split the call or raise the burst"
            },
        ))
    }

    /// Takes from the store. Dropped while the answer is on its way, what was granted is given
    /// back when it comes.
    pub(crate) async fn take(&self, ask: Ask) -> Result<Taken, Error> {
        let Bucket { line, policy, .. } = self.bucket;
        let shared = &line.shared;
        if !shared.store.answers_later() {
            return shared.store.take(&line.name, policy, ask).await;
        }
        let taking = {
            let (line, policy) = (Arc::clone(line), Arc::clone(policy));
            async move { line.shared.store.take(&line.name, &policy, ask).await }
        };
        let mut flight = Flight { taking: Some(Box::pin(taking)), line: Arc::clone(line) };
        std::future::poll_fn(|context| {
            let Some(taking) = &mut flight.taking else { return Poll::Pending };
            let answer = std::task::ready!(taking.as_mut().poll(context));
            flight.taking = None;
            Poll::Ready(answer)
        })
        .await
    }

    /// Tokens the call takes.
    pub(crate) fn cost(&self) -> u32 {
        self.cost
    }

    pub(crate) fn granted(&self, held: Held, waited: Micros) -> Permit {
        let line = &self.bucket.line;
        line.shared.counts.granted.add();
        line.meters.by_store.increment(1);
        let waited = micros(waited);
        line.meters.wait.record(waited.as_secs_f64());
        Permit::from_store(held).after(waited)
    }

    /// Counts a refusal that its caller is handed.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        let line = &self.bucket.line;
        let counts = &line.shared.counts;
        if refusal.local { &counts.refused_local } else { &counts.refused }.add();
        match refusal.cause {
            RefusedBy::Suspension => line.meters.refused_by_suspension.increment(1),
            RefusedBy::Quota { .. } => line.meters.refused_by_quota.increment(1),
            // Counted where it is made.
            RefusedBy::Crowd { .. } | RefusedBy::Target { .. } => {}
        }
        tracing::debug!(bucket = refusal.bucket, retry_after = ?refusal.retry_after, "refused");
        refusal
    }
}

pub(crate) fn quota_text(policy: &Policy, number: usize) -> String {
    policy.quotas().get(number - 1).map(ToString::to_string).unwrap_or_default()
}

type Taking = Pin<Box<dyn Future<Output = Result<Taken, Error>> + Send>>;

/// A decision on its way. Dropped early it goes on in the background, and a place that is granted
/// then goes back.
struct Flight {
    taking: Option<Taking>,
    line: Arc<Line>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(taking) = self.taking.take() {
            let line = Arc::clone(&self.line);
            let runtime = line.shared.runtime.clone();
            let returning = line.shared.returning();
            runtime.spawn(async move {
                // Dropped, the place goes back.
                if let Ok(Taken { decision: Decision::Granted { booking, probe, .. }, .. }) =
                    taking.await
                {
                    Held::new(&line, booking, LONG_AGO).first(probe).give_back();
                }
                drop(returning);
            });
        }
    }
}
