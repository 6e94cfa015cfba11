//! The workers of a fleet: this program again, with hidden words. Each has many callers that always
//! want more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline::Limiter;

use crate::process::{self, Process};

/// The hidden first word of a worker.
pub(crate) const WORKER: &str = "fleet-worker";
/// Most time a call takes to the provider.
const JITTER_US: u64 = 10_000;

/// What a worker is to do.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) url: String,
    pub(crate) policy: String,
    pub(crate) provider: SocketAddr,
    pub(crate) callers: usize,
    pub(crate) buckets: usize,
    pub(crate) seconds: u64,
    /// What one operation may take.
    pub(crate) timeout: Duration,
}

/// What it tells at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    pub(crate) operations: f64,
    pub(crate) errors: u64,
}

/// A worker process.
pub(crate) struct Worker(Process);

impl Worker {
    /// Starts it; it begins when told to go.
    pub(crate) fn start(number: usize, job: &Job) -> Self {
        let Job { url, policy, provider, callers, buckets, seconds, timeout } = job;
        let words = [WORKER, url, policy, &provider.to_string()].map(str::to_owned);
        let timeout_ms = timeout.as_millis() as usize;
        let numbers = [number, *callers, *buckets, *seconds as usize, timeout_ms];
        Self(Process::start(words.into_iter().chain(numbers.map(|number| number.to_string()))))
    }

    pub(crate) fn go(&mut self) {
        self.0.go();
    }

    /// Waits for its end.
    pub(crate) fn told(&mut self) -> Told {
        let (operations, errors) = self.0.told();
        Told { operations, errors }
    }
}

/// What a worker does: its callers call for so many seconds, and it tells its operations. A caller
/// that gets an error rests a moment.
pub(crate) fn worker(words: &[String]) {
    let [url, policy, provider, numbers @ ..] = words else { panic!("eight words: {words:?}") };
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().expect("a number")).collect();
    let [number, callers, buckets, seconds, timeout_ms] = numbers[..] else {
        panic!("eight words: {words:?}")
    };
    crate::runtime().block_on(async {
        let limiter = Limiter::builder(url).timeout(Duration::from_millis(timeout_ms)).open().await;
        let limiter = limiter.expect("a store");
        process::ready();
        let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
        let errors: Arc<AtomicU64> = Arc::default();
        let callers: Vec<_> = (0..callers)
            .map(|caller| {
                let which = caller % buckets;
                let name = format!("fleet {which}");
                let bucket = limiter.bucket(&name, policy.as_str()).expect("a policy");
                let (provider, errors) = (provider.clone(), Arc::clone(&errors));
                tokio::spawn(async move {
                    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
                    socket.connect(&provider).await.expect("the provider");
                    let mut answer = [0; 8];
                    loop {
                        let Ok(permit) = bucket.acquire().await else {
                            errors.fetch_add(1, Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            continue;
                        };
                        let waited_us = permit.waited().as_micros();
                        permit.spend();
                        let jitter = Duration::from_micros(fastrand::u64(0..=JITTER_US));
                        tokio::time::sleep(jitter).await;
                        let call = format!("{number} {which} {waited_us}");
                        socket.send(call.as_bytes()).await.expect("a call");
                        socket.recv(&mut answer).await.expect("an answer");
                    }
                })
            })
            .collect();
        tokio::time::sleep_until(end).await;
        println!("{} {}", limiter.stats().store_operations, errors.load(Ordering::Relaxed));
        for caller in callers {
            caller.abort();
        }
    });
}
