//! What all handles of one bucket in this process share: its driver (who waits, who sleeps for
//! which place), and what is known of the bucket. The driver decides, in `paceline-core`; here it
//! gets its time, its store and a task.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use paceline_core::driver::{Driver, Event, Next, Settings, Stranded, Ticket};
use paceline_core::{Booking, Cause, Cost, Group, Micros, Policy, Probed};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::away::LocalShare;
use crate::error::Error;
use crate::limiter::Shared;
use crate::meters::Meters;
use crate::permit::{Held, LONG_AGO};
use crate::stats::Count;
use crate::store::Batched;

/// Where a crowd may have formed: so many calls in a row have gone the quick way. The next waits
/// for those behind it to come, too.
const QUICK_IN_A_ROW: u32 = 32;
/// While somebody's lone flight is under way the task that drives waits for it; it is told when it
/// has landed, so this is only for safety.
const LOOK_AT_FLIGHT_US: Micros = 100_000;

/// One bucket in this process.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: String,
    waiting: Mutex<Waiting>,
    /// Wakes the task that drives when something has changed.
    stirred: Notify,
    quick: AtomicU32,
    /// This process's share while the store is away.
    pub(crate) share: Mutex<LocalShare>,
    /// Whether `share` holds anything; spares the usual call its lock.
    pub(crate) share_used: AtomicBool,
    /// Whether another policy binds than the last caller's own.
    other_policy: AtomicBool,
    /// For how long the bucket has been suspended in all, as the last batch told.
    paused_us: AtomicI64,
    /// Whether somebody was refused without a time, so that who passes says so.
    doubted: AtomicBool,
    #[cfg(feature = "http")]
    heard: Mutex<crate::http::Heard>,
    pub(crate) spent: Count,
    pub(crate) unspent: Count,
    pub(crate) meters: Meters,
}

/// Who waits, and who drives.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) driver: Driver<Waiter>,
    /// Whether a task drives.
    driven: bool,
    /// What the next flight brings along to make the bucket where there is none.
    own: Arc<Policy>,
    /// What binds, as the last answer said.
    pub(crate) policy: Arc<Policy>,
}

/// How one waiter learns what became of it.
pub(crate) type Waiter = oneshot::Sender<Outcome>;

/// What became of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It goes, if it does so by that moment of the steady clock.
    Go(Held, Micros),
    /// It would have to wait for longer than it may, for that long.
    Refused(Micros, Cause, Arc<Policy>),
    /// Its call can never pass: the most that can, and the quota that is too small.
    Never(i64, usize, Arc<Policy>),
    /// The store did not answer; the place it had slept for, if it had.
    Stranded(Error, Option<Held>),
    /// The runtime of the task that drove has ended.
    Abandoned,
}

/// One who stands in line. Dropped before it has its answer, it leaves.
pub(crate) struct Standing {
    line: Arc<Line>,
    ticket: Ticket,
    outcome: oneshot::Receiver<Outcome>,
    answered: bool,
}

impl Line {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str, policy: &Arc<Policy>) -> Self {
        let driver =
            Driver::new(Settings { lookahead_us: shared.lookahead, seed: fastrand::u64(..) });
        Self {
            shared: Arc::clone(shared),
            name: name.to_owned(),
            waiting: Mutex::new(Waiting {
                driver,
                driven: false,
                own: Arc::clone(policy),
                policy: Arc::clone(policy),
            }),
            stirred: Notify::new(),
            quick: AtomicU32::new(0),
            share: Mutex::default(),
            share_used: AtomicBool::new(false),
            other_policy: AtomicBool::new(false),
            paused_us: AtomicI64::new(0),
            doubted: AtomicBool::new(shared.for_one_call),
            #[cfg(feature = "http")]
            heard: Mutex::default(),
            spent: Count::default(),
            unspent: Count::default(),
            meters: Meters::new(name),
        }
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What answers have told.
    #[cfg(feature = "http")]
    pub(crate) fn heard(&self) -> MutexGuard<'_, crate::http::Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody was refused without a time.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// Whether somebody was, and nobody has said here that it passed. The caller does.
    #[cfg(feature = "http")]
    pub(crate) fn ends_doubt(&self) -> bool {
        self.doubted.load(Ordering::Relaxed) && self.doubted.swap(false, Ordering::Relaxed)
    }

    /// Whether somebody was refused without a time and nobody has passed here since.
    #[cfg(feature = "http")]
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Relaxed)
    }

    /// Whether another policy binds than the last caller's own, as far as is known here.
    #[cfg(feature = "http")]
    pub(crate) fn is_other_policy(&self) -> bool {
        self.other_policy.load(Ordering::Relaxed)
    }

    /// For how long the bucket has been suspended in all, as far as is known here.
    #[cfg(feature = "http")]
    pub(crate) fn paused_us(&self) -> Micros {
        self.paused_us.load(Ordering::Relaxed)
    }

    /// The bucket's policy, as far as is known here.
    #[cfg(feature = "http")]
    pub(crate) fn binding(&self) -> Arc<Policy> {
        Arc::clone(&self.waiting().policy)
    }

    /// Another policy binds from now on.
    #[cfg(feature = "http")]
    pub(crate) fn learned(self: &Arc<Self>, policy: &Arc<Policy>) {
        self.other_policy.store(true, Ordering::Relaxed);
        self.waiting().policy = Arc::clone(policy);
        self.changed();
    }

    fn now(&self) -> Micros {
        self.shared.clock.steady()
    }

    /// Whether the bucket's policy, as far as is known, counts calls from their answers on.
    pub(crate) fn counts_answers(&self) -> bool {
        self.waiting().policy.counts_answers()
    }

    /// The policy that binds, as far as is known.
    pub(crate) fn known(&self) -> Arc<Policy> {
        Arc::clone(&self.waiting().policy)
    }

    /// Whether the next call may ask the store on its own. Where crowds pay, one call in a row of
    /// quick ones stands in line to see whether one has formed.
    pub(crate) fn may_go_alone(&self) -> bool {
        !self.shared.store.likes_crowds()
            || self.quick.fetch_add(1, Ordering::Relaxed) % QUICK_IN_A_ROW != QUICK_IN_A_ROW - 1
    }

    /// Stands in line, and sees to it that somebody drives.
    pub(crate) fn join(
        self: &Arc<Self>,
        policy: &Arc<Policy>,
        cost: Cost,
        deadline_at: Option<Micros>,
        now: Micros,
    ) -> Standing {
        let (waiter, outcome) = oneshot::channel();
        let mut waiting = self.waiting();
        waiting.bring(policy);
        let ticket = waiting.driver.join(waiter, cost, deadline_at, now);
        let standing = Standing { line: Arc::clone(self), ticket, outcome, answered: false };
        // The task that drives asks for all who have come by then; the first has to wake it.
        if !waiting.driven || deadline_at.is_some() || waiting.driver.waiting() == 1 {
            self.stir(waiting);
        }
        standing
    }

    /// Stands in line with what it was answered when it asked alone.
    pub(crate) fn stand(
        self: &Arc<Self>,
        stand: impl FnOnce(&mut Waiting, Waiter) -> Ticket,
    ) -> Standing {
        let (waiter, outcome) = oneshot::channel();
        let mut waiting = self.waiting();
        let ticket = stand(&mut waiting, waiter);
        let standing = Standing { line: Arc::clone(self), ticket, outcome, answered: false };
        self.stir(waiting);
        standing
    }

    /// Tells what has become of waiters by what happened to the driver, and has it driven on.
    pub(crate) fn stir(self: &Arc<Self>, mut waiting: MutexGuard<'_, Waiting>) {
        let events = waiting.driver.events();
        let policy = Arc::clone(&waiting.policy);
        let start = !waiting.driven && waiting.driver.waiting() > 0;
        let stir = waiting.driven;
        waiting.driven |= start;
        drop(waiting);
        if start {
            self.start();
        } else if stir {
            self.stirred.notify_one();
        }
        self.tell(events, &policy);
    }

    /// The bucket was changed, as somebody told.
    pub(crate) fn changed(self: &Arc<Self>) {
        let now = self.now();
        let mut waiting = self.waiting();
        if waiting.driver.waiting() > 0 {
            waiting.driver.changed(now);
            self.stir(waiting);
        }
    }

    /// A place that was not used: to somebody here who waits, else it is the caller's.
    pub(crate) fn reuse(self: &Arc<Self>, booking: Booking, due_at: Micros) -> Option<Booking> {
        let now = self.now();
        let mut waiting = self.waiting();
        if waiting.driver.waiting() == 0 {
            return Some(booking);
        }
        let left_over = waiting.driver.reuse(booking, due_at, now);
        self.stir(waiting);
        left_over
    }

    /// Starts the task that drives, on the caller's runtime where it has one.
    fn start(self: &Arc<Self>) {
        let runtime = Handle::try_current().unwrap_or_else(|_| self.shared.runtime.clone());
        self.shared.listen(&runtime);
        runtime.spawn(drive(Driving { line: Arc::clone(self), done: false }));
    }

    /// Tells waiters what became of them. Not under the lock: who has gone meanwhile gives back.
    fn tell(self: &Arc<Self>, events: Vec<Event<Waiter>>, policy: &Arc<Policy>) {
        for event in events {
            // Who has gone meanwhile drops its outcome, and with it the place.
            let _ = match event {
                Event::Go { waiter, booking, due_at, good_until, probe } => {
                    let held = Held::new(self, booking, due_at).first(probe);
                    waiter.send(Outcome::Go(held, good_until))
                }
                Event::Refused { waiter, retry_after_us, cause } => {
                    waiter.send(Outcome::Refused(retry_after_us, cause, Arc::clone(policy)))
                }
                Event::Never { waiter, cost_max, quota, .. } => {
                    waiter.send(Outcome::Never(cost_max, quota, Arc::clone(policy)))
                }
                Event::GiveBack(booking) => {
                    Held::new(self, booking, LONG_AGO).give_back();
                    Ok(())
                }
                Event::Unprobed(booking) => {
                    Held::new(self, booking, LONG_AGO).first(true).give_back();
                    Ok(())
                }
            };
        }
    }
}

impl Waiting {
    /// Brings the policy of a caller along.
    pub(crate) fn bring(&mut self, policy: &Arc<Policy>) {
        if !Arc::ptr_eq(&self.own, policy) {
            self.own = Arc::clone(policy);
        }
    }
}

impl Standing {
    /// What becomes of it. Cancel safe: dropped, it leaves the line, and its place goes to the next.
    pub(crate) async fn outcome(mut self) -> Outcome {
        let outcome = (&mut self.outcome).await.unwrap_or(Outcome::Abandoned);
        self.answered = true;
        outcome
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let now = self.line.now();
        let mut waiting = self.line.waiting();
        waiting.driver.leave(self.ticket, now);
        self.line.stir(waiting);
    }
}

/// Held by the task that drives.
struct Driving {
    line: Arc<Line>,
    done: bool,
}

impl Drop for Driving {
    /// The task's runtime has ended, perhaps with waiters of another one left: they stand in line
    /// anew, and the first of them starts a new task.
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let stranded = {
            let mut waiting = self.line.waiting();
            waiting.driven = false;
            waiting.driver.abandon()
        };
        for Stranded { waiter, booking } in stranded {
            // Its place, if it had one, stays spent.
            let _ = (waiter.send(Outcome::Abandoned), booking);
        }
    }
}

/// What a task that drives does next.
enum Do {
    Ask(Vec<Group>, Arc<Policy>),
    Probe(Booking),
    SleepUntil(Micros),
    /// Somebody's flight is under way, and nobody goes before it lands.
    Await,
    Yield,
    End,
}

/// From so many on they are a crowd, which is let go in two halves; see [`drive`].
const CROWD: usize = 64;

/// What became of waiters and has not been told yet.
type Untold = (Vec<Event<Waiter>>, Arc<Policy>);

/// Drives one bucket's driver until nobody waits.
///
/// Who was let go is mostly back at once. So that a crowd does not stand still while it is asked for,
/// nor its flights wait for it, one half goes and comes back, is asked for, and the other half goes
/// while that flight is under way.
async fn drive(mut driving: Driving) {
    let line = Arc::clone(&driving.line);
    let shared = &line.shared;
    // Others that are about to ask come first.
    let mut crowd = !shared.store.answers_later();
    let mut untold: Option<Untold> = None;
    loop {
        if std::mem::take(&mut crowd) {
            tokio::task::yield_now().await;
        }
        let next = line.what_next();
        let asks = matches!(next, Do::Ask(..));
        if let Some((events, policy)) = untold.take_if(|_| !asks) {
            line.tell(events, &policy);
        }
        match next {
            Do::Ask(groups, own) => {
                let asking = shared.store.batch(&line.name, &own, &groups);
                let answer = line.letting_go_until(asking, untold.take()).await;
                untold = line.answered(answer, &own);
                let Some((events, policy)) = &mut untold else { continue };
                if !shared.store.answers_later() || events.len() < CROWD {
                    crowd = events.len() > 1 && !shared.store.answers_later();
                    line.tell(std::mem::take(events), policy);
                    untold = None;
                } else if line.waiting().driver.waiting() == 0 {
                    let half = events.split_off(events.len() / 2);
                    line.tell(std::mem::replace(events, half), policy);
                    crowd = true;
                }
            }
            Do::Probe(booking) => {
                let asking = shared.store.probe(&line.name, booking);
                let answer = line.letting_go_until(asking, None).await;
                line.probed(answer);
            }
            Do::SleepUntil(at) => {
                tokio::select! {
                    () = shared.clock.sleep(at - line.now()) => {}
                    () = line.stirred.notified() => {}
                }
            }
            Do::Await => {
                tokio::select! {
                    () = shared.clock.sleep(LOOK_AT_FLIGHT_US) => {}
                    () = line.stirred.notified() => {}
                }
            }
            Do::Yield => crowd = true,
            Do::End => {
                driving.done = true;
                return;
            }
        }
    }
}

impl Line {
    /// Awaits an answer, and lets go meanwhile who has not been told yet, and whose moment comes.
    async fn letting_go_until<T>(
        self: &Arc<Self>,
        asking: impl Future<Output = T>,
        untold: Option<Untold>,
    ) -> T {
        let mut asking = std::pin::pin!(asking);
        // Most stores answer at once; with others this sends what is asked.
        let once = std::future::poll_fn(|context| Poll::Ready(asking.as_mut().poll(context)));
        let once = once.await;
        if let Some((events, policy)) = untold {
            self.tell(events, &policy);
        }
        if let Poll::Ready(answer) = once {
            return answer;
        }
        loop {
            let Do::SleepUntil(at) = self.what_next() else { return asking.await };
            tokio::select! {
                biased;
                answer = &mut asking => return answer,
                () = self.shared.clock.sleep(at - self.now()) => {}
            }
        }
    }

    /// Lets go whose moment has come; what the task that drives does next.
    fn what_next(self: &Arc<Self>) -> Do {
        let now = self.now();
        let mut waiting = self.waiting();
        waiting.driver.told(self.shared.is_told());
        let next = waiting.driver.next(now);
        let events = waiting.driver.events();
        // Where many went at once they may be back at once.
        let crowd = events.len() > 1 && !self.shared.store.answers_later();
        let next = match next {
            Next::Ask(groups) => Do::Ask(groups, Arc::clone(&waiting.own)),
            Next::Probe(booking) => Do::Probe(booking),
            _ if crowd => Do::Yield,
            Next::SleepUntil(at) => Do::SleepUntil(at),
            Next::Await(Some(wake_at)) => Do::SleepUntil(wake_at),
            Next::Await(None) => Do::Await,
            Next::Rest => {
                waiting.driven = false;
                Do::End
            }
        };
        let policy = Arc::clone(&waiting.policy);
        drop(waiting);
        self.tell(events, &policy);
        next
    }
}

impl Line {
    /// Takes an answer in; what became of waiters by it. Who is left without one is told here.
    fn answered(
        self: &Arc<Self>,
        answer: Result<Batched, Error>,
        own: &Arc<Policy>,
    ) -> Option<Untold> {
        let now = self.now();
        let mut waiting = self.waiting();
        match answer {
            Ok(Batched { batch, policy: stored, doubted }) => {
                #[allow(clippy::cast_precision_loss, reason = "a gauge")]
                self.meters.suspended.set(batch.sight.left as f64 / 1e6);
                let paused_us = batch.sight.now - batch.sight.bucket_time;
                self.paused_us.store(paused_us, Ordering::Relaxed);
                let policy = stored.clone().unwrap_or_else(|| Arc::clone(own));
                waiting.driver.answered(&batch, &policy, now);
                let events = waiting.driver.events();
                waiting.policy = Arc::clone(&policy);
                drop(waiting);
                self.store_answered(stored, own, doubted);
                Some((events, policy))
            }
            Err(error) => {
                self.stranded(waiting, error);
                None
            }
        }
    }

    /// Takes in whether a place goes first in a suspension.
    fn probed(self: &Arc<Self>, answer: Result<Probed, Error>) {
        let now = self.now();
        let mut waiting = self.waiting();
        match answer {
            Ok(probed) => {
                let policy = Arc::clone(&waiting.policy);
                waiting.driver.probed(&probed, &policy, now);
                let events = waiting.driver.events();
                drop(waiting);
                self.tell(events, &policy);
            }
            Err(error) => self.stranded(waiting, error),
        }
    }

    /// Tells whom a failed flight leaves without an answer.
    fn stranded(self: &Arc<Self>, mut waiting: MutexGuard<'_, Waiting>, error: Error) {
        let now = self.now();
        let stranded = waiting.driver.failed(now);
        drop(waiting);
        let error = self.shared.failed(&self.name, error);
        for Stranded { waiter, booking } in stranded {
            let held = booking.map(|booking| Held::new(self, booking, now));
            let _ = waiter.send(Outcome::Stranded(error.clone(), held));
        }
    }

    /// The store is there: this process's own share ends. `own` binds where it told of no other.
    pub(crate) fn store_answered(
        &self,
        stored: Option<Arc<Policy>>,
        own: &Arc<Policy>,
        doubted: bool,
    ) {
        // The usual call, under its own policy as before, takes no lock.
        if stored.is_some() || self.other_policy.load(Ordering::Relaxed) {
            self.other_policy.store(stored.is_some(), Ordering::Relaxed);
            self.waiting().policy = Arc::clone(stored.as_ref().unwrap_or(own));
        }
        if doubted {
            self.doubt();
        }
        if stored.is_some() || self.share_used.load(Ordering::Relaxed) {
            self.share_used.store(stored.is_some(), Ordering::Relaxed);
            self.share().store_answered(stored);
        }
    }

    pub(crate) fn share(&self) -> MutexGuard<'_, LocalShare> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
