//! A polite client for a third-party API, from start to end. Each step compiles and runs as it
//! stands; the last shows how to test such a client without waiting.
//!
//! # The API
//!
//! Say a provider allows 100 requests a minute for each account. It answers 429 beyond that, with
//! `Retry-After`, and bans who goes on. Its client knows nothing of limits:
//!
//! ```
//! /// What the provider answers.
//! struct Response {
//!     status: u16,
//!     /// The `Retry-After` header in seconds, where there is one.
//!     retry_after: Option<u64>,
//! }
//!
//! /// One HTTP request, with whatever client you use.
//! async fn send(path: &str) -> Response {
//!     # let _ = path;
//!     Response { status: 200, retry_after: None }
//! }
//! # let _ = (send("/"), Response { status: 200, retry_after: None }.status);
//! ```
//!
//! # 1. Choose the policy
//!
//! Three spellings, by how much is known of the way the provider counts:
//!
//! | the provider | policy | lets through |
//! |---|---|---|
//! | refills a bucket (Shopify) | `2/s burst 40` | 40 at once, then 2 each second |
//! | counts a window, and says how | `window 100/m guard 50ms` | at most 100 in any 60.05 s |
//! | says "100 a minute", and no more | `strict 100/m` | nearly 100 a minute, evenly |
//!
//! A token bucket that starts full lets through its burst *and* what it refills: `100/m` passes
//! up to 200 in its first minute. That is what a provider with a bucket of its own allows, and
//! what one that counts windows refuses. When in doubt, write `strict`. The `guard` makes up for
//! requests that travel at unequal speed: two that went out a window apart may arrive closer.
//!
//! Several quotas in one policy are taken together or not at all: `50/s, window 1000/h`.
//!
//! ```
//! use paceline::Policy;
//!
//! let policy: Policy = "strict 100/m".parse()?;
//! assert_eq!(policy.quotas().len(), 2); // an even pace, and the window
//!
//! // What is not allowed is refused with what is.
//! let error = "100 per minute".parse::<Policy>().unwrap_err();
//! assert!(error.to_string().contains("100 per minute"));
//! # Ok::<(), paceline::PolicyError>(())
//! ```
//!
//! # 2. Open the store, once
//!
//! The store is where the fleet meets: a Redis server for processes on many machines, a folder for
//! those of one. [`Limiter::from_env`](crate::Limiter::from_env) reads `PACELINE_STORE`, so that
//! the same program runs on a laptop (`host:`, the default) and in production
//! (`rediss://user:password@redis.internal`). Clone the limiter freely; clones share one
//! connection.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! let limiter = paceline::Limiter::from_env().await?;
//! # Ok(()) }
//! ```
//!
//! # 3. A bucket for each quota of the provider
//!
//! If the provider counts by account, so do the buckets: one name for each account. Names are free
//! text; all who use the same name in the same store share the bucket.
//!
//! ```
//! use paceline::{Bucket, Error, Limiter};
//!
//! struct Client {
//!     bucket: Bucket,
//! }
//!
//! impl Client {
//!     fn new(limiter: &Limiter, account: &str) -> Result<Self, Error> {
//!         // The policy creates the bucket. Where there is one already, its own policy binds.
//!         let bucket = limiter.bucket(&format!("provider:{account}"), "strict 100/m")?;
//!         Ok(Self { bucket })
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! # let limiter = Limiter::open("memory:").await?;
//! let client = Client::new(&limiter, "acct_1")?;
//! assert_eq!(client.bucket.name(), "provider:acct_1");
//! # Ok(()) }
//! ```
//!
//! # 4. Call, and tell the fleet of a 429
//!
//! Acquire a permit, spend it, send. Spend it right before the request goes out: a permit dropped
//! before that, because the task was cancelled or an earlier step failed, gives its place back.
//!
//! A 429 should not happen. When it does (somebody used the same account elsewhere), everybody has
//! to stop, not only who was told. [`Bucket::suspend`](crate::Bucket::suspend) binds every process
//! on its next call, and reaches those that already wait within a tenth of a second. After a refusal
//! it is [`suspend_refused`](crate::Bucket::suspend_refused): at the end one call of the fleet goes
//! first, and the others follow when its answer was no refusal, which
//! [`answered`](crate::InFlight::answered) tells.
//!
//! ```
//! use std::time::Duration;
//! use paceline::{Bucket, Error};
//! # struct Response { status: u16, retry_after: Option<u64> }
//! # async fn send(_: &str) -> Response { Response { status: 200, retry_after: None } }
//!
//! async fn get(bucket: &Bucket, path: &str) -> Result<Response, Error> {
//!     let mut tries = 1;
//!     loop {
//!         let call = bucket.acquire().await?.in_flight();
//!         let response = send(path).await;
//!         if response.status != 429 {
//!             call.answered();
//!             return Ok(response);
//!         }
//!         let pause = Duration::from_secs(response.retry_after.unwrap_or(30).max(1));
//!         bucket.suspend_refused(pause, "429 with Retry-After").await?;
//!         if tries == 3 {
//!             return Ok(response);
//!         }
//!         // The next acquire waits until the suspension is over.
//!         tries += 1;
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! # let limiter = paceline::Limiter::open("memory:").await?;
//! # let bucket = limiter.bucket("provider:acct_1", "strict 100/m")?;
//! assert_eq!(get(&bucket, "/v1/charges").await?.status, 200);
//! # Ok(()) }
//! ```
//!
//! # 5. Calls that cost more, and calls that cannot wait
//!
//! A request that counts five times costs five. A user who waits for a page wants an answer within
//! two seconds or a refusal at once: [`acquire_within`](crate::Bucket::acquire_within) does not
//! wait two seconds to say no. A refusal is an answer, not an error; it says when the same call
//! would pass, and which quota refused.
//!
//! ```
//! use std::time::Duration;
//! use paceline::Answer;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! # let limiter = paceline::Limiter::open("memory:").await?;
//! let search = limiter.bucket("provider:search", "5/m")?;
//! search.cost(5).acquire().await?.spend();
//! match search.acquire_within(Duration::from_secs(2)).await? {
//!     Answer::Granted(permit) => permit.spend(),
//!     Answer::Refused(refusal) => {
//!         // To the user: 503 with `Retry-After: 12`.
//!         assert_eq!(refusal.retry_after().as_secs_f64().ceil(), 12.0);
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! Where some calls take much longer to arrive than others, no small guard is enough. Tell when
//! the answer came, and windows count the call from then: the guard is then as long as a call can
//! last, and costs nothing.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! # let limiter = paceline::Limiter::open("memory:").await?;
//! # async fn generate() {}
//! let reports = limiter.bucket("provider:reports", "100/m burst 1, window 100/m guard 30s")?;
//! let call = reports.acquire().await?.in_flight();
//! generate().await;
//! call.answered();
//! # Ok(()) }
//! ```
//!
//! A language model's provider limits requests and tokens at once, and tells only with its answer how
//! many tokens a call took. One policy holds both; the call takes an estimate, and
//! [`settle`](crate::InFlight::settle) puts it right. Dropped without an answer, or killed, it stays at
//! the estimate.
//!
//! ```
//! use paceline::{Cost, Unit};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! # let limiter = paceline::Limiter::open("memory:").await?;
//! # async fn ask(_: &str) -> (String, u32) { (String::new(), 812) }
//! let model = limiter.bucket("provider:model", "500/m, 30000/m of tokens")?;
//! let prompt = "How many roads must a man walk down?";
//! let estimate = 1_000 + u32::try_from(prompt.len() / 4).unwrap_or(u32::MAX);
//! let call = model.cost(1).of(Unit::Tokens, estimate).acquire().await?.in_flight();
//! let (answer, tokens) = ask(prompt).await;
//! call.settle(Cost::only(Unit::Tokens, tokens));
//! # drop(answer);
//! # limiter.settled().await;
//! # let left = model.status().await?.map(|it| it.quotas[1].remaining);
//! # assert!(left.is_some_and(|left| left >= 29_188), "{left:?}");
//! # Ok(()) }
//! ```
//!
//! # 6. When Redis is away
//!
//! Each operation is bounded in time (250 ms unless said). What a call then gets is your choice,
//! by name: [`WhenAway::Refuse`](crate::WhenAway::Refuse) (the default) answers an error,
//! [`WhenAway::Local`](crate::WhenAway::Local) lets each process keep its share of the last known
//! policy, [`WhenAway::Allow`](crate::WhenAway::Allow) lets every call pass. The permit tells who
//! granted it, and [`Limiter::stats`](crate::Limiter::stats) counts each kind.
//!
//! ```
//! use std::num::NonZeroU32;
//! use paceline::{Limiter, WhenAway};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! // Nothing listens on that port.
//! let limiter = Limiter::builder("redis://127.0.0.1:1")
//!     .when_away(WhenAway::Local { processes: NonZeroU32::new(8).expect("not 0") })
//!     .open()
//!     .await?;
//! let bucket = limiter.bucket("provider:acct_1", "8000/s")?;
//! let permit = bucket.acquire().await?;
//! assert_eq!(permit.granted_by(), paceline::GrantedBy::Local);
//! permit.spend();
//! assert_eq!(limiter.stats().granted_local, 1);
//! # Ok(()) }
//! ```
//!
//! # 7. Change the pace while it runs
//!
//! The policy lives beside the bucket. One process, or a person with
//! `paceline set provider:acct_1 'strict 50/m'`, changes it for all; what was left is kept.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! # let limiter = paceline::Limiter::open("memory:").await?;
//! limiter.pin_policy("provider:acct_1", "strict 50/m").await?;
//! let status = limiter.status("provider:acct_1").await?.expect("it was just set");
//! assert!(status.pinned); // it outlives the idle bucket
//! # Ok(()) }
//! ```
//!
//! # 8. Test it without waiting
//!
//! [`testing`](crate::testing) has a clock that is moved by hand, and a memory store on it.
//!
//! ```
//! use std::time::Duration;
//! use paceline::testing::{ManualClock, memory};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! let clock = ManualClock::at(1_790_000_000_000_000);
//! let limiter = memory(&clock).await?;
//! let bucket = limiter.bucket("provider:acct_1", "strict 100/m")?;
//! bucket.suspend(Duration::from_secs(30), "429 with Retry-After").await?;
//! assert!(!bucket.try_acquire().await?.is_granted());
//! clock.advance(Duration::from_secs(30));
//! assert!(bucket.try_acquire().await?.is_granted());
//! # Ok(()) }
//! ```
