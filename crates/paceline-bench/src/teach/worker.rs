//! The workers of a fleet that learns: this program again, with a hidden word. Each has many callers
//! that always want more, behind the middleware that users have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use paceline::Limiter;
use paceline::http::{Pacer, Profiles};
use paceline::reqwest::PacelineMiddleware;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};

use super::provider::{RETIRED, STARTED_US, WORKER as WORKER_HEADER, unix_us};
use crate::process::{self, Process};

/// The hidden first word of a worker.
pub(crate) const WORKER: &str = "teach-worker";
/// The host of all calls. It is no host of anybody's, and leads to the provider on loopback.
pub(crate) const HOST: &str = "teach.test";
/// The bucket of those that are not placed by a profile.
const BUCKET: &str = "teach";

/// What a worker is to do.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) store: String,
    pub(crate) provider: SocketAddr,
    /// The policy of its one bucket; else its profile's, or that for everybody.
    pub(crate) policy: Option<String>,
    /// The text of its own profile, where it has one.
    pub(crate) profile: Option<String>,
    pub(crate) callers: usize,
    /// Targets that its callers share out among them.
    pub(crate) targets: usize,
    /// Its first caller calls the target that is always refused.
    pub(crate) retired: bool,
    pub(crate) seconds: u64,
}

/// What it tells at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) answers: u64,
    pub(crate) errors: u64,
}

/// A worker process.
pub(crate) struct Worker(Process);

impl Worker {
    /// Starts it; it begins when told to go.
    pub(crate) fn start(number: usize, job: &Job) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let words = [WORKER.to_owned(), job.store.clone(), job.provider.to_string()];
        let words = words.into_iter().chain([text(&job.policy), text(&job.profile)]);
        let numbers = [number, job.callers, job.targets, usize::from(job.retired)];
        let numbers = numbers.map(|number| number.to_string()).into_iter();
        Self(Process::start(words.chain(numbers).chain([job.seconds.to_string()])))
    }

    pub(crate) fn go(&mut self) {
        self.0.go();
    }

    /// Waits for its end.
    pub(crate) fn told(&mut self) -> Told {
        let (answers, errors) = self.0.told();
        Told { answers, errors }
    }
}

/// What a worker does: its callers call for so many seconds, and it tells how it went. A caller that
/// gets an error rests a moment.
pub(crate) fn worker(words: &[String]) {
    let [store, provider, policy, profile, numbers @ ..] = words else {
        panic!("nine words: {words:?}")
    };
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().expect("a number")).collect();
    let [number, callers, targets, retired, seconds] = numbers[..] else {
        panic!("nine words: {words:?}")
    };
    let provider: SocketAddr = provider.parse().expect("an address");
    crate::runtime().block_on(async {
        let limiter = Limiter::open(store).await.expect("a store");
        let client = client(pacer(&limiter, policy, profile), provider);
        process::ready();
        let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
        let (answers, errors) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let callers: Vec<_> = (0..callers)
            .map(|caller| {
                let target = match caller {
                    0 if retired == 1 => RETIRED.to_owned(),
                    _ => format!("/items/{}", caller % targets),
                };
                let url = format!("http://{HOST}:{}{target}", provider.port());
                let (client, answers, errors) =
                    (client.clone(), Arc::clone(&answers), Arc::clone(&errors));
                tokio::spawn(async move {
                    loop {
                        let request = client.get(&url).header(WORKER_HEADER, number);
                        if request.send().await.is_ok() {
                            answers.fetch_add(1, Ordering::Relaxed);
                        } else {
                            errors.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep_until(end).await;
        println!("{} {}", answers.load(Ordering::Relaxed), errors.load(Ordering::Relaxed));
        for caller in callers {
            caller.abort();
        }
    });
}

fn pacer(limiter: &Limiter, policy: &str, profile: &str) -> Pacer {
    let pacer = if policy.is_empty() {
        Pacer::by_profile(limiter)
    } else {
        Pacer::of_bucket(limiter.bucket(BUCKET, policy).expect("a policy"))
    };
    if profile.is_empty() {
        return pacer;
    }
    let profiles = Profiles::builtin().clone().with(profile, "teach.toml");
    pacer.profiles(profiles.expect("a profile"))
}

fn client(pacer: Pacer, provider: SocketAddr) -> ClientWithMiddleware {
    // Without a proxy, whatever the environment says: nothing leaves this machine.
    let client = reqwest::Client::builder().no_proxy().resolve(HOST, provider).build();
    ClientBuilder::new(client.expect("a client"))
        .with(PacelineMiddleware::new(pacer))
        .with(Stamp)
        .build()
}

/// Tells the provider when the call went out.
struct Stamp;

#[async_trait]
impl Middleware for Stamp {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        request.headers_mut().insert(STARTED_US, unix_us().into());
        next.run(request, extensions).await
    }
}
