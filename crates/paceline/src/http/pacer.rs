//! What the middlewares share: which bucket a request belongs to, waiting for its permit, and what
//! its answer teaches. One file for both, so that `tower` and `reqwest` cannot come to differ.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode, Uri, header, uri};
use paceline_core::{Cost, Micros};

use super::retry::Tries;
use super::{Observed, Placed, Profile, Profiles, ReadBodies, Reading, Response, Told, read};
use crate::answer::{Answer, Refusal, RefusedBy};
use crate::bucket::Bucket;
use crate::clock::{Clock, micros, us};
use crate::error::Error;
use crate::limiter::Limiter;
use crate::permit::InFlight;

/// Handles kept in each of two generations. A handle is some hundred bytes, and a program rarely
/// calls for more accounts than this at a time; one that does makes handles anew.
const HANDLES_MAX: usize = 1_024;
/// Targets that rest at a time. Beyond that the one whose rest is over first may go.
const RESTS_MAX: usize = 256;
/// How long a target rests when the fleet could not be told and the answer states no time.
const REST_UNTOLD: Micros = 1_000_000;

/// How the requests of a client are paced: which bucket each belongs to, what it costs, how long it
/// may wait, and which answers the fleet is told of. Hand it to `paceline::tower::PacelineLayer` or
/// `paceline::reqwest::PacelineMiddleware`.
///
/// Clones share everything they remember, and all requests of one bucket share its queue, so it makes
/// no difference how many clones of a client there are.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
/// use std::time::Duration;
/// use paceline::Limiter;
/// use paceline::http::Pacer;
///
/// let limiter = Limiter::open("memory:").await?;
/// // Each provider and account its own bucket, by what is known of the provider.
/// let by_profile = Pacer::by_profile(&limiter).deadline(Duration::from_secs(30));
/// // All requests one bucket; batches cost more.
/// let bucket = limiter.bucket("mail", "strict 100/m")?;
/// let one = Pacer::of_bucket(bucket).cost(|head| if head.uri.path() == "/batch" { 10 } else { 1 });
/// # drop((by_profile, one)); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "hand it to a layer or a middleware"]
pub struct Pacer {
    place: Place,
    profiles: Arc<Profiles>,
    deadline: Option<Duration>,
    cost: Option<Arc<Costs>>,
    account: Option<Arc<Account>>,
    observes: Option<Arc<Observes>>,
    settles: Option<Arc<Settles>>,
    adapts: Option<bool>,
    memory: Arc<Memory>,
}

type Costs = dyn Fn(Head<'_>) -> Cost + Send + Sync;
type Account = dyn Fn(Head<'_>) -> Option<String> + Send + Sync;
type Settles = dyn Fn(Response<'_>, &Reading<'_>) -> Option<Cost> + Send + Sync;
type Observes = dyn Fn(StatusCode) -> bool + Send + Sync;

/// A request without its body.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Where it goes. A request that has only a path is given the host of its `Host` header.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

#[derive(Debug, Clone)]
enum Place {
    ByProfile(Limiter),
    One(Bucket),
}

/// What all clones remember.
#[derive(Debug, Default)]
struct Memory {
    handles: Mutex<Recent<Bucket>>,
    /// Targets whose answers named another bucket than their profile did, and that bucket.
    moved: Mutex<Recent<Bucket>>,
    rests: Rests,
}

/// Values by name: those used lately, and those used before them.
#[derive(Debug)]
struct Recent<V> {
    young: HashMap<String, V>,
    old: HashMap<String, V>,
}

/// Targets that were refused without a time, and when their rest is over.
#[derive(Debug, Default)]
struct Rests {
    /// Whether there are any: for the usual call nobody takes the lock.
    any: AtomicBool,
    until: Mutex<HashMap<String, Micros>>,
}

/// One request on its way, which may take several tries.
pub(crate) struct Trip<'a> {
    bucket: Bucket,
    cost: Cost,
    profile: &'a Profile,
    method: Method,
    uri: Uri,
    /// The headers, where answers may tell that the call belongs to another bucket.
    headers: Option<HeaderMap>,
    /// The account, where the caller knows it.
    account: Option<String>,
    /// The try under way. Dropped with the trip it counts, for it may have arrived.
    in_flight: Option<InFlight>,
    deadline_at: Option<Micros>,
    tries: Tries<'a>,
}

/// What an answer said, as far as it was looked at.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Option<&'a [u8]>,
}

/// Why a request did not go out.
#[derive(Debug)]
pub(crate) enum Stopped {
    Refused(Refusal),
    Failed(Error),
}

impl Pacer {
    /// Each request in the bucket that the profile of its host says, with the documented quota as the
    /// policy it begins with. Hosts that have no profile get a bucket of their own, at a cautious
    /// pace.
    ///
    /// Where an answer names another bucket, further calls of the same method and path wait for that
    /// one. Each process learns it by itself, from its first such answer.
    pub fn by_profile(limiter: &Limiter) -> Self {
        Self::new(Place::ByProfile(limiter.clone()))
    }

    /// All requests in one bucket. What answers mean is read with the profile of their host.
    pub fn of_bucket(bucket: Bucket) -> Self {
        Self::new(Place::One(bucket))
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            profiles: Arc::new(Profiles::builtin().clone()),
            deadline: None,
            cost: None,
            account: None,
            observes: None,
            settles: None,
            adapts: None,
            memory: Arc::default(),
        }
    }

    /// Other profiles than those that come with the crate.
    pub fn profiles(mut self, profiles: impl Into<Arc<Profiles>>) -> Self {
        self.profiles = profiles.into();
        // Handles hold policies of the profiles they came from.
        self.memory = Arc::default();
        self
    }

    /// How long a request may wait for its permits, all tries together. One that cannot go by then
    /// is refused at once, and nothing is taken. As long as it takes unless said.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What each request costs, in requests or of [each unit](Cost); 1 unless said. A request of cost 0
    /// takes no permit and does not wait, not even for a suspension: for those that the provider does
    /// not count.
    pub fn cost<C: Into<Cost>>(
        mut self,
        cost: impl Fn(Head<'_>) -> C + Send + Sync + 'static,
    ) -> Self {
        self.cost = Some(Arc::new(move |head| cost(head).into()));
        self
    }

    /// The account that a request belongs to, where the caller knows it better than the header that
    /// the profile looks at: tokens are renewed while the account stays the same, and the account is
    /// what providers count. Where it says `None` the header counts. Asked only where the bucket is
    /// found [by profile](Self::by_profile).
    ///
    /// The account becomes part of the bucket's name, so it must be no secret.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// use paceline::http::Pacer;
    ///
    /// let pacer = Pacer::by_profile(&limiter).account(|head| {
    ///     let tenant = head.headers.get("x-tenant")?.to_str().ok()?;
    ///     Some(tenant.to_owned())
    /// });
    /// # drop(pacer); Ok(()) }
    /// ```
    pub fn account(
        mut self,
        account: impl Fn(Head<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.account = Some(Arc::new(account));
        self
    }

    /// What a call has really cost, where only its answer tells it: a model's tokens, points of a
    /// query. The cost that was taken before is the estimate; see
    /// [`InFlight::settle`](crate::InFlight::settle). Where it says `None`, as it does unless said, the
    /// estimate stands. Requests of cost 0 have taken nothing and settle nothing.
    ///
    /// It is asked about each answer that is read, also about those that refuse: a 429 was not
    /// executed, and some providers do not count it. The body is there where it
    /// [was read](super::ReadBodies).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// # let limiter = paceline::Limiter::open("memory:").await?;
    /// use paceline::http::Pacer;
    ///
    /// // A query is taken for 50 points, and its answer says what it took.
    /// let pacer = Pacer::by_profile(&limiter)
    ///     .cost(|_| 50)
    ///     .settle(|_, reading| reading.cost.and_then(|cost| u32::try_from(cost).ok()));
    /// # drop(pacer); Ok(()) }
    /// ```
    pub fn settle<C: Into<Cost>>(
        mut self,
        settles: impl Fn(Response<'_>, &Reading<'_>) -> Option<C> + Send + Sync + 'static,
    ) -> Self {
        self.settles =
            Some(Arc::new(move |response, reading| settles(response, reading).map(Into::into)));
        self
    }

    /// Whether what answers say may change the policy of the buckets, as
    /// [`adaptive`](Bucket::adaptive) says; unless said, of those [by profile](Self::by_profile), whose
    /// documented quotas are a first guess, and not of a bucket that was handed in without that.
    pub fn adapt(mut self, adapts: bool) -> Self {
        self.adapts = Some(adapts);
        if let Place::One(bucket) = &mut self.place {
            bucket.adapts = adapts;
        }
        // Handles hold what was said before.
        self.memory = Arc::default();
        self
    }

    /// Which statuses are read; all unless said. An answer that is not read teaches nothing and is
    /// never retried.
    pub fn observe_if(
        mut self,
        observes: impl Fn(StatusCode) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.observes = Some(Arc::new(observes));
        self
    }

    /// Begins the trip of a request.
    pub(crate) fn trip<'a>(
        &'a self,
        method: &Method,
        uri: Uri,
        headers: &HeaderMap,
        retry: Option<&'a super::Retry>,
    ) -> Result<Trip<'a>, Error> {
        let uri = with_host(uri, headers);
        let head = Head { method, uri: &uri, headers };
        let cost = self.cost.as_ref().map_or(1.into(), |cost| cost(head));
        let profile = self.profiles.for_uri(&uri);
        let mut account = None;
        let (bucket, may_move) = match &self.place {
            Place::One(bucket) => (bucket.clone(), false),
            Place::ByProfile(limiter) => {
                account = self.account.as_ref().and_then(|account| account(head));
                let placed = placed(profile, head, account.as_deref());
                let may_move = profile.buckets().iter().any(|rule| rule.resource().is_some());
                let moved = if may_move { self.memory.moved(method, &uri, &placed) } else { None };
                match moved {
                    Some(bucket) => (bucket, may_move),
                    None => (self.handle(limiter, placed)?, may_move),
                }
            }
        };
        let now = bucket.clock().steady();
        let after = |span: Duration| now.saturating_add(us(span));
        Ok(Trip {
            bucket,
            cost,
            profile,
            method: method.clone(),
            headers: may_move.then(|| headers.clone()),
            uri,
            account,
            in_flight: None,
            deadline_at: self.deadline.map(after),
            tries: Tries::begin(retry, now),
        })
    }

    /// Waits for the permit of the first try, and uses it. Cancel safe: dropped while waiting, it
    /// takes nothing with it.
    pub(crate) async fn go(&self, trip: &mut Trip<'_>) -> Result<(), Stopped> {
        let end = trip.deadline_at;
        trip.in_flight = self.go_by(trip, end).await?;
        Ok(())
    }

    /// The same for a further try.
    pub(crate) async fn go_again(&self, trip: &mut Trip<'_>) -> Result<(), Stopped> {
        let end = trip.tries.end(trip.deadline_at);
        trip.in_flight = self.go_by(trip, Some(end)).await?;
        Ok(())
    }

    async fn go_by(
        &self,
        trip: &Trip<'_>,
        end: Option<Micros>,
    ) -> Result<Option<InFlight>, Stopped> {
        if trip.cost.is_nothing() {
            return Ok(None);
        }
        let clock = trip.bucket.clock();
        let call = trip.bucket.cost(trip.cost);
        loop {
            while let Some((now, until)) = self.rests_until(trip) {
                if end.is_some_and(|end| until > end) {
                    return Err(Stopped::Refused(Refusal {
                        bucket: trip.bucket.name().to_owned(),
                        retry_after: micros(until - now),
                        cause: RefusedBy::Target { target: trip.uri.path().to_owned() },
                        local: false,
                    }));
                }
                clock.sleep(until - now).await;
            }
            let permit = match end {
                None => call.acquire().await?,
                Some(end) => match call.acquire_within(micros(end - clock.steady())).await? {
                    Answer::Granted(permit) => permit,
                    Answer::Refused(refusal) => return Err(Stopped::Refused(refusal)),
                },
            };
            // The target may have been refused while this waited: then the place is another's.
            if self.rests_until(trip).is_none() {
                return Ok(Some(permit.in_flight()));
            }
        }
    }

    /// The handle of the bucket that the profile says. Its policy is a guess, so answers may change it
    /// unless the caller says otherwise.
    fn handle(&self, limiter: &Limiter, placed: Placed<'_>) -> Result<Bucket, Error> {
        let make = |name: &str| {
            let bucket = limiter.bucket(name, placed.policy.clone())?;
            Ok(if self.adapts == Some(false) { bucket } else { bucket.adaptive() })
        };
        lock(&self.memory.handles).get(placed.bucket, make)
    }

    fn rests_until(&self, trip: &Trip<'_>) -> Option<(Micros, Micros)> {
        let rests = &self.memory.rests;
        if !rests.any.load(Ordering::Acquire) {
            return None;
        }
        let now = trip.bucket.clock().steady();
        rests.until(&trip.place(), now).map(|until| (now, until))
    }

    /// How far to read the body of an answer before it is heard; `None` for not at all.
    pub(crate) fn reads(
        &self,
        trip: &Trip<'_>,
        bodies: Option<&ReadBodies>,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<usize> {
        let bodies = bodies.filter(|_| self.observes(status))?;
        bodies.of(status, headers, trip.profile)
    }

    fn observes(&self, status: StatusCode) -> bool {
        self.observes.as_ref().is_none_or(|observes| observes(status))
    }

    /// Tells the fleet what an answer said, and says whether the request is to go out again, which
    /// takes one of its retries.
    ///
    /// Failing to tell does not fail the request: it has been answered.
    pub(crate) async fn heard(
        &self,
        trip: &mut Trip<'_>,
        said: Said<'_>,
        may_repeat: bool,
    ) -> bool {
        let Said { status, headers, body } = said;
        let in_flight = trip.in_flight.take();
        if !self.observes(status) {
            if let Some(in_flight) = in_flight {
                in_flight.answered();
            }
            return false;
        }
        let now = trip.bucket.clock().now();
        let reading = read(status.as_u16(), headers, body, now, trip.profile);
        if let Some(bucket) = self.named(trip, &reading) {
            trip.bucket = bucket;
        }
        let cost = self.settles.as_ref().and_then(|settles| {
            let target = trip.uri.path();
            settles(Response { status: status.as_u16(), headers, body, target }, &reading)
        });
        let bucket = &trip.bucket;
        let told = Told {
            call: in_flight,
            cost,
            status: status.as_u16(),
            reading: &reading,
            target: trip.uri.path(),
            profile: trip.profile,
        };
        let heeded = bucket.heed(told).await;
        let (wait, rests) = match heeded {
            Ok(Observed::Nothing) => return false,
            Ok(Observed::Suspended { left, .. }) => (us(left), false),
            Ok(Observed::BackOff(rest)) => (us(rest), true),
            Err(error) => {
                tracing::warn!(
                    bucket = bucket.name(),
                    %error,
                    "what an answer said could not be told; only this process obeys"
                );
                let stated = reading.suspension.as_ref().map(|it| it.wait_us);
                (stated.filter(|wait| *wait > 0).unwrap_or(REST_UNTOLD), true)
            }
        };
        let now = bucket.clock().steady();
        if rests {
            self.memory.rests.rest(trip.place(), now + wait, now);
        }
        may_repeat
            && reading.answer.is_rate()
            && trip.tries.take(&trip.method, status, now + wait, trip.deadline_at)
    }

    /// The bucket that an answer names, where that is another. The next call of the same target
    /// waits for that one, too.
    fn named(&self, trip: &Trip<'_>, reading: &Reading<'_>) -> Option<Bucket> {
        let (Place::ByProfile(limiter), Some(headers)) = (&self.place, &trip.headers) else {
            return None;
        };
        if reading.binding().is_none_or(|limit| limit.name.is_empty()) {
            return None;
        }
        let Trip { profile, method, uri, bucket, .. } = trip;
        let account = trip.account.as_deref();
        let named = profile.bucket_after(method, uri, headers, account, reading);
        if named.bucket == bucket.name() {
            return None;
        }
        let placed = placed(profile, Head { method, uri, headers }, account);
        let key = target_of(method, uri, &placed.bucket);
        let bucket = self.handle(limiter, named).ok()?;
        lock(&self.memory.moved).put(key, bucket.clone());
        Some(bucket)
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer")
            .field("place", &self.place)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Trip<'_> {
    /// Whether a copy of the request may be needed.
    pub(crate) fn may_repeat(&self) -> bool {
        self.tries.has_more()
    }

    /// Bucket and target as one key: a bucket's name holds no control characters.
    fn place(&self) -> String {
        format!("{}\n{}", self.bucket.name(), self.uri.path())
    }
}

impl Memory {
    /// The bucket that an earlier answer of the target named.
    fn moved(&self, method: &Method, uri: &Uri, placed: &Placed<'_>) -> Option<Bucket> {
        let mut moved = lock(&self.moved);
        // No answer has named another: the usual case, for which no key is made.
        if moved.young.is_empty() {
            return None;
        }
        moved.get(target_of(method, uri, &placed.bucket), |_| Err(())).ok()
    }
}

impl<V: Clone> Recent<V> {
    fn get<E>(&mut self, name: String, make: impl FnOnce(&str) -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.young.get(&name) {
            return Ok(value.clone());
        }
        let value = match self.old.remove(&name) {
            Some(value) => value,
            None => make(&name)?,
        };
        self.put(name, value.clone());
        Ok(value)
    }

    fn put(&mut self, name: String, value: V) {
        if self.young.len() >= HANDLES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, value);
    }
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl Rests {
    fn until(&self, place: &str, now: Micros) -> Option<Micros> {
        let mut until = lock(&self.until);
        until.retain(|_, until| *until > now);
        self.any.store(!until.is_empty(), Ordering::Release);
        until.get(place).copied()
    }

    fn rest(&self, place: String, end: Micros, now: Micros) {
        let mut until = lock(&self.until);
        until.retain(|_, until| *until > now);
        if until.len() >= RESTS_MAX
            && let Some(first) = until.iter().min_by_key(|(_, until)| **until)
        {
            let first = first.0.clone();
            until.remove(&first);
        }
        let known = until.entry(place).or_insert(end);
        *known = end.max(*known);
        self.any.store(true, Ordering::Release);
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Bucket {
    fn clock(&self) -> &Clock {
        &self.line.shared.clock
    }
}

/// Where a call belongs before anything was answered.
fn placed<'a>(profile: &'a Profile, head: Head<'_>, account: Option<&str>) -> Placed<'a> {
    let Head { method, uri, headers } = head;
    match account {
        Some(account) => profile.bucket_for(method, uri, headers, account),
        None => profile.bucket_of(method, uri, headers),
    }
}

/// A target as a key; a bucket's name holds no control characters.
fn target_of(method: &Method, uri: &Uri, bucket: &str) -> String {
    format!("{bucket}\n{method} {}", uri.path())
}

/// A client that holds a connection already sends a path alone, and the host in a header.
fn with_host(given: Uri, headers: &HeaderMap) -> Uri {
    let whole = || {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        let mut parts = given.clone().into_parts();
        parts.authority = Some(host.parse().ok()?);
        parts.scheme = Some(uri::Scheme::HTTP);
        parts.path_and_query.get_or_insert_with(|| uri::PathAndQuery::from_static("/"));
        Uri::from_parts(parts).ok()
    };
    let whole = if given.host().is_none() { whole() } else { None };
    whole.unwrap_or(given)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_end_of_handles_is_kept_and_those_in_use_stay() {
        let mut recent = Recent::default();
        let made = |made| move |_: &str| Ok::<_, Error>(made);
        recent.get("in use".to_owned(), made(0)).unwrap();
        for number in 1..5 * HANDLES_MAX {
            recent.get(number.to_string(), made(number)).unwrap();
            assert_eq!(recent.get("in use".to_owned(), made(number)).unwrap(), 0);
        }
        assert!(recent.young.len() + recent.old.len() <= 2 * HANDLES_MAX);
        assert!(recent.get("bad".to_owned(), |_| Err(Error::input("no name"))).is_err());
    }

    #[test]
    fn no_end_of_targets_rests_and_the_longest_stay() {
        let rests = Rests::default();
        for number in 0..10_000 {
            rests.rest(number.to_string(), number + 1, 0);
        }
        assert_eq!(rests.until("9999", 0), Some(10_000));
        assert!(lock(&rests.until).len() <= RESTS_MAX);
        assert_eq!(rests.until("9999", 10_000), None);
        assert!(!rests.any.load(Ordering::Relaxed));
    }

    #[test]
    fn a_path_alone_gets_the_host_of_its_header() {
        let mut headers = HeaderMap::new();
        headers.insert("host", "api.github.com:443".parse().unwrap());
        let whole = with_host("/user?x=1".parse().unwrap(), &headers);
        assert_eq!(whole.to_string(), "http://api.github.com:443/user?x=1");
        for (uri, host) in [("/user", "not a host"), ("https://a.example/", "b.example")] {
            headers.insert("host", host.parse().unwrap());
            assert_eq!(with_host(uri.parse().unwrap(), &headers).to_string(), uri);
        }
    }
}
