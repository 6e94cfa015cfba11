//! The limiter: a store, and the handles of its buckets. What a bucket's verbs do is in
//! [`bucket`](crate::bucket); how they wait in [`wait`](crate::wait).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use paceline_core::decide::UNPROBED_US;
use paceline_core::{Micros, Policy, SPAN_MAX_US, Suspension};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::away::WhenAway;
use crate::bucket::Bucket;
use crate::clock::{Clock, ManualClock, micros, us};
use crate::error::Error;
use crate::examination::{Examination, Sheet};
use crate::into_policy::IntoPolicy;
use crate::line::Line;
use crate::name;
use crate::stats::{Counts, Stats};
use crate::status::Status;
use crate::store::Store;
use crate::store::url::StoreUrl;

/// The environment variable that names the default store.
pub const STORE_VARIABLE: &str = "PACELINE_STORE";
/// The environment variable that says what to do while the store is away.
pub const WHEN_AWAY_VARIABLE: &str = "PACELINE_WHEN_AWAY";
/// The store where none is named: this machine's.
pub const STORE_DEFAULT: &str = "host:";
/// Most calls that wait at a time in one process where nothing is said.
const MAX_WAITERS_DEFAULT: usize = 100_000;
/// How long the fleet waits for the answer of a call that goes first where nothing is said: longer
/// than most calls last.
const PROBE_DEFAULT: Duration = Duration::from_secs(5);

/// A store, shared by all clones: open it once, clone it freely.
///
/// | to | ask the limiter for | |
/// |---|---|---|
/// | make calls | [`bucket`](Self::bucket), then its `acquire` | what most programs want |
/// | operate buckets by name | [`status`](Self::status), [`suspend`](Self::suspend), [`resume`](Self::resume), [`set_policy`](Self::set_policy), [`pin_policy`](Self::pin_policy), [`delete`](Self::delete), [`list`](Self::list), [`examine`](Self::examine) | for tools and people |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
/// use paceline::Limiter;
///
/// let limiter = Limiter::open("memory:").await?;
/// let github = limiter.bucket("github", "50/s burst 10")?;
/// github.acquire().await?.spend();
/// assert_eq!(limiter.list().await?, ["github"]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

/// What all clones and handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The store's URL, without user and password.
    name: String,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) when_away: WhenAway,
    pub(crate) lookahead: Micros,
    /// How long the others wait for a call that goes first after a refusal; 0 where none does.
    pub(crate) probe_patience: Micros,
    pub(crate) counts: Counts,
    /// Where places are given back in the background.
    pub(crate) runtime: Handle,
    /// How many are on their way back.
    pub(crate) returning: watch::Sender<usize>,
    /// Most calls that may wait at a time, and how many do.
    pub(crate) waiters_max: usize,
    waiters: AtomicUsize,
    /// Whether somebody listens for changes, and whether the store tells of them.
    pub(crate) listening: AtomicBool,
    pub(crate) told: AtomicBool,
    pub(crate) lines: Mutex<HashMap<String, Weak<Line>>>,
    /// Whose refusals without a time count as one's, and whether this process is one of many that make
    /// a call or two: then others may have been refused before anything is heard of it, and what one
    /// answer says is all that it hears.
    pub(crate) one_of: String,
    pub(crate) for_one_call: bool,
}

/// One call that may have to wait, counted until this is dropped.
pub(crate) struct Waits<'a>(&'a Line);

/// How a limiter is opened when the defaults do not fit.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct LimiterBuilder {
    url: String,
    when_away: WhenAway,
    timeout: Duration,
    lookahead: Duration,
    max_waiters: usize,
    probe: Duration,
    clock: Clock,
    one_of: Option<String>,
}

impl Limiter {
    /// Opens the store of a URL: `memory:`, `host:`, `host:/path`,
    /// `redis://[user:password@]host[:port][/db]`, `redis+sentinel://host[,host…]/service[/db]`,
    /// `redis-cluster://host[,host…]`; `rediss…` for TLS. Behind them `?prefix=`, `replicas=` (how
    /// many replicas must have a change before it is answered), `ca=`, `cert=`, `key=`,
    /// `sentinel_user=` and `sentinel_password=`.
    ///
    /// A Redis server that is away is no error here: calls then get what
    /// [`WhenAway`] says, and the connection is made as soon as the server is back.
    ///
    /// # Errors
    /// When the URL is not one of these, the server does not let us in or is too old, or the host
    /// folder cannot be used.
    ///
    /// # Panics
    /// Outside a Tokio runtime; see [`blocking`](crate::blocking) for programs without one.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::builder(url).open().await
    }

    /// Opens the store that `PACELINE_STORE` names, `host:` without it; `PACELINE_WHEN_AWAY` says
    /// what to do while it is away (`refuse`, `allow`, `local/N`).
    ///
    /// # Errors
    /// As [`open`](Self::open), and when a variable's value is not allowed.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub async fn from_env() -> Result<Self, Error> {
        LimiterBuilder::from_env()?.open().await
    }

    /// A builder for the store of this URL.
    pub fn builder(url: &str) -> LimiterBuilder {
        LimiterBuilder {
            url: url.to_owned(),
            when_away: WhenAway::default(),
            timeout: Duration::from_millis(250),
            lookahead: Duration::from_secs(1),
            max_waiters: MAX_WAITERS_DEFAULT,
            probe: PROBE_DEFAULT,
            clock: Clock::System,
            one_of: None,
        }
    }

    /// The handle of a bucket. `policy` (its text, or a [`Policy`]) creates the bucket where there
    /// is none; where there is one, the policy stored with it binds.
    ///
    /// # Errors
    /// When the name or the policy is not allowed; nothing is asked of the store yet.
    pub fn bucket(&self, name: &str, policy: impl IntoPolicy) -> Result<Bucket, Error> {
        name::check(name)?;
        let policy = policy.into_policy()?;
        let policy = Arc::new(policy);
        Ok(Bucket::new(self.shared.line(name, &policy), policy))
    }

    /// What there is to see of a bucket; `None` where there is none (idle buckets evaporate).
    ///
    /// # Errors
    /// When the name is not allowed or the store does not answer.
    pub async fn status(&self, name: &str) -> Result<Option<Status>, Error> {
        name::check(name)?;
        let look = self.shared.told(name, self.shared.store.look(name).await)?;
        Ok(look.bucket.map(|bucket| Status::new(name, &bucket, look.now)))
    }

    /// The names of all buckets, sorted.
    ///
    /// # Errors
    /// When the store does not answer, or one of its servers; see
    /// [`list_reachable`](Self::list_reachable).
    pub async fn list(&self) -> Result<Vec<String>, Error> {
        match self.list_reachable().await {
            (names, None) => Ok(names),
            (_, Some(error)) => Err(error),
        }
    }

    /// The names of the buckets on those servers that answer, sorted, and why others did not: in a
    /// Cluster one node may be away.
    pub async fn list_reachable(&self) -> (Vec<String>, Option<Error>) {
        let listed = self.shared.store.list().await;
        let (names, failed) = listed.unwrap_or_else(|error| (Vec::new(), Some(error)));
        if let Some(error) = &failed {
            self.shared.counts.store_errors.add();
            self.shared.store.meters().failed(error);
        }
        (names, failed)
    }

    /// Stops a bucket for the whole fleet, until the later of its present end and `span` from now.
    /// Answers how long it is now suspended for. Works for a name without a bucket, too.
    ///
    /// # Errors
    /// When the name, the span (more than nothing, at most ten years) or the reason (up to 256
    /// bytes without control characters) is not allowed or the store does not answer.
    pub async fn suspend(
        &self,
        name: &str,
        span: Duration,
        reason: &str,
    ) -> Result<Duration, Error> {
        self.stop(name, span, 0, reason).await
    }

    /// As [`suspend`](Self::suspend), because a call was refused: at the end one call of the fleet goes
    /// first, and the others follow when it was not refused; see [`LimiterBuilder::probe`]. Windows
    /// count the time until then as passed, as the provider's do. A plain suspension that ends later
    /// stays as it is. Answers how long nobody may call.
    ///
    /// # Errors
    /// As [`suspend`](Self::suspend).
    pub async fn suspend_refused(
        &self,
        name: &str,
        span: Duration,
        reason: &str,
    ) -> Result<Duration, Error> {
        self.stop(name, span, self.shared.probe_patience, reason).await
    }

    pub(crate) async fn stop(
        &self,
        name: &str,
        span: Duration,
        patience_us: Micros,
        reason: &str,
    ) -> Result<Duration, Error> {
        name::check(name)?;
        let for_us = Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX);
        if !(1..=SPAN_MAX_US).contains(&for_us) {
            return Err(Error::input(format!(
                "suspension of {span:?}: it is more than nothing and at most 3650 days"
            )));
        }
        if reason.len() > 256 || reason.chars().any(char::is_control) {
            return Err(Error::input(format!(
                "reason {:?}: up to 256 bytes without control characters",
                reason.chars().take(40).collect::<String>()
            )));
        }
        let why = Suspension { reason: reason.to_owned(), by: author() };
        let suspended = self.shared.store.suspend(name, for_us, patience_us, why).await;
        let left = self.shared.told(name, suspended)?;
        tracing::info!(bucket = name, left_us = left, reason, "suspended");
        Ok(micros(left))
    }

    /// Ends a suspension at once, for the whole fleet. Answers whether there was one.
    ///
    /// # Errors
    /// When the name is not allowed or the store does not answer.
    pub async fn resume(&self, name: &str) -> Result<bool, Error> {
        name::check(name)?;
        let was = self.shared.told(name, self.shared.store.resume(name).await)?;
        tracing::info!(bucket = name, was_suspended = was, "resumed");
        Ok(was)
    }

    /// Gives a bucket a new policy, which binds every process on its next call. What was left is
    /// kept and cut to the new burst; equal quotas change nothing. Answers whether anything
    /// changed. The policy goes with the idle bucket; see [`pin_policy`](Self::pin_policy).
    ///
    /// # Errors
    /// When the name or the policy is not allowed or the store does not answer.
    pub async fn set_policy(&self, name: &str, policy: impl IntoPolicy) -> Result<bool, Error> {
        let policy = policy.into_policy()?;
        self.set(name, policy, false).await
    }

    /// As [`set_policy`](Self::set_policy), and the policy outlives the idle bucket: it binds until
    /// another is set or the bucket is deleted.
    ///
    /// # Errors
    /// As [`set_policy`](Self::set_policy).
    pub async fn pin_policy(&self, name: &str, policy: impl IntoPolicy) -> Result<bool, Error> {
        let policy = policy.into_policy()?;
        self.set(name, policy, true).await
    }

    async fn set(&self, name: &str, policy: Policy, pinned: bool) -> Result<bool, Error> {
        name::check(name)?;
        let set = self.shared.store.set(name, &Arc::new(policy), pinned).await;
        let changed = self.shared.told(name, set)?;
        tracing::info!(bucket = name, changed, pinned, "policy set");
        Ok(changed)
    }

    /// Forgets a bucket with its policy, state and suspension: the next call starts with a full
    /// one. Answers whether there was one. What is kept under its key in Redis and is no bucket is left
    /// alone.
    ///
    /// # Errors
    /// When the name is not allowed, its key holds something that is no bucket or the store does not
    /// answer.
    pub async fn delete(&self, name: &str) -> Result<bool, Error> {
        name::check(name)?;
        let was = self.shared.told(name, self.shared.store.delete(name).await)?;
        tracing::info!(bucket = name, existed = was, "deleted");
        Ok(was)
    }

    /// Waits until all places on their way back to the store have arrived (those of permits
    /// dropped unspent and of waits cancelled). For the end of a program: what has not arrived by
    /// then stays spent. Bounded by the timeout of one operation. Cancel safe.
    pub async fn settled(&self) {
        let mut returning = self.shared.returning.subscribe();
        // The sender lives as long as the limiter.
        let _ = returning.wait_for(|returning| *returning == 0).await;
    }

    /// Looks at the store as a process that makes calls would, and says in plain words what is
    /// wrong or risky: for a person who sets one up, or wonders. Real decisions are made on a bucket
    /// of its own for a third of a second a server; other buckets are not touched. Each step is
    /// bounded by the timeout of one operation, all together by some seconds. Not cancel safe:
    /// dropped half way, that bucket is left to evaporate.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// use paceline::{Limiter, Severity};
    ///
    /// let found = Limiter::open("memory:").await?.examine().await?;
    /// assert_eq!(found.worst(), Some(Severity::Note)); // other processes do not share it
    /// println!("{}: {}", found.findings[0].what, found.findings[0].advice);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the URL names what cannot be, such as a service that no sentinel knows. Whatever else
    /// keeps calls from the store is a finding.
    pub async fn examine(&self) -> Result<Examination, Error> {
        let mut found = Examination::of(&self.shared.name);
        self.shared.store.examine(&mut found).await;
        match found.error() {
            Some(error) if error.is_input() => Err(error.clone()),
            _ => Ok(found),
        }
    }

    /// Counts since the limiter was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counts = &self.shared.counts;
        Stats {
            granted: counts.granted.get(),
            refused: counts.refused.get(),
            given_back: counts.given_back.get(),
            store_operations: self.shared.store.operations(),
            store_errors: counts.store_errors.get(),
            refused_away: counts.refused_away.get(),
            allowed_away: counts.allowed_away.get(),
            granted_local: counts.granted_local.get(),
            refused_local: counts.refused_local.get(),
            refused_crowded: counts.crowded.get(),
        }
    }

    pub(crate) fn sharing(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl LimiterBuilder {
    /// What `PACELINE_STORE` and `PACELINE_WHEN_AWAY` say.
    ///
    /// # Errors
    /// When a variable's value is not allowed.
    pub fn from_env() -> Result<Self, Error> {
        let variable = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Error::input(format!("{name} is not valid Unicode")))
            }
        };
        let url = variable(STORE_VARIABLE)?.unwrap_or_else(|| STORE_DEFAULT.to_owned());
        let mut builder = Limiter::builder(&url);
        if let Some(value) = variable(WHEN_AWAY_VARIABLE)? {
            builder = builder.when_away(value.parse()?);
        }
        Ok(builder)
    }

    /// What a call gets while the store is away; [`WhenAway::Refuse`] unless said.
    pub fn when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// How long one operation on the store may take; 250 ms unless said, at least 1 ms. For a store
    /// far away, three times there and back at least. Opening takes several round trips and may take
    /// four times as long.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// How far ahead a waiting call books its place; 1 s unless said, at most a minute. A process
    /// that is killed wastes at most what it has booked.
    pub fn lookahead(mut self, lookahead: Duration) -> Self {
        self.lookahead = lookahead.min(Duration::from_secs(60));
        self
    }

    /// Most calls of this process that may wait at a time, for all buckets together; 100 000 unless
    /// said. One more is answered at once: `acquire_within` with a refusal whose cause is
    /// [`RefusedBy::Crowd`](crate::RefusedBy::Crowd), `acquire` with an error that
    /// [`is_crowded`](Error::is_crowded).
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Makes this process one of many that each make a call or two and end, such as commands of a
    /// script: a target that is refused without a time by several processes of the same name counts
    /// once, where each would count as one more that is refused. A limit that one answer states is
    /// learned by that, where others wait for a second to say the same.
    pub fn one_of(mut self, name: impl Into<String>) -> Self {
        self.one_of = Some(name.into());
        self
    }

    /// How long the fleet waits at the end of a suspension that a refusal caused for the one call that
    /// goes first: until its answer is told, the others stay where they are, and follow in their order
    /// when it was not refused. After so long they go all the same: whoever made that call may have
    /// died, or tells of no answers. 5 s unless said, at most an hour; [`Duration::ZERO`] lets all go
    /// at once at the end. It holds for the suspensions that this limiter makes.
    ///
    /// The middlewares tell of answers by themselves; others do by
    /// [`Permit::in_flight`](crate::Permit::in_flight).
    pub fn probe(mut self, patience: Duration) -> Self {
        self.probe = patience.min(Duration::from_secs(3_600));
        self
    }

    /// Takes the time from a clock moved by hand, in every decision and every sleep: for tests and
    /// for replaying traces.
    pub fn manual_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Opens the store and [examines](Limiter::examine) it; also where it does not let us in or is
    /// none we can work with, which is then what was found.
    ///
    /// # Errors
    /// When the URL names what cannot be.
    ///
    /// # Panics
    /// As [`Limiter::open`].
    pub async fn examine(self) -> Result<Examination, Error> {
        let url: StoreUrl = self.url.parse()?;
        match self.open().await {
            Ok(limiter) => limiter.examine().await,
            Err(error) if error.is_input() => Err(error),
            Err(error) => {
                let mut sheet = Sheet::default();
                sheet.failed(&error);
                let mut found = Examination::of(url.to_string());
                found.take_in(sheet);
                Ok(found)
            }
        }
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`Limiter::open`].
    ///
    /// # Panics
    /// As [`Limiter::open`].
    pub async fn open(self) -> Result<Limiter, Error> {
        let url: StoreUrl = self.url.parse()?;
        let store = Store::open(&url, self.clock.clone(), self.timeout).await?;
        Ok(Limiter {
            shared: Arc::new(Shared {
                name: url.to_string(),
                store,
                clock: self.clock,
                when_away: self.when_away,
                lookahead: Micros::try_from(self.lookahead.as_micros()).unwrap_or(1_000_000),
                probe_patience: us(self.probe).max(UNPROBED_US),
                counts: Counts::default(),
                runtime: Handle::current(),
                returning: watch::Sender::new(0),
                waiters_max: self.max_waiters,
                waiters: AtomicUsize::new(0),
                listening: AtomicBool::new(false),
                told: AtomicBool::new(false),
                lines: Mutex::default(),
                for_one_call: self.one_of.is_some(),
                one_of: self.one_of.unwrap_or_else(|| format!("{:x}", fastrand::u64(..))),
            }),
        })
    }
}

impl Shared {
    /// The line of a bucket; all handles of one name share it.
    fn line(self: &Arc<Self>, name: &str, policy: &Arc<Policy>) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(name).and_then(Weak::upgrade) {
            return line;
        }
        // Lines whose handles are gone leave their names behind; they go when the table doubles.
        if lines.len() == lines.capacity() {
            lines.retain(|_, line| line.strong_count() > 0);
        }
        let line = Arc::new(Line::new(self, name, policy));
        lines.insert(name.to_owned(), Arc::downgrade(&line));
        line
    }

    /// Counts one place as on its way back, until what this gives is dropped.
    pub(crate) fn returning(self: &Arc<Self>) -> Returning {
        self.returning.send_modify(|returning| *returning += 1);
        Returning(Arc::clone(self))
    }

    /// Counts a failure and tells it with the bucket it happened to.
    pub(crate) fn told<T>(&self, name: &str, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| self.failed(name, error))
    }

    /// As [`told`](Self::told), of a failure.
    pub(crate) fn failed(&self, name: &str, error: Error) -> Error {
        self.counts.store_errors.add();
        self.store.meters().failed(&error);
        error.of_bucket(name)
    }

    /// Whether the store tells of changes made elsewhere.
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }
}

impl<'a> Waits<'a> {
    /// `None` where as many wait as may.
    pub(crate) fn one_more(line: &'a Line) -> Option<Self> {
        let shared = &line.shared;
        line.meters.waiters.increment(1.0);
        let counted = Self(line);
        (shared.waiters.fetch_add(1, Ordering::Relaxed) < shared.waiters_max).then_some(counted)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.meters.waiters.decrement(1.0);
        self.0.shared.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place on its way back to the store.
#[derive(Debug)]
pub(crate) struct Returning(Arc<Shared>);

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.returning.send_modify(|returning| *returning -= 1);
    }
}

/// Who suspends, as `host/process id`.
pub(crate) fn author() -> String {
    static HOST: LazyLock<String> = LazyLock::new(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
        let host = host.trim();
        if host.is_empty() { "localhost".to_owned() } else { host.to_owned() }
    });
    // After a fork it is another process.
    format!("{}/{}", *HOST, std::process::id())
}
