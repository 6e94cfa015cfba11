//! One granted call. Spent right before the call goes out; given back when dropped unspent.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use paceline_core::{Ask, Booking, Cost, Decision, Micros, SPAN_MAX_US};

use crate::line::Line;
use crate::store::Taken;

/// Permits of a bucket that may be dropped unspent while none was ever spent. A program that drops
/// more seems to have forgotten [`Permit::spend`], and would call without any limit: from then on
/// its permits count as spent, too.
const UNSPENT_SUSPICIOUS: u64 = 16;

/// Most operations for what one call has cost beyond its estimate.
pub(crate) const CHARGES_MAX: u32 = 64;

/// When a place was due that nobody may have after this one: it goes back to the bucket.
pub(crate) const LONG_AGO: Micros = Micros::MIN / 2;

/// One granted call. Call [`spend`](Self::spend) right before the request goes out; a permit
/// dropped before that gives its place back to the bucket.
///
/// A program that forgets to spend would call without any limit. So after 16 permits dropped and
/// none spent, a bucket's permits are no longer given back, and a warning says so.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
/// # let limiter = paceline::Limiter::open("memory:").await?;
/// # let bucket = limiter.bucket("github", "50/s")?;
/// # async fn call_the_api() {}
/// let permit = bucket.acquire().await?;
/// permit.spend();
/// call_the_api().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "call `.spend()` right before the request goes out; dropped unspent, it gives its place back"]
pub struct Permit {
    /// `None` once spent, and where no store holds a place.
    held: Option<Held>,
    granted_by: GrantedBy,
    waited: Duration,
}

/// A call under way, which its window counts until its guard is over or the answer has come.
/// Dropped without an answer (a call that failed or was cancelled may have arrived all the same),
/// it is counted until the guard is over.
///
/// Of a call that [went first](Permit::is_probe) at the end of a suspension the others wait for the
/// answer: that it has come means that it was not refused, and they follow. Where it was refused the
/// fleet is told so before that, as by [`Bucket::observe`](crate::Bucket::observe) or a further
/// suspension, which then stands. Dropped, they wait as if the answer never came.
#[derive(Debug)]
#[must_use = "tell it when the answer has come"]
pub struct InFlight {
    sent: Option<Sent>,
    /// On this process's steady clock.
    at: Micros,
    probe: bool,
}

/// What was taken for a call that has gone out.
#[derive(Debug)]
struct Sent {
    line: Arc<Line>,
    booking: Booking,
    borrowed: Option<Box<Borrowed>>,
}

/// What was booked ahead for a call besides its place, in order. Few calls have any, so it is kept
/// apart.
#[derive(Debug, Default)]
struct Borrowed(Vec<Booking>);

impl InFlight {
    /// Whether it is the call that went first; see [`Permit::is_probe`].
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.probe
    }

    /// The place it has in a bucket.
    #[cfg(feature = "http")]
    pub(crate) fn place_in(&self, line: &Arc<Line>) -> Option<Booking> {
        let sent = self.sent.as_ref().filter(|sent| Arc::ptr_eq(&sent.line, line));
        sent.map(|sent| sent.booking)
    }

    /// How long ago it was sent, where a store holds its place.
    #[cfg(feature = "http")]
    pub(crate) fn age_us(&self, now: Micros) -> Micros {
        if self.sent.is_some() { now - self.at } else { 0 }
    }

    /// The answer was a refusal: where this went first, the others do not follow.
    #[cfg(feature = "http")]
    pub(crate) fn refused(self) -> Self {
        Self { probe: false, ..self }
    }

    /// The answer has come. Told in the background; if that fails, the call is counted until the
    /// guard is over.
    pub fn answered(self) {
        if let (true, Some(Sent { line, .. })) = (self.probe, &self.sent) {
            tell_probed(line, 0);
        }
        if let Some(Sent { line, booking, borrowed }) = self.sent
            && line.counts_answers()
        {
            for booking in all(booking, borrowed) {
                answered(&line, booking);
            }
        }
    }

    /// The answer has come and told what the call has really cost, where that is known only
    /// afterwards: a model's tokens, points of a query. What was estimated too much goes back; what
    /// was estimated too little is charged as if it had been asked for now, also where the bucket has
    /// to be empty for a while for it. Each unit by itself: those not named stay at their estimate. A
    /// plain number is of requests. Done once, in the background; a process that dies before that,
    /// and a store that does not answer, leave it at the estimate.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// # let tokens = limiter.bucket("model: tokens", "90000/m")?;
    /// # async fn ask_the_model() -> u32 { 1_234 }
    /// let call = tokens.cost(4_000).acquire().await?.in_flight();
    /// let used = ask_the_model().await;
    /// call.settle(used);
    /// # assert!(limiter.status("model: tokens").await?.is_some_and(|it| it.quotas[0].remaining > 88_000));
    /// # Ok(()) }
    /// ```
    pub fn settle(mut self, actual: impl Into<Cost>) {
        let Some(Sent { line, booking, borrowed }) = self.sent.take() else { return };
        if self.probe {
            tell_probed(&line, 0);
        }
        let actual = actual.into();
        let all = all(booking, borrowed);
        let estimate = all.iter().fold(Cost::default(), |sum, it| sum.plus(it.cost));
        let actual = actual.or(estimate);
        let (too_much, more) = (estimate.less(actual), actual.less(estimate));
        if too_much.is_nothing() && more.is_nothing() && !line.counts_answers() {
            return;
        }
        in_background(&line, move |line| settled(line, all, too_much, more));
    }
}

/// Tells what a call has really cost, one thing after the other.
async fn settled(line: Arc<Line>, all: Vec<Booking>, mut too_much: Cost, more: Cost) {
    let mut kept = Vec::new();
    // What was booked last goes back first, and before more is booked: under what was booked later
    // the tokens of a booking stay where they are.
    for booking in all.into_iter().rev() {
        let back = booking.cost.least(too_much);
        too_much = too_much.less(back);
        if !back.is_nothing() && !give_back_one(&line, Booking { cost: back, ..booking }).await {
            // What was booked before it would stay where it is.
            too_much = Cost::default();
        }
        let rest = booking.cost.less(back);
        if !rest.is_nothing() && line.counts_answers() {
            kept.push(Booking { cost: rest, ..booking });
        }
    }
    for booking in kept {
        answered_one(&line, booking).await;
    }
    if !more.is_nothing() {
        charge(line, more).await;
    }
}

/// All that was booked for a call, in order.
fn all(booking: Booking, borrowed: Option<Box<Borrowed>>) -> Vec<Booking> {
    std::iter::once(booking).chain(borrowed.map(|it| it.0).unwrap_or_default()).collect()
}

fn answered(line: &Arc<Line>, booking: Booking) {
    in_background(line, move |line| async move { answered_one(&line, booking).await });
}

async fn answered_one(line: &Line, booking: Booking) {
    if let Err(error) = line.shared.store.answered(&line.name, booking).await {
        let error = line.shared.failed(&line.name, error);
        tracing::debug!(%error, "an answer could not be told");
    }
}

/// Takes what a call has cost beyond its estimate, in steps that the policy can hold.
async fn charge(line: Arc<Line>, more: Cost) {
    let mut left = more;
    for _ in 0..CHARGES_MAX {
        let policy = line.known();
        let cost = policy.part_of(left);
        if !policy.counts(cost) {
            return;
        }
        let ask = Ask { cost, wait_max_us: SPAN_MAX_US };
        match line.shared.store.take(&line.name, &policy, ask).await {
            Ok(Taken { decision: Decision::Granted { probe, .. }, .. }) => {
                left = left.less(cost);
                if probe {
                    // It is no call whose answer the others could wait for.
                    tell_probed(&line, line.shared.probe_patience);
                }
            }
            // Another policy binds than was known, or the bucket is booked for ten years.
            Ok(Taken { policy: stored, doubted, .. }) => {
                line.store_answered(stored, &policy, doubted);
            }
            Err(error) => {
                let error = line.shared.failed(&line.name, error);
                tracing::debug!(%error, "what a call has cost could not be charged");
                return;
            }
        }
    }
    tracing::warn!(bucket = line.name, %left, "a call has cost far more than its policy can hold");
}

/// Who granted a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrantedBy {
    /// The shared store: the whole fleet knows of it.
    Store,
    /// This process's own share, because the store is away.
    Local,
    /// Nobody: the store is away and the user chose to allow.
    Allowed,
}

/// A booking in the store. Dropped, it goes back to the bucket.
#[derive(Debug)]
pub(crate) struct Held {
    line: Arc<Line>,
    booking: Booking,
    borrowed: Option<Box<Borrowed>>,
    /// When it was due, on this process's steady clock.
    due_at: Micros,
    /// Whether it still has to be given back.
    owed: bool,
    /// Whether it goes first in a suspension, so that the others wait for it.
    probe: bool,
}

impl Permit {
    pub(crate) fn from_store(held: Held) -> Self {
        Self { held: Some(held), granted_by: GrantedBy::Store, waited: Duration::ZERO }
    }

    pub(crate) fn without_store(granted_by: GrantedBy) -> Self {
        Self { held: None, granted_by, waited: Duration::ZERO }
    }

    pub(crate) fn after(mut self, waited: Duration) -> Self {
        self.waited = waited;
        self
    }

    /// What was booked ahead for the same call goes with it.
    pub(crate) fn lend(&mut self, booking: Booking) {
        if let Some(held) = &mut self.held {
            held.borrowed.get_or_insert_default().0.push(booking);
        }
    }

    /// Whether this call goes first at the end of a suspension that a refusal caused, to find out
    /// whether the others may follow. They wait until [its answer is told](Self::in_flight), or for as
    /// long as [`LimiterBuilder::probe`](crate::LimiterBuilder::probe) says. Dropped unspent, it
    /// leaves it to another to go first.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.probe)
    }

    /// Uses the permit: the call goes out now. Nobody learns of its answer by that: after a call that
    /// [goes first](Self::is_probe) the others wait as long as they do at most.
    pub fn spend(mut self) {
        if let Some(held) = self.held.take() {
            held.line.spent.add();
            held.release();
        }
    }

    /// Uses the permit, as [`spend`](Self::spend) does, for a call whose answer will be told.
    ///
    /// Windows then count the call from its answer on. A guard as long as a call can ever last (its
    /// timeout, `window 100/m guard 30s`) keeps the window's promise however slow the network is,
    /// and costs only what calls really last. Each answer told is one more operation on the store;
    /// without a guarded window in the policy it is none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// # let bucket = limiter.bucket("reports", "window 100/m guard 30s")?;
    /// # async fn call_the_api() {}
    /// let call = bucket.acquire().await?.in_flight();
    /// call_the_api().await;
    /// call.answered();
    /// # Ok(()) }
    /// ```
    pub fn in_flight(mut self) -> InFlight {
        let held = self.held.take();
        let Some(held) = held else { return InFlight { sent: None, at: 0, probe: false } };
        held.line.spent.add();
        let (at, probe) = (held.line.shared.clock.steady(), held.probe);
        InFlight { sent: Some(held.send()), at, probe }
    }

    /// Who granted it.
    #[must_use]
    pub fn granted_by(&self) -> GrantedBy {
        self.granted_by
    }

    /// How long the caller waited for it.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let line = Arc::clone(&held.line);
        line.unspent.add();
        let unspent = line.unspent.get();
        if line.spent.get() > 0 || unspent <= UNSPENT_SUSPICIOUS {
            drop(held);
            return;
        }
        held.release();
        if unspent == UNSPENT_SUSPICIOUS + 1 {
            tracing::warn!(
                bucket = line.name,
                "{UNSPENT_SUSPICIOUS} permits were dropped unspent and none was spent: from now on \
                 each counts as spent; call `permit.spend()` right before each request"
            );
        }
    }
}

impl Held {
    pub(crate) fn new(line: &Arc<Line>, booking: Booking, due_at: Micros) -> Self {
        Self { line: Arc::clone(line), booking, borrowed: None, due_at, owed: true, probe: false }
    }

    /// As one that goes first in a suspension, where it does.
    pub(crate) fn first(mut self, probe: bool) -> Self {
        self.probe = probe;
        self
    }

    /// Lets go of it without giving it back: it is spent, void, or somebody else's by now.
    pub(crate) fn release(mut self) {
        self.owed = false;
    }

    /// As [`release`](Self::release); what is needed to tell of its answer.
    fn send(mut self) -> Sent {
        self.owed = false;
        let borrowed = self.borrowed.take();
        Sent { line: Arc::clone(&self.line), booking: self.booking, borrowed }
    }

    /// Gives back what was borrowed, and then the place where it goes back, too.
    fn give_back_borrowed(&mut self, place: Option<Booking>) {
        let Some(borrowed) = self.borrowed.take() else {
            if let Some(place) = place {
                give_back(&self.line, place);
            }
            return;
        };
        in_background(&self.line, move |line| async move {
            // The last first, and one after the other: so each takes back the moment it was booked
            // for.
            for booking in borrowed.0.into_iter().rev().chain(place) {
                if !give_back_one(&line, booking).await {
                    return;
                }
            }
        });
    }

    /// Gives the place back to the bucket: at once where the store answers without waiting, else in
    /// the background of the runtime the limiter was opened in. If that is gone it stays spent.
    pub(crate) fn give_back(mut self) {
        self.owed = false;
        self.give_back_borrowed(Some(self.booking));
        self.leave_to_another();
    }

    /// Its moment is over before it was used: it counts as spent, and who was to go first leaves that
    /// to another.
    pub(crate) fn missed(mut self) {
        self.owed = false;
        self.leave_to_another();
    }

    fn leave_to_another(&self) {
        if self.probe {
            tell_probed(&self.line, self.line.shared.probe_patience);
        }
    }
}

impl Drop for Held {
    /// Leaves the place to somebody here who waits, or gives it back.
    fn drop(&mut self) {
        if !self.owed {
            return;
        }
        if self.probe {
            // Nobody here may have it before another goes first.
            self.give_back_borrowed(Some(self.booking));
            self.leave_to_another();
        } else {
            let place = self.line.reuse(self.booking, self.due_at);
            self.give_back_borrowed(place);
        }
    }
}

/// Tells what came of the call that went first in a suspension: it passed, or with some patience was
/// not made.
pub(crate) fn tell_probed(line: &Arc<Line>, patience_us: Micros) {
    in_background(line, move |line| async move {
        match line.shared.store.probed(&line.name, patience_us).await {
            // Who waits here need not wait until it looks.
            Ok(true) => line.changed(),
            Ok(false) => {}
            Err(error) => {
                let error = line.shared.failed(&line.name, error);
                tracing::debug!(%error, "what came of the first call could not be told");
            }
        }
    });
}

fn give_back(line: &Arc<Line>, booking: Booking) {
    in_background(line, move |line| async move {
        give_back_one(&line, booking).await;
    });
}

/// Whether the store answered.
async fn give_back_one(line: &Line, booking: Booking) -> bool {
    let answer = line.shared.store.give_back(&line.name, booking).await;
    match answer {
        Ok(_) => {
            line.shared.counts.given_back.add();
            true
        }
        Err(error) => {
            let error = line.shared.failed(&line.name, error);
            tracing::debug!(%error, "a place could not be given back");
            false
        }
    }
}

/// Asks something of the store for nobody who waits: at once where it answers without waiting, else
/// on the runtime the limiter was opened in.
pub(crate) fn in_background<F>(line: &Arc<Line>, ask: impl FnOnce(Arc<Line>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let shared = Arc::clone(&line.shared);
    let mut asking = Box::pin(ask(Arc::clone(line)));
    let mut context = Context::from_waker(Waker::noop());
    // A store that waits needs the runtime's timer, so it is not asked here: the runtime may be on
    // its way out, and then drops what it is given.
    if shared.store.answers_later() || asking.as_mut().poll(&mut context).is_pending() {
        let returning = shared.returning();
        shared.runtime.spawn(async move {
            asking.await;
            drop(returning);
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::ManualClock;
    use crate::limiter::Limiter;

    use super::*;

    #[tokio::test]
    async fn who_went_first_and_passed_lets_the_others_follow_and_nobody_else_does() {
        let clock = ManualClock::at(1_790_000_000_000_000);
        let limiter = Limiter::builder("memory:").manual_clock(clock.clone()).open().await.unwrap();
        let bucket = limiter.bucket("api", "10/s").unwrap();
        let in_flight = bucket.acquire().await.unwrap().in_flight();
        limiter.suspend_refused("api", Duration::from_secs(2), "429").await.unwrap();
        clock.advance(Duration::from_secs(2));
        let first = bucket.acquire().await.unwrap().in_flight();
        assert!(first.is_probe() && !in_flight.is_probe());
        // A success that was in flight lifts nothing.
        in_flight.answered();
        assert!(!bucket.try_acquire().await.unwrap().is_granted());
        first.answered();
        let second = bucket.acquire().await.unwrap().in_flight();
        assert!(!second.is_probe());
        // Nor does one that went first before what came since.
        limiter.suspend_refused("api", Duration::from_secs(2), "429").await.unwrap();
        InFlight { probe: true, ..second }.answered();
        let status = limiter.status("api").await.unwrap().unwrap();
        assert_eq!(status.suspension.unwrap().left, Duration::from_secs(2));
    }
}
