//! The workers of a fleet: this program again, with hidden words. Each has many callers that always
//! want more.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline::Limiter;

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
pub(crate) struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts it; it begins when told to go.
    pub(crate) fn start(number: usize, job: &Job) -> Self {
        let Job { url, policy, provider, callers, buckets, seconds, timeout } = job;
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args([WORKER, url, policy, &provider.to_string()]);
        let timeout_ms = timeout.as_millis() as usize;
        let numbers = [number, *callers, *buckets, *seconds as usize, timeout_ms];
        command.args(numbers.map(|number| number.to_string()));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("a worker starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut worker = Self { child, stdin, stdout };
        assert_eq!(worker.line(), "ready");
        worker
    }

    pub(crate) fn go(&mut self) {
        self.stdin.write_all(b"go\n").expect("a worker that listens");
    }

    /// Waits for its end.
    pub(crate) fn told(&mut self) -> Told {
        let line = self.line();
        let (operations, errors) = line.split_once(' ').expect("two numbers");
        let told = Told {
            operations: operations.parse().expect("a number"),
            errors: errors.parse().expect("a number"),
        };
        self.child.wait().expect("a worker that ends");
        told
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a worker speaks");
        line.trim().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended, or this is a failure and it must.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        println!("ready");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a word");
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
