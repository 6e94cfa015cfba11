//! The handle of one bucket, and its verbs. One verb differs from another only by how long it may
//! wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use paceline_core::{Ask, Cost, Decision, Micros, Policy, SPAN_MAX_US, Unit};

use crate::answer::{Answer, Refusal, RefusedBy};
use crate::away::WhenAway;
use crate::clock::micros;
use crate::error::Error;
use crate::into_policy::IntoPolicy;
use crate::limiter::Limiter;
use crate::line::Line;
use crate::permit::{CHARGES_MAX, GrantedBy, Held, LONG_AGO, Permit, tell_probed};
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
/// one request, or something else than requests, goes through [`cost`](Self::cost), which has the
/// same verbs.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(crate) line: Arc<Line>,
    pub(crate) policy: Arc<Policy>,
    /// Whether what answers say may change the policy.
    #[cfg(feature = "http")]
    pub(crate) adapts: bool,
}

/// One kind of call on a bucket: what each costs. Has the same verbs as [`Bucket`].
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub(crate) bucket: &'a Bucket,
    cost: Cost,
    borrowing: bool,
}

/// How long a call may wait.
#[derive(Debug, Clone, Copy)]
enum Patience {
    Endless,
    Until(Micros),
    None,
}

/// So often a call that borrows reckons anew where it finds another policy than was known.
const POLICIES_MAX: usize = 4;

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

    /// The same verbs for calls of another cost: a number of requests, or a [`Cost`] of several units.
    /// A cost of nothing is refused by them, and so is one that [this process's own
    /// policy](Self::policy) does not count: a plain number of requests under `30000/m of tokens`, or
    /// output tokens where no quota is of them. Both would pass without any limit.
    ///
    /// A language model's provider that limits requests and tokens, where what a call has cost is known
    /// only from its answer:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// use paceline::{Cost, Unit};
    ///
    /// let model = limiter.bucket("model", "500/m, 30000/m of tokens")?;
    /// # async fn ask_the_model() -> u32 { 1_234 }
    /// // Passes both quotas at once, or waits and takes nothing from either.
    /// let call = model.cost(1).of(Unit::Tokens, 4_000).acquire().await?.in_flight();
    /// let used = ask_the_model().await;
    /// // What was estimated too much goes back.
    /// call.settle(Cost::only(Unit::Tokens, used));
    /// # limiter.settled().await;
    /// # let status = model.status().await?.expect("a bucket");
    /// # assert!(status.quotas[0].remaining == 499 && status.quotas[1].remaining >= 28_766);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost(&self, cost: impl Into<Cost>) -> Call<'_> {
        Call { bucket: self, cost: cost.into(), borrowing: false }
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
    /// The same call, taking so much of `unit`.
    #[must_use]
    pub fn of(self, unit: Unit, amount: u32) -> Self {
        Self { cost: self.cost.and(unit, amount), ..self }
    }

    /// The same call, also where it costs more than the policy can ever hold: it takes what fits as
    /// its permit, waiting as usual, and then at once books the rest ahead, in up to 64 further steps,
    /// so that all later calls wait until it is repaid. A deadline is for the permit, not for the
    /// repayment. What would take more steps is refused as what can never pass.
    ///
    /// The provider sees the whole call at once, so it must be one that lets a call through that is
    /// larger than its limit. Dropped unspent, the permit gives all of it back, and so does the call
    /// that is dropped or fails while the store is asked for the rest; a process that dies in between
    /// leaves charged what was charged. What other quotas would have brought until the repayment is
    /// taken back with it, also where they were full before its end: they may then hold less than if
    /// nothing had been borrowed, never more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// use paceline::Unit;
    ///
    /// let model = limiter.bucket("model", "500/m, 30000/m of tokens")?;
    /// let large = model.cost(1).of(Unit::Tokens, 50_000);
    /// assert!(large.acquire().await.is_err_and(|error| error.is_never()));
    /// large.borrowing().acquire().await?.spend();
    /// // The next waits until the 20 000 borrowed are there.
    /// let next = model.try_acquire().await?;
    /// assert!(next.permit().is_err_and(|refusal| refusal.retry_after().as_secs() >= 39));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn borrowing(self) -> Self {
        Self { borrowing: true, ..self }
    }

    /// As [`Bucket::acquire`].
    ///
    /// # Errors
    /// As there, and when the cost is nothing.
    pub async fn acquire(&self) -> Result<Permit, Error> {
        let answer = match self.borrowing {
            // It is rare, and its future large.
            true => Box::pin(self.borrow(Patience::Endless)).await?,
            false => self.wait(None).await?,
        };
        match answer {
            Answer::Granted(permit) => Ok(permit),
            // Without a deadline nothing refuses.
            Answer::Refused(refusal) => Err(Error::never(refusal.to_string())),
        }
    }

    /// As [`Bucket::acquire_within`].
    ///
    /// # Errors
    /// As there, and when the cost is nothing.
    pub async fn acquire_within(&self, deadline: Duration) -> Result<Answer, Error> {
        let deadline =
            Micros::try_from(deadline.as_micros()).unwrap_or(SPAN_MAX_US).min(SPAN_MAX_US);
        match self.borrowing {
            true => Box::pin(self.borrow(Patience::Until(deadline))).await,
            false => self.wait(Some(deadline)).await,
        }
    }

    /// As [`Bucket::try_acquire`].
    ///
    /// # Errors
    /// As there, and when the cost is nothing.
    pub async fn try_acquire(&self) -> Result<Answer, Error> {
        if self.borrowing {
            return Box::pin(self.borrow(Patience::None)).await;
        }
        self.ask().await.map(|asked| self.told(asked))
    }

    /// Takes what fits, and books the rest ahead.
    async fn borrow(&self, patience: Patience) -> Result<Answer, Error> {
        self.check_cost()?;
        let Bucket { line, policy: own, .. } = self.bucket;
        let mut policy = line.known();
        for _ in 0..POLICIES_MAX {
            let part = self.first_part(&policy)?;
            let call = Self { cost: part, borrowing: false, ..*self };
            let answer = match patience {
                Patience::Endless => call.wait(None).await,
                Patience::Until(deadline) => call.wait(Some(deadline)).await,
                Patience::None => call.ask().await.map(|asked| call.told(asked)),
            };
            let error = match answer {
                Ok(Answer::Granted(permit)) => {
                    return self.lent(permit, self.cost.less(part)).await.map(Answer::Granted);
                }
                Err(error) if error.is_never() => error,
                other => return other,
            };
            // Perhaps another policy binds than was known.
            let known = line.known();
            let next = if known == policy { Arc::clone(own) } else { known };
            if next == policy {
                return Err(error);
            }
            policy = next;
        }
        Err(Error::never(format!(
            "bucket {:?}: its policy changed each time a cost of {} was to be borrowed",
            line.name, self.cost
        )))
    }

    /// What goes with the permit, where the rest can be borrowed.
    fn first_part(&self, policy: &Policy) -> Result<Cost, Error> {
        let part = policy.part_of(self.cost);
        for (index, quota) in policy.quotas().iter().enumerate() {
            let (wanted, fits) = (self.cost.of(quota.unit()), part.of(quota.unit()));
            let steps = wanted.div_ceil(fits.max(1));
            if wanted > fits && (fits == 0 || steps > CHARGES_MAX) {
                return Err(self.never(i64::from(fits), index + 1, policy));
            }
        }
        Ok(part)
    }

    /// Books what a permit's call costs beyond it. Dropped or failing half way, what was booked goes
    /// back with the permit.
    async fn lent(&self, mut permit: Permit, rest: Cost) -> Result<Permit, Error> {
        let line = &self.bucket.line;
        let mut left = rest;
        for _ in 0..=CHARGES_MAX {
            // What no store holds is not paid back to it.
            if left.is_nothing() || permit.granted_by() != GrantedBy::Store {
                return Ok(permit);
            }
            let cost = line.known().part_of(left);
            if cost.is_nothing() {
                break;
            }
            match self.take(Ask { cost, wait_max_us: SPAN_MAX_US }).await {
                Ok(Taken { decision: Decision::Granted { booking, probe, .. }, .. }) => {
                    permit.lend(booking);
                    left = left.less(cost);
                    if probe {
                        // It is no call whose answer the others could wait for.
                        tell_probed(line, line.shared.probe_patience);
                    }
                }
                // Another policy binds than was known.
                Ok(Taken { policy, doubted, .. }) => {
                    line.store_answered(policy, &self.bucket.policy, doubted);
                }
                Err(error) => return Err(line.shared.failed(&line.name, error)),
            }
        }
        Err(Error::never(format!(
            "bucket {:?}: of a cost of {} there are {left} that its policy cannot lend",
            line.name, self.cost
        )))
    }

    /// The answer to who does not wait.
    fn told(&self, asked: Asked) -> Answer {
        match asked {
            Asked::Placed(held) => Answer::Granted(self.granted(held, 0)),
            Asked::Free(permit) => Answer::Granted(permit),
            Asked::Refused(refusal, _) => Answer::Refused(self.refused(refusal)),
        }
    }

    /// As [`Bucket::run`].
    ///
    /// # Errors
    /// As there, and when the cost is nothing.
    pub async fn run<T>(&self, call: impl AsyncFnOnce() -> T) -> Result<T, Error> {
        self.acquire().await?.spend();
        Ok(call().await)
    }

    /// A call costs something, of what its own policy counts.
    pub(crate) fn check_cost(&self) -> Result<(), Error> {
        if self.cost.is_nothing() {
            return Err(Error::input(format!(
                "bucket {:?}: a call costs at least 1, not 0",
                self.bucket.line.name
            )));
        }
        if self.cost.is_plain() && self.bucket.policy.is_plain() {
            return Ok(());
        }
        self.check_units()
    }

    /// Whether the caller says of the right units what the call takes; what is not counted would pass
    /// without any limit. The stored policy is not asked: an operator may change it at any time, and
    /// the callers' costs do not change with it.
    fn check_units(&self) -> Result<(), Error> {
        let Bucket { line, policy, .. } = self.bucket;
        let counted = |unit: &Unit| policy.quotas().iter().any(|quota| quota.unit() == *unit);
        let units = || Unit::ALL.into_iter().filter(counted);
        // A call is always so many requests, too.
        let stray = Unit::ALL[1..].iter().find(|unit| self.cost.of(**unit) > 0 && !counted(unit));
        if let Some(stray) = stray {
            let counted = units().map(Unit::name).collect::<Vec<_>>().join(" and ");
            return Err(Error::input(format!(
                "bucket {:?}: no quota of its policy ({policy}) counts {stray}; it counts {counted}",
                line.name
            )));
        }
        if policy.counts(self.cost) {
            return Ok(());
        }
        let of = units().fold(String::new(), |all, unit| format!("{all}.of(Unit::{unit:?}, …)"));
        let flag = units().map(|unit| format!("{unit}=…")).collect::<Vec<_>>().join(",");
        Err(Error::input(format!(
            "bucket {:?}: its policy ({policy}) counts nothing of a call that costs {}, which would \
             pass without any limit; say what it takes: bucket.cost(1){of}, or --cost {flag}",
            line.name, self.cost
        )))
    }

    /// Asks the store for what need not be waited for.
    async fn ask(&self) -> Result<Asked, Error> {
        self.check_cost()?;
        let Bucket { line, policy, .. } = self.bucket;
        match self.take(Ask { cost: self.cost, wait_max_us: 0 }).await {
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
                let ask = Ask { cost: self.cost, wait_max_us: 0 };
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
        let unit = policy.quotas().get(quota - 1).map_or(Unit::Requests, |quota| quota.unit());
        let amount = match unit {
            Unit::Requests => self.cost.of(unit).to_string(),
            _ => format!("{} {unit}", self.cost.of(unit)),
        };
        Error::never(format!(
            "bucket {:?}: a cost of {amount} can never pass quota {quota} ({}), which lets {cost_max} \
             through at most; {}",
            self.bucket.line.name,
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

    /// What the call takes.
    pub(crate) fn cost(&self) -> Cost {
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
